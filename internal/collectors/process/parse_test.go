package process

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func TestPoolName(t *testing.T) {
	for _, tt := range []struct{ comm, want string }{
		{"GC Thread#3", "GC Thread"},
		{"G1 Conc#0", "G1 Conc"},
		{"ZWorker#12", "ZWorker"},
		{"pool-1-thread-7", "pool-1-thread"},
		{"pool-12-thread-", "pool-12-thread"},
		{"http-nio-8080-e", "http-nio-8080-e"},
		{"nioEventLoopGro", "nioEventLoopGro"},
		{"C2 CompilerThre", "C2 CompilerThre"},
		{"qtp1873653341-1", "qtp"},
		{"qtp1873653341-", "qtp"},
		{"worker[12]", "worker"},
		{"Thread-12", "Thread"},
		{"4711", "4711"},
		{"--", "--"},
		{"", ""},
		{"evil\n<b>7", "evil\n<b>"},
		{"\xff\xfe3", "\xff\xfe"},
	} {
		if got := metric.PoolOf(tt.comm); got != tt.want {
			t.Errorf("PoolOf(%q) = %q, want %q", tt.comm, got, tt.want)
		}
	}
}

// TestParse reads the files as kernels of several ages and makes print them.
func TestParse(t *testing.T) {
	archives, err := filepath.Glob("../../../testdata/trees/process/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, path := range archives {
		ar, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range ar.Files {
			t.Run(filepath.Base(path)+"/"+f.Name, func(t *testing.T) { parseFile(t, f) })
		}
	}
}

// parsed is the result of any of the parsers.
type parsed struct {
	number float64
	ok     bool
	failed bool
}

func parseFile(t *testing.T, f txtar.File) {
	want, known := map[string]parsed{
		"limits-6.18":          {number: 1024, ok: true},
		"limits-5.10":          {number: 1048576, ok: true},
		"limits-unlimited":     {},
		"limits-without-files": {failed: true},
		"limits-bad-number":    {failed: true},
		"schedstat":            {number: 3.92},
		"schedstat-short":      {failed: true},
		"schedstat-bad-number": {failed: true},
		"statm":                {number: 3263},
		"statm-short":          {failed: true},
		"statm-bad-number":     {failed: true},
		"uptime":               {number: 350735.47},
		"uptime-infinite":      {failed: true},
	}[f.Name]
	if !known {
		t.Fatalf("no expectation for %s", f.Name)
	}
	var got parsed
	var err error
	switch kind, _, _ := strings.Cut(f.Name, "-"); kind {
	case "limits":
		got.number, got.ok, err = parseFileLimit(f.Data)
	case "schedstat":
		got.number, err = parseRunDelay(f.Data)
	case "statm":
		got.number, err = parsePrivate(f.Data)
	case "uptime":
		got.number, err = parseUptime(f.Data)
	}
	if err != nil {
		got = parsed{failed: true}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(parsed{})); diff != "" {
		t.Errorf("-want +got (%v):\n%s", err, diff)
	}
}

// TestParseIO reads the text of Linux 2.6.20 to 6.18, which has not changed.
func TestParseIO(t *testing.T) {
	text := "rchar: 323934931\nwchar: 323929600\nsyscr: 632687\nsyscw: 632675\nread_bytes: 4096\n" +
		"write_bytes: 323932160\ncancelled_write_bytes: 8192\n"
	got, err := parseIO([]byte(text))
	want := ioCounts{
		diskRead: 4096, diskWritten: 323932160, read: 323934931, written: 323929600, reads: 632687, writes: 632675,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(ioCounts{})); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	for _, bad := range []string{
		"", "read_bytes: 1\n", strings.Replace(text, ": 4096", ": -1", 1), strings.Replace(text, ": 4096", ": x", 1),
		strings.Replace(text, "syscr", "syscx", 1),
	} {
		if _, err := parseIO([]byte(bad)); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	archives, err := filepath.Glob("../../../testdata/trees/process/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range archives {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range txtar.Parse(b).Files {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if limit, ok, err := parseFileLimit(b); err != nil && (ok || limit != 0) {
			t.Errorf("limit %v beside the error %v", limit, err)
		}
		if wait, err := parseRunDelay(b); err == nil && wait < 0 {
			t.Errorf("run delay %v", wait)
		}
		if n, err := parsePrivate(b); err == nil && n < 0 {
			t.Errorf("private pages %v", n)
		}
		if n, err := parseIO(b); err == nil && (n.diskRead < 0 || n.diskWritten < 0) {
			t.Errorf("I/O %+v", n)
		}
		if up, err := parseUptime(b); err == nil && (math.IsInf(up, 0) || math.IsNaN(up) || up <= 0) {
			t.Errorf("uptime %v", up)
		}
		if comm := string(b); metric.PoolOf(comm) == "" && comm != "" {
			t.Error("a pool without a name")
		}
	})
}
