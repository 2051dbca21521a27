package proc

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

var update = flag.Bool("update", false, "rewrite the want sections of testdata/trees/proc/*.txtar")

// TestKernels samples the files of several kernels in testdata/trees/proc/<kernel>.txtar. The section want has what is
// recorded, and then what is reported as missing.
func TestKernels(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/trees/proc/*.txtar")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d kernels, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			ar := txtar.Parse(data)
			got := sampleTree(t, ar)
			i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "want" })
			if *update {
				if i < 0 {
					i, ar.Files = len(ar.Files), append(ar.Files, txtar.File{Name: "want"})
				}
				ar.Files[i].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if i < 0 {
				t.Fatal("no want section: run with -update and read it")
			}
			if diff := cmp.Diff(string(ar.Files[i].Data), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func sampleTree(t *testing.T, ar *txtar.Archive) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range ar.Files {
		path := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := collect.Env{Host: &host.Host{Proc: root, Sys: root, Etc: root}}
	var out strings.Builder
	for _, c := range []collect.Collector{cpuCollector(), interruptCollector(), memoryCollector()} {
		src, err := c.Open(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(sampleText(t, c, src))
	}
	return strings.ReplaceAll(out.String(), root, "ROOT")
}

// sampleText takes one sample and returns a line per row, without the time.
func sampleText(t *testing.T, c collect.Collector, src collect.Source) string {
	t.Helper()
	b := recording.NewBuilder()
	a := b.Appender()
	if err := src.Sample(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	lost, missing := a.Commit()
	rec := b.Done(recording.Meta{})
	var out strings.Builder
	for _, m := range c.Provides {
		var buf bytes.Buffer
		if err := rec.WriteSamples(&buf, m); err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`^\{"t":[0-9.]+,"m":\{(.*)\}\}\n$`).ReplaceAllString(buf.String(), "$1\n")
		out.WriteString(strings.ReplaceAll(line, "],[", "],\n\t["))
	}
	for _, m := range missing {
		fmt.Fprintf(&out, "missing %s: %s: %s\n", m.Metric, m.Status, m.Reason)
	}
	if len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
	return out.String()
}

func TestInterruptErrors(t *testing.T) {
	const head = "           CPU0       CPU1\n"
	for text, want := range map[string]string{
		"":                                    "no header",
		"  CPU0 CPUx\n":                       `"CPUx" instead of a CPU`,
		"  0:  1  2\n":                        `"0:" instead of a CPU`,
		head + "  0   1   2  x\n":             "has no name",
		head + "  0:  1  z  IO-APIC\n":        `bad count "z"`,
		head + "  0:  1\n":                    "1 counts for 2 CPUs",
		head + "  0:  -1  2  chip\n":          "bad count",
		head + "ERR:  99999999999999999999\n": "bad count",
	} {
		if l, err := parseInterrupts(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", text, l, err, want)
		}
	}
}

func TestVMStatErrors(t *testing.T) {
	for text, want := range map[string]string{
		"pgfault": "no number", "pgfault x": `bad number "x"`,
		"pgfault 1 2": "bad number", "a 1\n\n": "no number",
	} {
		if _, err := parseVMStat(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

func TestCPUsOfMask(t *testing.T) {
	for mask, want := range map[string]string{
		"0": "", "3": "0,1", "00000000,00000000": "", "00000001,80000000": "31,32", "f": "0,1,2,3", "": "",
		"xyz": "xyz", "1ffffffff": "1ffffffff",
	} {
		if got := cpusOfMask(mask); got != want {
			t.Errorf("mask %q is CPUs %q, want %q", mask, got, want)
		}
	}
}

// TestHostileDeviceName: a device name may contain the characters of a file pattern.
func TestHostileDeviceName(t *testing.T) {
	sys := t.TempDir()
	dir := filepath.Join(sys, "class/net/eth[0*/queues")
	for _, q := range []string{"rx-0", "rx-1", "tx-0"} {
		if err := os.MkdirAll(filepath.Join(dir, q), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "rx-1/rps_cpus"), []byte("2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := recording.NewBuilder()
	a := b.Appender()
	sampleQueues(sys, a)
	a.Commit()
	r := b.Done(recording.Meta{})
	if got := r.Gauge(metric.DeviceQueues, "device", "eth[0*", "direction", "receive"); len(got) != 1 ||
		got[0].Last() != 2 {
		t.Errorf("receive queues: %v", got)
	}
	if got := r.Info(metric.QueueRPS); len(got) != 1 || got[0].Label("cpus") != "1" || got[0].Label("queue") != "rx-1" {
		t.Errorf("RPS: %v", got)
	}
}

func FuzzInterrupts(f *testing.F) {
	f.Add("           CPU0       CPU1\n  0:        127          0   IO-APIC-edge      timer\nERR: 1\n")
	f.Add("CPU0\n 1: 2 GICv3 27 Level arch_timer\n 2: 3 -\n 3: 4\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := parseInterrupts(strings.NewReader(text))
		if err != nil {
			return
		}
		if got, want := len(lines), strings.Count(strings.TrimSuffix(text, "\n"), "\n"); got != want {
			t.Fatalf("%d lines of %d: one was skipped", got, want)
		}
		for _, l := range lines {
			if len(l.counts) != len(l.cpus) {
				t.Fatalf("%+v", l)
			}
		}
	})
}

func FuzzVMStat(f *testing.F) {
	f.Add("pgfault 1\npgmajfault -2\n")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseVMStat(strings.NewReader(text))
		if err == nil && len(v) > strings.Count(text, "\n")+1 {
			t.Fatalf("%d fields", len(v))
		}
	})
}

func FuzzCPUsOfMask(f *testing.F) {
	f.Add("00000001,80000000")
	f.Fuzz(func(_ *testing.T, mask string) { cpusOfMask(mask) })
}
