package ebpf

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const syscallsName = "bpf-syscalls"

// TestSyscalls makes a prime number of calls that this program makes nowhere else, each way. Exactly so many are
// counted, with their bytes and errors.
func TestSyscalls(t *testing.T) {
	const calls, failures, writes, size = 1009, 211, 307, 13
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := openNamed(t, syscallsName, targetOf(t, os.Getpid()))
	for range calls {
		_, _ = unix.Getpgid(0)
	}
	for range failures {
		if err := unix.Fchdir(-1); err != unix.EBADF {
			t.Fatalf("fchdir of no file: %v, want EBADF", err)
		}
	}
	for range writes {
		if _, err := unix.Pwritev(int(file.Fd()), [][]byte{make([]byte, size)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	nap := unix.NsecToTimespec(int64(100 * time.Millisecond))
	if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &nap, nil); err != nil && err != unix.EINTR {
		t.Fatal(err)
	}
	slept := time.Since(began)
	rec := o.done()
	for _, c := range []struct {
		m      *metric.Gauge
		want   float64
		labels []string
	}{
		{metric.SyscallCalls, calls, []string{"syscall", "getpgid"}},
		{metric.SyscallDurations, calls, []string{"syscall", "getpgid"}},
		{metric.SyscallErrors, 0, []string{"syscall", "getpgid"}},
		{metric.SyscallCalls, failures, []string{"syscall", "fchdir"}},
		{metric.SyscallErrors, failures, []string{"syscall", "fchdir", "error", "EBADF"}},
		{metric.SyscallCalls, writes, []string{"syscall", "pwritev"}},
		{metric.SyscallBytes, writes * size, []string{"syscall", "pwritev"}},
	} {
		got := 0.0
		for _, s := range rec.Gauge(c.m, c.labels...) {
			got += s.Last()
		}
		if got != c.want {
			t.Errorf("%s%q = %v, want exactly %v", c.m.Describe().Name, c.labels, got, c.want)
		}
	}
	naps := rec.Gauge(metric.SyscallSeconds, "syscall", "clock_nanosleep")
	if len(naps) != 1 || naps[0].Last() > slept.Seconds() || naps[0].Last() < 0.9*slept.Seconds()-0.01 {
		t.Errorf("clock_nanosleep took %v, the program says %v", naps, slept)
	}
}

// BenchmarkSyscalls gives the figure of bpf-syscalls' Overhead: the cheapest call, with the programs and without, in
// turns.
func BenchmarkSyscalls(b *testing.B) {
	const turn = 200_000
	one := func() time.Duration {
		began := time.Now()
		for range turn {
			_, _ = unix.Getpgid(0)
		}
		return time.Since(began)
	}
	var with, without time.Duration
	turns := 0.0
	for b.Loop() {
		without += one()
		o := openNamed(b, syscallsName, targetOf(b, os.Getpid()))
		with += one()
		o.close()
		turns++
	}
	b.ReportMetric(float64((with-without).Nanoseconds())/turns/turn, "added-ns/call")
	b.ReportMetric(float64(without.Nanoseconds())/turns/turn, "ns/call")
}
