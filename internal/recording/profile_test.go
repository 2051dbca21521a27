package recording

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const cpuText = "event: cpu\nengine: e\ninterval: 1\nduration: 1s\nlost: 0\n\n[];f_[n] 1 1\n"

func TestProfileIsAMetricToo(t *testing.T) {
	r := sample(t)
	p, ok := r.Profile(stacks.CPU)
	if !ok || p.Total() != (stacks.Weight{Count: 4, Value: 40}) || len(p.Samples) != 2 {
		t.Fatalf("%+v, %v", p, ok)
	}
	if g := r.Gauge(metric.CPUProfileSamples); len(g) != 1 || g[0].Last() != 4 {
		t.Errorf("the number of samples is %v, want 4", g)
	}
	if g := r.Gauge(metric.OffCPUProfileSamples); len(g) != 1 || g[0].Last() != 0 {
		t.Errorf("an empty profile has %v samples, want 0", g)
	}
	if _, ok := r.Profile(stacks.Wall); ok || r.Recorded(metric.WallProfileSamples) {
		t.Error("a profile that was not taken is there")
	}
	want := []string{"async-profiler: lost 3 of 7 samples of the cpu profile"}
	if diff := cmp.Diff(
		want, r.Losses([]metric.Metric{metric.CPUProfileSamples, metric.LockProfileSamples})); diff != "" {
		t.Errorf("losses: -want +got:\n%s", diff)
	}
}

func TestCutKeepsTheProfilesAskedFor(t *testing.T) {
	cut := sample(t).Cut([]metric.Metric{metric.CPUProfileSamples})
	if _, ok := cut.Profile(stacks.CPU); !ok {
		t.Error("the profile of a metric that was asked for is gone")
	}
	if _, ok := cut.Profile(stacks.OffCPU); ok || cut.Recorded(metric.OffCPUProfileSamples) {
		t.Error("another profile is there")
	}
}

func TestRawFileIsKept(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rec", "rec.zip"} {
		if err := sample(t).Save(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "rec/profiles/jvm.jfr")); err != nil || string(got) != "FLR\x00" {
		t.Errorf("%q, %v", got, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "rec/profiles")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("others may read profiles: %v, %v", st.Mode(), err)
	}
	z, err := zip.OpenReader(filepath.Join(dir, "rec.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	want := []string{"meta.json", "samples.jsonl", "profiles/cpu.pb.gz", "profiles/off-cpu.pb.gz", "profiles/jvm.jfr"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files: -want +got:\n%s", diff)
	}
}

func TestSecondProfileAndLargeFileAreLost(t *testing.T) {
	b := NewBuilder()
	for _, engine := range []string{"one", "two"} {
		a := b.Appender()
		a.Profile(&stacks.Profile{Event: stacks.CPU, Engine: engine, Samples: []stacks.Sample{{Thread: -1, Count: 5}}})
		a.File("a.jfr", []byte(engine))
		a.File("large.jfr", make([]byte, maxRaw+1))
		lost, _ := a.Commit()
		want := []Loss{{What: "bytes of large.jfr, which is larger than a raw file may be (32 MiB)", Count: maxRaw + 1}}
		if engine == "two" {
			want = append(want, Loss{What: `samples of cpu by "two": the recording has those by "one"`, Count: 5},
				Loss{What: "bytes of a second a.jfr, or of a raw file too many", Count: 3})
		}
		if diff := cmp.Diff(want, lost); diff != "" {
			t.Errorf("%s: -want +got:\n%s", engine, diff)
		}
	}
	rec := b.Done(Meta{})
	if p, _ := rec.Profile(stacks.CPU); p.Engine != "one" || len(rec.Gauge(metric.CPUProfileSamples)[0].Points) != 1 {
		t.Errorf("the first profile was replaced: %+v", p)
	}
}

// TestRawFileWithASecret: a raw file has the names of threads unchanged, so a name that would be redacted keeps the
// file out.
func TestRawFileWithASecret(t *testing.T) {
	for name, kept := range map[string]bool{"worker-1": true, "token=hunter2": false} {
		b := NewBuilder()
		a := b.Appender()
		a.File("jvm.jfr", []byte(name))
		a.Profile(&stacks.Profile{
			Event: stacks.CPU, Threads: []stacks.Thread{{Name: name}}, Samples: []stacks.Sample{{Count: 5}},
		})
		lost, _ := a.Commit()
		rec := b.Done(Meta{})
		if len(rec.raws) == 1 != kept || len(lost) == 0 != kept || !kept && lost[0].Count != len(name) {
			t.Errorf("a thread named %s: files %v, lost %v", name, rec.raws, lost)
		}
		if p, _ := rec.Profile(stacks.CPU); strings.Contains(p.Threads[0].Name, secret) {
			t.Errorf("the profile has %q", p.Threads[0].Name)
		}
	}
}

