package recording

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// sample builds a recording with everything that is awkward to store: hostile labels, a metric with nothing, extreme
// numbers.
func sample(t testing.TB) *Recording {
	t.Helper()
	at := time.Unix(1_790_000_000, 0)
	b := NewBuilder()
	b.start, b.now = at, func() time.Time { return at }
	for i := range 3 {
		a := b.Appender()
		a.Counter(metric.CPUSeconds, float64(i)+0.1+0.2, "0", "user")
		a.Counter(metric.CPUSeconds, 1e-90, "1", "user")
		a.Gauge(metric.MemoryTotal, 1<<63)
		a.Gauge(metric.ProcessRSS, float64(i), "7", "a\xff\xfeb <&> \x1b[31m\u2028\"\\\n-- x --")
		a.Gauge(metric.ProcessRSS, -float64(i), "7\x00", "x")
		a.Gauge(metric.ProcessRSS, 0, "7", "\x00x")
		a.Info(metric.HostInfo, "6.18", "amd64", "", "kvm")
		a.None(metric.ListenerQueue, metric.ProcessSockets)
		a.Lost(7, "things")
		a.Missing(metric.Governor, StatusUnsupported, "no \xff driver", "")
		if i == 1 {
			a.Profile(awkwardProfile())
			a.Profile(&stacks.Profile{Event: stacks.OffCPU, Engine: "x"})
			a.File("jvm.jfr", []byte("FLR\x00"))
		}
		lost, missing := a.Commit()
		if len(lost) != 1 || len(missing) != 1 {
			t.Fatalf("lost %v, missing %v", lost, missing)
		}
		at = at.Add(333_333_333 * time.Nanosecond)
	}
	return b.Done(Meta{
		Schema: SchemaVersion, Version: "v0", Started: time.Unix(1_790_000_000, 123_456_789), Duration: 2.0 / 3,
		Interval: 0.1, Asked: 1,
		Target: Target{Kind: "process", PID: 7, Name: "a\xffb", Cmdline: []string{
			"a", "--password", "hunter2",
			"\xff",
		}},
		Collectors: []CollectorStatus{{
			Name: "c", Status: StatusFailed, Reason: "bad \xff", Lost: []Loss{},
			Metrics: []string{"x"},
		}},
		Unsupported: []Missing{{Metric: "m", Status: StatusDenied, Reason: "\x80"}},
		Cost:        Cost{Wall: 0.1 + 0.2, MaxRSS: math.MaxInt64, Skipped: []float64{0.1 + 0.2}},
	})
}

