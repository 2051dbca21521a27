package ebpf

import (
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
)

// costOf is the CPU time of this process and its children in a function.
func costOf(b *testing.B, fn func() error) time.Duration {
	used := func() (sum time.Duration) {
		for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
			var ru unix.Rusage
			check(b, unix.Getrusage(who, &ru))
			sum += time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
		}
		return sum
	}
	before := used()
	check(b, fn())
	return used() - before
}

// fillEstablished holds n connections with both ends here: 8000 with the usual hard limit of 20,000 descriptors.
func fillEstablished(b *testing.B, n int) {
	var limit unix.Rlimit
	check(b, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	raised := unix.Rlimit{Cur: limit.Max, Max: limit.Max}
	check(b, unix.Setrlimit(unix.RLIMIT_NOFILE, &raised))
	b.Cleanup(func() { check(b, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) })
	l, at := listenOn(b, "0.0.0.0", 128)
	for i := 0; n > 0; i++ { // connect() gets slow beyond half of the port range
		batch := min(n, 10_000)
		dial(b, batch, l, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), at.Port()))
		n -= batch
	}
}

func fillTimeWait(b *testing.B, n int) {
	l, at := listenOn(b, "0.0.0.0", 128)
	for i := 0; n > 0; i++ {
		batch := min(n, 10_000)
		leaveTimeWaits(b, batch, l, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), at.Port()))
		n -= batch
	}
}

// BenchmarkSocketIterator is the basis of the choice in collectors/sockets: the CPU time of one pass of the iterator,
// of one dump by sock_diag with tcp_info and of `ss -tan`, in turns over the same sockets.
func BenchmarkSocketIterator(b *testing.B) {
	testenv.Need(b, testenv.Tool("ss"))
	for _, kind := range []struct {
		name string
		fill func(*testing.B)
	}{
		{"empty", func(*testing.B) {}},
		{"established-4000", func(b *testing.B) { fillEstablished(b, 2000) }},
		{"established-16000", func(b *testing.B) { fillEstablished(b, 8000) }},
		{"time-wait-100000", func(b *testing.B) { fillTimeWait(b, 100_000) }},
	} {
		b.Run(kind.name, func(b *testing.B) {
			s, c := alone(b)
			kind.fill(b)
			var iterator, diag, ss time.Duration
			n := 0
			for b.Loop() {
				iterator += costOf(
					b, func() error { return s.Each(b.Context(), func(*sockdiag.Socket) error { n++; return nil }) })
				diag += costOf(b, func() error {
					return c.Dump(unix.AF_UNSPEC, sockdiag.AllStates, true, func(*sockdiag.Socket) error { return nil })
				})
				ss += costOf(b, exec.Command("ss", "-tan").Run)
			}
			each := max(1, float64(n))
			b.ReportMetric(float64(n)/float64(b.N), "sockets")
			b.ReportMetric(float64(iterator.Microseconds())/float64(b.N), "iterator-us/op")
			b.ReportMetric(float64(diag.Microseconds())/float64(b.N), "diag-us/op")
			b.ReportMetric(float64(iterator.Nanoseconds())/each, "iterator-ns/socket")
			b.ReportMetric(float64(diag.Nanoseconds())/each, "diag-ns/socket")
			b.ReportMetric(float64(iterator)/float64(diag), "iterator/diag")
			b.ReportMetric(float64(iterator)/float64(ss), "iterator/ss")
		})
	}
}

// BenchmarkHolders compares the ways to find the owners of sockets: the iterator over descriptors, the links in
// /proc/PID/fd, and `ss -tanp`, which does both.
func BenchmarkHolders(b *testing.B) {
	testenv.Need(b, testenv.Tool("ss"))
	for _, pairs := range []int{10, 1000, 8000} {
		b.Run(strconv.Itoa(2*pairs), func(b *testing.B) {
			s, c := alone(b)
			fillEstablished(b, pairs)
			wanted := map[uint64]struct{}{}
			check(b, c.Dump(unix.AF_UNSPEC, sockdiag.AllStates, false, func(s *sockdiag.Socket) error {
				wanted[s.Inode] = struct{}{}
				return nil
			}))
			delete(wanted, 0)
			var iterator, links, ss time.Duration
			n := 0
			for b.Loop() {
				iterator += costOf(
					b, func() error { return s.Holders(b.Context(), func(*Holder) error { n++; return nil }) })
				links += costOf(b, func() error {
					_, err := sockdiag.Owners(b.Context(), "/proc", allProcesses(b), wanted, 1<<30)
					return err
				})
				ss += costOf(b, exec.Command("ss", "-tanp").Run)
			}
			b.ReportMetric(float64(n)/float64(b.N), "sockets")
			b.ReportMetric(float64(iterator.Microseconds())/float64(b.N), "iterator-us/op")
			b.ReportMetric(float64(links.Microseconds())/float64(b.N), "proc-us/op")
			b.ReportMetric(float64(iterator)/float64(links), "iterator/proc")
			b.ReportMetric(float64(iterator)/float64(ss), "iterator/ss")
		})
	}
}

func allProcesses(b *testing.B) (pids []int) {
	entries, err := os.ReadDir("/proc")
	check(b, err)
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// BenchmarkOpenSockets measures what comes before the first pass: reading the kernel's types and loading the programs.
func BenchmarkOpenSockets(b *testing.B) {
	testenv.Need(b, testenv.Root, testenv.BPF)
	var total time.Duration
	for b.Loop() {
		total += costOf(b, func() error {
			s, err := OpenSockets(b.Context(), &Loader{}, ownEnv(b), 0)
			if err != nil {
				return err
			}
			return s.Close()
		})
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "cpu-us/op")
}

// BenchmarkBandwidth reads all groups of the host in one pass, and from their files.
func BenchmarkBandwidth(b *testing.B) {
	tree := newTree(b)
	pass := openBandwidth(b, tree.dir)
	tree.delegate(b, "")
	var dirs []string
	for i := range 100 {
		dirs = append(dirs, tree.group(b, strconv.Itoa(i)))
		tree.limit(b, dirs[i], 50_000, 100_000)
	}
	var iterator, files time.Duration
	for b.Loop() {
		iterator += costOf(b, func() error { return pass.Each(b.Context(), func(*CPULimit) error { return nil }) })
		files += costOf(b, func() error {
			for _, d := range dirs {
				tree.files(b, d)
			}
			return nil
		})
	}
	b.ReportMetric(float64(iterator.Microseconds())/float64(b.N), "iterator-us/op")
	b.ReportMetric(float64(files.Microseconds())/float64(b.N), "files-us/op")
}
