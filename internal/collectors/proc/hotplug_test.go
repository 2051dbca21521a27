package proc

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestHotplug takes a CPU offline between two samples, in a saved tree, because no test may do that to its machine. The
// kernel's files lose the CPU's lines (for_each_online_cpu in fs/proc/stat.c) and its column of /proc/interrupts.
// Samples go on, and the CPU has no rate.
func TestHotplug(t *testing.T) {
	ar, err := txtar.ParseFile("../../../testdata/trees/proc/linux-6.18-x86.txtar")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	write := func(change func(name, text string) string) {
		for _, f := range ar.Files {
			path := filepath.Join(root, f.Name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(change(f.Name, string(f.Data))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(func(_, text string) string { return text })
	b := recording.NewBuilder()
	var sources []collect.Source
	for _, c := range []collect.Collector{cpuCollector(), interruptCollector()} {
		src, err := c.Open(t.Context(), collect.Env{Host: &host.Host{Proc: root, Sys: root, Etc: root}})
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, src)
	}
	sample := func() {
		for _, src := range sources {
			a := b.Appender()
			if err := src.Sample(t.Context(), a); err != nil {
				t.Error(err)
			}
			a.Commit()
		}
	}
	sample()
	write(withoutCPU1)
	sample()
	points := map[string]int{}
	for _, s := range b.Done(recording.Meta{}).Counter(metric.CPUSeconds, "mode", "user") {
		points[s.Label("cpu")] = len(s.Points)
	}
	if points["0"] != 2 || points["1"] != 1 {
		t.Errorf("points of each CPU: %v, want two of CPU 0 and one of CPU 1", points)
	}
}

var (
	lineOfCPU1 = regexp.MustCompile(`(?m)^cpu1 .*\n`)
	column1    = regexp.MustCompile(`(?m)^( *[^ :]+: +\d+) +\d+`)
)

func withoutCPU1(name, text string) string {
	switch {
	case strings.HasSuffix(name, "interrupts"):
		text = strings.Replace(text, "CPU1", "    ", 1)
		return column1.ReplaceAllString(text, "$1")
	case name == "stat" || name == "schedstat":
		return lineOfCPU1.ReplaceAllString(text, "")
	}
	return text
}
