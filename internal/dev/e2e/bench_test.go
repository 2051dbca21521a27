package e2e

import (
	"archive/zip"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// What a diagnosis of an idle host may cost: little enough to be run on a production host in trouble without a thought.
const (
	benchWindow    = 10 * time.Second
	maxCPUSeconds  = 0.15
	maxRSS         = 40 << 20
	maxOverrun     = 500 * time.Millisecond
	maxFirstSample = 150 * time.Millisecond
	maxBinary      = 20 << 20
)

// BenchmarkHostDiagnosis diagnoses the idle host for 10 s, paired with what a user would run instead for as long. sar
// reads a part of what a diagnosis does and judges nothing; with -A it reads what it can. pidstat reads every process.
func BenchmarkHostDiagnosis(b *testing.B) {
	testenv.Need(b, testenv.Root, testenv.Tool("sar"), testenv.Tool("pidstat"))
	program := perfdoctor(b)
	info, err := os.Stat(program)
	must(b, err)
	if info.Size() > maxBinary {
		b.Errorf("the program has %d bytes, more than %d", info.Size(), maxBinary)
	}
	awaitIdle(b)
	recording := filepath.Join(b.TempDir(), "recording.zip")
	for b.Loop() {
		b.StopTimer()
		must(b, os.RemoveAll(recording))
		b.StartTimer()
		ours := measure(b, program, "diagnose", "--duration", benchWindow.String(), "--save", recording)
		b.StopTimer()
		sar := measure(b, "sar", "1", "10")
		sarAll := measure(b, "sar", "-A", "1", "10")
		pidstat := measure(b, "pidstat", "-urdw", "1", "10")
		ours.limits(b, recording)
		b.ReportMetric(float64(info.Size())/(1<<20), "MiB-binary")
		b.ReportMetric(ours.cpu, "cpu-s")
		b.ReportMetric(ours.rss/(1<<20), "MiB-rss")
		b.ReportMetric((ours.wall - benchWindow).Seconds(), "s-over")
		b.ReportMetric(ours.cpu/sar.cpu, "x-sar-cpu")
		b.ReportMetric(ours.cpu/sarAll.cpu, "x-sar-A-cpu")
		b.ReportMetric(ours.cpu/pidstat.cpu, "x-pidstat-cpu")
		b.StartTimer()
	}
}

// A cost is what a program used.
type cost struct {
	started time.Time
	wall    time.Duration
	cpu     float64 // seconds, user and system, with its children
	rss     float64 // bytes at most; ru_maxrss, so no less than this process had when it started the program
}

func measure(b *testing.B, name string, args ...string) cost {
	b.Helper()
	cmd := exec.Command(name, args...)
	c := cost{started: time.Now()}
	out, err := cmd.Output()
	c.wall = time.Since(c.started)
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 3 && code != 4 { // findings, or samples lost
		b.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		b.Fatalf("%v: no resource usage", cmd.Args)
	}
	c.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	c.rss = float64(usage.Maxrss) * 1024 // getrusage(2): kilobytes
	return c
}

// limits fails the benchmark when the diagnosis cost more than promised.
func (c cost) limits(b *testing.B, recording string) {
	b.Helper()
	first := firstSample(b, recording).Sub(c.started)
	b.ReportMetric(float64(first.Microseconds())/1e3, "ms-first-sample")
	if c.cpu > maxCPUSeconds {
		b.Errorf("%.3f CPU s, more than %v", c.cpu, maxCPUSeconds)
	}
	if c.rss > maxRSS {
		b.Errorf("%.0f bytes RSS, more than %d", c.rss, maxRSS)
	}
	if c.wall > benchWindow+maxOverrun {
		b.Errorf("took %v, more than %v beyond the %v asked for", c.wall, maxOverrun, benchWindow)
	}
	if first > maxFirstSample {
		b.Errorf("first sample %v after the start, later than %v", first, maxFirstSample)
	}
}

// firstSample is when the first sample was taken, from the recording.
func firstSample(b *testing.B, recording string) time.Time {
	b.Helper()
	archive, err := zip.OpenReader(recording)
	must(b, err)
	defer func() { _ = archive.Close() }()
	var meta struct{ Started time.Time }
	readFirst(b, archive, "meta.json", &meta)
	var sample struct{ T float64 }
	readFirst(b, archive, "samples.jsonl", &sample)
	return meta.Started.Add(time.Duration(sample.T * float64(time.Second)))
}

// readFirst decodes the first JSON value of a file.
func readFirst(b *testing.B, archive *zip.ReadCloser, name string, into any) {
	b.Helper()
	file, err := archive.Open(name)
	must(b, err)
	defer func() { _ = file.Close() }()
	must(b, json.NewDecoder(file).Decode(into))
}
