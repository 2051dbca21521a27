package ebpf

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// burnVar makes the test's program a child that only keeps a CPU busy. burnChildren makes it start children, one after
// the other, that do so for burnShort of CPU time.
const (
	burnVar      = "PERFDOCTOR_TEST_BURN"
	burnChildren = "children"
	burnBriefly  = "briefly"
	burnShort    = 100 * time.Millisecond
)

// briefly keeps a CPU busy for as long as a child of a shell script may.
func briefly() {
	var now unix.Timespec
	for unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now) == nil && time.Duration(now.Nano()) < burnShort {
		continue
	}
}

func startChildren() {
	for start := time.Now(); time.Since(start) < time.Minute; { // see burn
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), burnVar+"="+burnBriefly)
		if child.Run() != nil {
			return
		}
	}
}

func burn() {
	for start := time.Now(); time.Since(start) < time.Minute; {
		continue // a child whose parent was killed ends by itself
	}
}

// The main goroutine stays on the main thread. A test that moves its thread into another network namespace (alone) has
// another thread, because the main thread does not end with a goroutine, and /proc/PID/ns/net of the whole process is
// that of its main thread.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // only here does a lock hold main on the main thread

func TestMain(m *testing.M) {
	switch os.Getenv(burnVar) {
	case "":
	case burnChildren:
		startChildren()
		os.Exit(0)
	case burnBriefly:
		briefly()
		os.Exit(0)
	default:
		burn()
		os.Exit(0)
	}
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// opened is one open collector of this package.
type opened struct {
	t   testing.TB
	src collect.Source
	b   *recording.Builder

	missed bool // the kernel skipped a program for an event, and said so
}

// close may be called twice: by a benchmark when a turn is over, and at the end.
func (o *opened) close() {
	if o.src == nil {
		return
	}
	if err := o.src.Close(); err != nil {
		o.t.Errorf("close: %v", err)
	}
	o.src = nil
}

// openNamed opens a collector. It may only fail on a kernel that is older than the collector declares.
func openNamed(t testing.TB, name string, env collect.Env) *opened {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.BPF)
	for _, c := range Collectors(&Loader{}, Options{}) {
		if c.Name != name {
			continue
		}
		src, err := collect.Open(t.Context(), c, env)
		if err != nil && older(t, c.Since) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		o := &opened{t: t, src: src, b: recording.NewBuilder()}
		t.Cleanup(o.close)
		return o
	}
	t.Fatalf("no collector %s", name)
	return nil
}

// older tells whether this kernel is older than the floor.
func older(t testing.TB, f collect.Floor) bool {
	t.Helper()
	running, err := host.Local().KernelRelease()
	if err != nil {
		t.Fatal(err)
	}
	if f.Release == "" {
		return false
	}
	old, err := host.ReleaseBefore(running, f.Release)
	if err != nil {
		t.Fatal(err)
	}
	return old
}

func (o *opened) sample() {
	o.t.Helper()
	a := o.b.Appender()
	if err := o.src.Sample(o.t.Context(), a); err != nil {
		o.t.Fatal(err)
	}
	lost, missing := a.Commit()
	for _, l := range lost {
		o.t.Logf("lost: %d %s", l.Count, l.What)
		o.missed = o.missed || strings.HasPrefix(l.What, "events missed")
	}
	for _, m := range missing {
		o.t.Logf("missing: %+v", m)
	}
}

// done takes the last sample and returns the recording.
func (o *opened) done() *recording.Recording {
	o.t.Helper()
	o.sample()
	return o.b.Done(recording.Meta{})
}

// total adds up the last values of a counter's series that match.
func total(rec *recording.Recording, c *metric.Counter, match ...string) float64 {
	n := 0.0
	for _, s := range rec.Counter(c, match...) {
		n += s.Points[len(s.Points)-1].Value
	}
	return n
}

// want fails unless the counter is exactly n.
func want(t *testing.T, rec *recording.Recording, n float64, c *metric.Counter, match ...string) {
	t.Helper()
	if got := total(rec, c, match...); got != n {
		t.Errorf("%s%q = %v, want exactly %v", c.Describe().Name, match, got, n)
	}
}

// inHost is the environment of a process in a host of a lab.
func inHost(t testing.TB, h *lab.Host) collect.Env {
	t.Helper()
	ino, err := h.Inode()
	if err != nil {
		t.Fatal(err)
	}
	return collect.Env{Host: host.Local(), Target: host.Target{
		Kind: host.KindProcess, PIDs: []int{os.Getpid()}, Namespaces: host.Namespaces{Net: host.Namespace{Inode: ino}},
	}}
}