func TestAppenderRefusesProfiles(t *testing.T) {
	panics := func(name string, f func(*Appender)) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s is accepted", name)
			}
		}()
		f(NewBuilder().Appender())
	}
	panics("a profile without an event", func(a *Appender) { a.Profile(&stacks.Profile{}) })
	for _, name := range []string{
		"", ".", "..", "../x", "a/b", "/a", ".a", "cpu.pb.gz", "cpu.txt", "a\n",
		strings.Repeat("a", 80),
	} {
		panics(name, func(a *Appender) { a.File(name, nil) })
	}
}

// TestHostileProfiles reads what a stranger may send below profiles/.
func TestHostileProfiles(t *testing.T) {
	t.Parallel()
	var huge bytes.Buffer // a gzip of zeros, a thousandth of its unpacked size
	bomb(t, &huge)
	var wall bytes.Buffer
	if err := (&stacks.Profile{Event: stacks.Wall}).WritePprof(&wall); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		files   map[string]string
		samples string
		want    string
	}{
		{"no gzip", map[string]string{"profiles/cpu.pb.gz": "x"}, "", "profiles/cpu.pb.gz"},
		{"a bomb", map[string]string{"profiles/cpu.pb.gz": huge.String()}, "", "larger than"},
		{"truncated", map[string]string{"profiles/cpu.pb.gz": wall.String()[:wall.Len()-9]}, "", "unexpected EOF"},
		{"of another event", map[string]string{"profiles/cpu.pb.gz": wall.String()}, "", "is a profile of wall"},
		{"bad text", map[string]string{"profiles/cpu.txt": cpuText + "x"}, "", "profiles/cpu.txt: line 8"},
		{
			"huge text",
			map[string]string{"profiles/cpu.txt": cpuText + strings.Repeat("\n", maxProfile)},
			"",
			"larger than",
		},
		{"both forms", map[string]string{"profiles/cpu.txt": cpuText, "profiles/cpu.pb.gz": ""}, "", "there are both"},
		{"a directory", map[string]string{"profiles/cpu.txt/x": ""}, "", "is not a file"},
		{"no profile", nil, `{"t":1,"m":{"cpu_profile_samples":[[7]]}}`, "there is no profiles/cpu.pb.gz"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys := fstest.MapFS{metaFile: {Data: []byte(goodMeta)}, samplesFile: {Data: []byte(tc.samples)}}
			for name, data := range tc.files {
				fsys[name] = &fstest.MapFile{Data: []byte(data)}
			}
			rec, err := Read(fsys)
			refused(t, rec, err, tc.want)
		})
	}
}

func TestTextProfileOfACase(t *testing.T) {
	rec, err := Read(fstest.MapFS{
		metaFile: {Data: []byte(goodMeta)}, samplesFile: {Data: []byte(`{"t":1,"m":{"cpu_profile_samples":[[1]]}}`)},
		"profiles/cpu.txt": {Data: []byte(cpuText)}, "profiles/of-a-newer-perfdoctor.txt": {Data: []byte("x")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := rec.Profile(stacks.CPU); !ok || p.Frames[0].Name != "f" {
		t.Errorf("%+v", p)
	}
}

func bomb(t *testing.T, w *bytes.Buffer) {
	z := gzip.NewWriter(w)
	if _, err := io.CopyN(z, repeat("\x00"), 65<<20); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// If a reader of pprof fails on a profile, only that profile is not measured.
func TestProfileFault(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "saved")
	if err := sample(t).Save(dir); err != nil {
		t.Fatal(err)
	}
	parse := func(r io.Reader, memory int) (*stacks.Profile, error) {
		p, err := stacks.ParsePprofWithin(r, memory)
		if p.Event == stacks.CPU {
			_ = p.Samples[len(p.Samples)]
		}
		return p, err
	}
	r, err := read(os.DirFS(dir), parse)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Profile(stacks.CPU); ok || r.Recorded(metric.CPUProfileSamples) {
		t.Error("the profile is there")
	}
	if reason, _ := r.Why(metric.CPUProfileSamples); !strings.HasPrefix(reason,
		"profiles/cpu.pb.gz: perfdoctor failed on it (index out of") {
		t.Errorf("the reason is %q", reason)
	}
	if _, ok := r.Profile(stacks.OffCPU); !ok {
		t.Error("another profile is gone")
	}
}