// text is the input of a report: equal texts give equal reports.
func text(t testing.TB, r *Recording) string {
	t.Helper()
	var b bytes.Buffer
	if err := errors.Join(r.WriteMeta(&b), r.WriteSamples(&b)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// awkwardProfile is not in canonical order and has names that are hard to store.
func awkwardProfile() *stacks.Profile {
	return &stacks.Profile{
		Event: stacks.CPU, Engine: "async-profiler", Interval: 10_000_000, Duration: 10 * time.Second, Lost: 3,
		Frames: []stacks.Frame{
			{Name: "z;\n-- x --\n\x1b", Kind: stacks.Native, Module: "lib!c"},
			{Name: "a.B.c", Line: 7, Kind: stacks.Inlined},
		},
		Threads: []stacks.Thread{{ID: 9, Name: "unused"}, {ID: 7, Name: "http|1"}},
		Samples: []stacks.Sample{
			{
				Stack: []int{0, 1}, Thread: 1, Class: "byte[]", State: stacks.Sleeping, At: time.Second, Count: 2,
				Value: 20,
			},
			{Stack: []int{1}, Thread: -1, Count: 1, Value: 10},
			{
				Stack: []int{0, 1}, Thread: 1, Class: "byte[]", State: stacks.Sleeping, At: time.Second, Count: 1,
				Value: 10,
			},
		},
	}
}

// sameAs compares everything except the index and the marks. Only building uses those, and a file keeps them as
// "recorded".
func sameAs(t *testing.T, want, got *Recording) {
	t.Helper()
	if diff := cmp.Diff(want.Meta, got.Meta); diff != "" {
		t.Errorf("meta: -live +read:\n%s", diff)
	}
	if diff := cmp.Diff(want.profiles, got.profiles); diff != "" {
		t.Errorf("profiles: -live +read:\n%s", diff)
	}
	if len(want.series) != len(got.series) {
		t.Errorf("%d metrics live, %d read", len(want.series), len(got.series))
	}
	for name, f := range want.series {
		g := got.series[name]
		if g == nil {
			t.Errorf("%s is not read back", name)
			continue
		}
		if len(f.list) != len(g.list) {
			t.Errorf("%s: %d series live, %d read", name, len(f.list), len(g.list))
			continue
		}
		for i := range f.list {
			if diff := cmp.Diff(f.list[i].Labels, g.list[i].Labels); diff != "" {
				t.Errorf("%s: labels: -live +read:\n%s", name, diff)
			}
			if diff := cmp.Diff(f.list[i].Points, g.list[i].Points); diff != "" {
				t.Errorf("%s: points: -live +read:\n%s", name, diff)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	live := sample(t)
	dir := t.TempDir()
	for _, name := range []string{"rec", "rec2/", "rec.zip", "rec.txtar"} {
		t.Run(name, func(t *testing.T) {
			path := dir + "/" + name
			save := live.Save
			if strings.HasSuffix(name, ".txtar") {
				save = func(path string) error { return saveTxtar(live, path) }
			}
			if err := save(path); err != nil {
				t.Fatal(err)
			}
			got, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			sameAs(t, live, got)
			if diff := cmp.Diff(text(t, live), text(t, got)); diff != "" {
				t.Errorf("-live +read:\n%s", diff)
			}
			if err := live.Save(path); err == nil || !strings.Contains(err.Error(), "exists") {
				t.Errorf("saving over %s: %v", path, err)
			}
		})
	}
	if left, _ := filepath.Glob(dir + "/.*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func saveTxtar(r *Recording, path string) error {
	var b bytes.Buffer
	if err := r.WriteTxtar(&b, "made by a test"); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

func TestSavedHoldsNoSecret(t *testing.T) {
	if s := text(t, sample(t)); strings.Contains(s, "hunter2") {
		t.Errorf("a secret of the command line is stored:\n%s", s)
	}
}

func TestRecordedAndWhy(t *testing.T) {
	r := sample(t)
	if !r.Recorded(metric.ListenerQueue) || r.Recorded(metric.SwapFree) {
		t.Error("measured and nothing there must be recorded, not measured must not")
	}
	r.Meta.Unsupported = []Missing{{Metric: metric.SwapFree.Describe().Name, Reason: "no swap", Remedy: "buy some"}}
	r.Meta.Collectors = []CollectorStatus{
		{
			Name: "a", Status: StatusOK, Late: 2, Samples: 3, Lost: []Loss{{What: "things", Count: 4}},
			Metrics: []string{metric.SwapTotal.Describe().Name},
		},
		{
			Name: "b", Status: StatusDenied, Reason: "not root", Remedy: "be root",
			Metrics: []string{metric.Uptime.Describe().Name},
		},
	}
	for m, want := range map[metric.Metric][2]string{
		metric.SwapFree: {"no swap", "buy some"}, metric.Uptime: {"not root", "be root"},
		metric.Governor: {"the recording has no cpufreq_governor_info", ""},
	} {
		if reason, remedy := r.Why(m); reason != want[0] || remedy != want[1] {
			t.Errorf("%s: %q, %q; want %q", m.Describe().Name, reason, remedy, want)
		}
	}
	want := []string{"a: 2 of 5 samples were late", "a: 4 things"}
	if diff := cmp.Diff(want, r.Losses([]metric.Metric{metric.SwapTotal, metric.Uptime})); diff != "" {
		t.Errorf("losses: -want +got:\n%s", diff)
	}
}

// TestNamesOfNumbers: a series returns by name what package series computes.
func TestNamesOfNumbers(t *testing.T) {
	points := []Point{{At: 0, Value: 3}, {At: time.Second, Value: 1}, {At: 2 * time.Second, Value: 2}}
	c := CounterSeries{&Series{Metric: metric.Forks, Points: points}}
	if n, ok := c.Increase(); n != 2 || !ok {
		t.Errorf("increase %v, %v", n, ok)
	}
	if r, ok := c.Rate(); r != 1 || !ok {
		t.Errorf("rate %v, %v", r, ok)
	}
	g := GaugeSeries{&Series{Metric: metric.Load, Points: points}}
	if g.First() != 3 || g.Last() != 2 || g.Max() != 3 || g.Min() != 1 || g.Mean() != 2 {
		t.Error("first, last, max, min or mean of 3, 1, 2 is wrong")
	}
}

func TestAppenderRefuses(t *testing.T) {
	panics := func(name string, f func(*Appender)) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s is accepted", name)
			}
		}()
		f(NewBuilder().Appender())
	}
	panics("NaN", func(a *Appender) { a.Gauge(metric.Uptime, math.NaN()) })
	panics("infinity", func(a *Appender) { a.Gauge(metric.Uptime, math.Inf(1)) })
	panics("a missing label", func(a *Appender) { a.Gauge(metric.Load, 1) })
	panics("a surplus label", func(a *Appender) { a.Gauge(metric.Uptime, 1, "x") })
}

func TestDuplicatesAndBoundAreCounted(t *testing.T) {
	b := NewBuilder()
	a := b.Appender()
	for range 3 {
		a.Gauge(metric.Uptime, 1)
	}
	if lost, _ := a.Commit(); len(lost) != 1 || lost[0].Count != 2 {
		t.Errorf("two surplus numbers are lost as %v", lost)
	}
	a = b.Appender()
	for i := range maxSeries + 4 {
		a.Gauge(metric.Load, 1, fmt.Sprint(i))
	}
	if lost, _ := a.Commit(); len(lost) != 1 || lost[0].Count != 5 { // one series is Uptime's
		t.Errorf("five series past the bound are lost as %v", lost)
	}
	a = b.Appender()
	a.Gauge(metric.SwapFree, 1)
	a.Commit()
	if b.Done(Meta{}).Recorded(metric.SwapFree) {
		t.Error("a metric whose only series is past the bound reads as measured")
	}
}

const goodMeta = `{"schema":1,"duration_seconds":1}`

// TestHostile reads what a stranger may send. Each is refused with one line that says what is wrong, at bounded cost.
func TestHostile(t *testing.T) {
	name := metric.Uptime.Describe().Name
	load := metric.Load.Describe().Name
	for _, tc := range []struct{ name, meta, samples, want string }{
		{"no meta", "", "", metaFile},
		{"empty meta", " ", "", "unexpected end"},
		{"meta is no object", "[]", "", "cannot unmarshal"},
		{"truncated meta", `{"schema":1,"dura`, "", "unexpected end"},
		{"trailing bytes", goodMeta + "}", "", "after top-level value"},
		{"no schema", `{"duration_seconds":1}`, "", "no schema"},
		{"newer schema", `{"schema":2,"duration_seconds":"PT1S","collectors":{}}`, "", "use a newer perfdoctor"},
		{"negative duration", `{"schema":1,"duration_seconds":-1}`, "", "duration_seconds is -1"},
		{"huge number", `{"schema":1,"duration_seconds":1` + strings.Repeat("0", 1<<20) + `}`, "", "cannot unmarshal"},
		{"huge meta", `{"schema":1,"perfdoctor":"` + strings.Repeat("x", maxMeta) + `"}`, "", "larger than"},
		{"deep meta", `{"schema":1,"x":` + strings.Repeat("[", 1<<20), "", "depth"},
		{"no samples", goodMeta, "", samplesFile},
		{"truncated line", goodMeta, `{"t":1,"m":{"` + name, "line 1"},
		{"cut in line 2", goodMeta, `{"t":1,"m":{}}` + "\n" + `{"t":`, "line 2"},
		{"not JSON", goodMeta, "\x00\x01\x1b[31m", "line 1"},
		{"time goes backwards", goodMeta, `{"t":1,"m":{}}` + "\n" + `{"t":0.9,"m":{}}`, "backwards"},
		{"negative time", goodMeta, `{"t":-1,"m":{}}`, "out of range"},
		{"endless time", goodMeta, `{"t":1e300,"m":{}}`, "out of range"},
		{"NaN", goodMeta, `{"t":1,"m":{"` + name + `":[[NaN]]}}`, "line 1"},
		{"infinity", goodMeta, `{"t":1,"m":{"` + name + `":[[1e999]]}}`, "line 1"},
		{"text for a number", goodMeta, `{"t":1,"m":{"` + name + `":[["\u001b[31m"]]}}`, "want a number"},
		{"number for a label", goodMeta, `{"t":1,"m":{"` + load + `":[[{"a":"\u001b[31m"},1]]}}`, "want a string"},
		{"too few cells", goodMeta, `{"t":1,"m":{"` + load + `":[[1]]}}`, "1 cells, want 2"},
		{"null row", goodMeta, `{"t":1,"m":{"` + name + `":[null]}}`, "0 cells"},
		{"labels twice in a line", goodMeta, `{"t":1,"m":{"` + load + `":[["1m",1],["1m",2]]}}`, "twice"},
		{"labels twice at a time", goodMeta, strings.Repeat(`{"t":1,"m":{"`+name+`":[[1]]}}`+"\n", 2), "twice"},
		{"huge line", goodMeta, strings.Repeat(" ", maxLine+2), "longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			if tc.meta != "" {
				fsys[metaFile] = &fstest.MapFile{Data: []byte(tc.meta)}
			}
			if tc.samples != "" {
				fsys[samplesFile] = &fstest.MapFile{Data: []byte(tc.samples)}
			}
			rec, err := Read(fsys)
			refused(t, rec, err, tc.want)
		})
	}
}

func refused(t *testing.T, rec *Recording, err error, want string) {
	t.Helper()
	if rec != nil || !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
		t.Fatalf("error %.300v, want %v with %q", err, ErrFormat, want)
	}
	if s := err.Error(); len(s) > 500 || strings.ContainsAny(s, "\n\x1b") {
		t.Errorf("the error is not one clear line: %.600q", s)
	}
}

func TestUnknownMetricIsSkipped(t *testing.T) {
	rec, err := Read(fstest.MapFS{
		metaFile: {Data: []byte(goodMeta)},
		samplesFile: {Data: []byte(`{"t":1,"m":{"of_a_newer_perfdoctor":[["a",1]],"` + metric.Uptime.Describe().
			Name + `":[[5]]}}`)},
	})
	if err != nil || len(rec.Gauge(metric.Uptime)) != 1 {
		t.Errorf("%v, %v", rec, err)
	}
}

func writeZip(t *testing.T, path string, files map[string]io.Reader) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { // bombs of half a GiB among them
		return flate.NewWriter(w, flate.BestSpeed)
	})
	for name, r := range files {
		w, err := z.Create(name)
		if err == nil {
			_, err = io.Copy(w, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// repeat reads the same text for ever.
func repeat(text string) io.Reader { return &repeater{text: text} }

type repeater struct {
	text string
	at   int
}

func (r *repeater) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

func TestZipBomb(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]io.Reader{
		"larger than": {metaFile: io.LimitReader(repeat("\n"), 64<<20)},
		"more than 2000000 lines": {metaFile: strings.NewReader(goodMeta), samplesFile: io.LimitReader(repeat("\n"),
			64<<20)},
		"holds more than": {metaFile: strings.NewReader(goodMeta), samplesFile: io.LimitReader(
			repeat(strings.Repeat(" ", 1<<20)+"\n"), maxSamples+2)},
	} {
		if testing.Short() && name == "holds more than" {
			continue // half a GiB takes minutes under the race detector
		}
		path := t.TempDir() + "/bomb.zip"
		writeZip(t, path, files)
		if st, err := os.Stat(path); err != nil || st.Size() > 1<<20 {
			t.Fatalf("the bomb is not small: %v, %v", st, err)
		}
		rec, err := Open(path)
		refused(t, rec, err, name)
	}
}

func TestZipEscape(t *testing.T) {
	secret := t.TempDir() + "/" + metaFile
	if err := os.WriteFile(secret, []byte(goodMeta), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../" + metaFile, "/" + metaFile, secret, "a/../" + metaFile, `..\` + metaFile} {
		path := t.TempDir() + "/x.zip"
		writeZip(t, path, map[string]io.Reader{
			name: strings.NewReader(`{"schema":1,"perfdoctor":"inside"}`), samplesFile: strings.NewReader(""),
		})
		if rec, err := Open(path); err == nil { // archive/zip takes a leading / and ../ off the names
			if rec.Meta.Version != "inside" {
				t.Errorf("%s led out of the zip", name)
			}
		} else {
			refused(t, nil, err, metaFile)
		}
	}
}

func TestDamagedZip(t *testing.T) {
	whole := t.TempDir() + "/whole.zip"
	if err := sample(t).Save(whole); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/cut.zip"
	for _, n := range []int{0, 1, 30, len(data) / 2, len(data) - 1} {
		if err := os.WriteFile(path, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		rec, err := Open(path)
		refused(t, rec, err, "zip")
	}
	for i := 40; i < len(data)/2; i += 7 { // a flipped bit in the compressed data: the checksum tells
		bad := bytes.Clone(data)
		bad[i] ^= 0x10
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if rec, err := Open(path); err == nil {
			sameAs(t, sample(t), rec) // the bit was one nobody reads
		} else if !errors.Is(err, ErrFormat) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

func TestDirectoryEscapeAndSpecialFiles(t *testing.T) {
	outside := t.TempDir()
	if err := sample(t).Save(outside + "/rec"); err != nil {
		t.Fatal(err)
	}
	inside := t.TempDir()
	if err := os.Symlink(outside+"/rec/"+metaFile, inside+"/"+metaFile); err != nil {
		t.Fatal(err)
	}
	rec, err := Open(inside)
	refused(t, rec, err, "escape")

	pipes := t.TempDir()
	for _, name := range []string{metaFile, "pipe.txtar", "pipe.zip"} {
		if err := unix.Mkfifo(pipes+"/"+name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{pipes, pipes + "/pipe.txtar", pipes + "/pipe.zip", "/dev/zero"} {
		rec, err := Open(path)
		refused(t, rec, err, "")
	}
	if _, err := Open(pipes + "/none"); err == nil || errors.Is(err, ErrFormat) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// fullVar makes the test binary save a recording under a file size limit, which stands for a full disk: EFBIG instead
// of ENOSPC.
const fullVar = "PERFDOCTOR_TEST_SAVE"

func TestMain(m *testing.M) {
	if path := os.Getenv(fullVar); path != "" {
		os.Exit(saveWithLimit(path))
	}
	os.Exit(m.Run())
}

func saveWithLimit(path string) int {
	b := NewBuilder()
	a := b.Appender()
	for i := range 5000 {
		a.Gauge(metric.Load, float64(i)/7, fmt.Sprint(i*7919))
	}
	a.Commit()
	limit := unix.Rlimit{Cur: 8 << 10, Max: 8 << 10}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println("setrlimit:", err)
		return 3
	}
	if err := b.Done(Meta{Schema: SchemaVersion}).Save(path); err != nil {
		fmt.Print(err)
		return 1
	}
	return 0
}

func TestFullDiskLeavesNothing(t *testing.T) {
	for _, name := range []string{"rec", "rec.zip"} {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fullVar+"="+dir+"/"+name)
		out, err := cmd.Output()
		if cmd.ProcessState.ExitCode() != 1 {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		if s := string(out); !strings.Contains(s, "save recording to "+dir) || !strings.Contains(s, "file too large") ||
			strings.Contains(s, "\n") {
			t.Errorf("%s: the error is %q", name, s)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", name, left, err)
		}
	}
}

func TestSaveNowhere(t *testing.T) {
	err := sample(t).Save(t.TempDir() + "/none/rec.zip")
	if err == nil || !strings.Contains(err.Error(), "none/rec.zip") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

func FuzzRead(f *testing.F) {
	var meta, samples bytes.Buffer
	r := sample(f)
	if err := errors.Join(r.WriteMeta(&meta), r.WriteSamples(&samples)); err != nil {
		f.Fatal(err)
	}
	f.Add(meta.Bytes(), samples.Bytes())
	f.Add([]byte(goodMeta), []byte(`{"t":1,"m":{"load_average":[["1m",1]]}}`+"\n"+`{"t":2,"m":{"load_average":[]}}`))
	f.Fuzz(func(t *testing.T, meta, samples []byte) {
		rec, err := Read(fstest.MapFS{metaFile: {Data: meta}, samplesFile: {Data: samples}})
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("%v", err)
			}
			return
		}
		var m, s bytes.Buffer
		if err := errors.Join(rec.WriteMeta(&m), rec.WriteSamples(&s)); err != nil {
			t.Fatal(err)
		}
		again, err := Read(fstest.MapFS{metaFile: {Data: m.Bytes()}, samplesFile: {Data: s.Bytes()}})
		if err != nil {
			t.Fatalf("what was read cannot be read back: %v\n%s", err, s.Bytes())
		}
		sameAs(t, rec, again)
	})
}

func TestConcurrentAppenders(t *testing.T) {
	b := NewBuilder()
	done := make(chan struct{})
	for i := range 8 {
		go func() {
			for range 50 {
				a := b.Appender()
				a.Gauge(metric.Load, 1, fmt.Sprint(i))
				a.Commit()
			}
			done <- struct{}{}
		}()
	}
	for range 8 {
		<-done
	}
	if got := len(b.Done(Meta{}).Gauge(metric.Load)); got != 8 {
		t.Errorf("%d series of 8", got)
	}
}
