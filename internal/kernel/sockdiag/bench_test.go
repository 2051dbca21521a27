package sockdiag

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

const benchSockets = 100_000

// cpuTime is the CPU time of this process, all threads and so the garbage collector too.
func cpuTime(tb testing.TB) time.Duration {
	var ru unix.Rusage
	check(tb, unix.Getrusage(unix.RUSAGE_SELF, &ru))
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// dumpOnce is the CPU time of one dump of everything.
func dumpOnce(tb testing.TB, c *Conn) time.Duration {
	n := 0
	start := cpuTime(tb)
	check(tb, c.Dump(unix.AF_UNSPEC, AllStates, false, func(*Socket) error { n++; return nil }))
	used := cpuTime(tb) - start
	if n < benchSockets*99/100 { // a cost, not a count, is measured here
		tb.Fatalf("%d sockets, want %d", n, benchSockets)
	}
	return used
}

// ssOnce is the CPU time of one `ss -tan`, its output thrown away.
func ssOnce(tb testing.TB) time.Duration {
	cmd := exec.Command("ss", "-tan")
	check(tb, cmd.Run())
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

func prepareBench(b *testing.B) *Conn {
	testenv.Need(b, testenv.Tool("ss"))
	enterNamespace(b)
	manyTimeWaits(b, benchSockets)
	return open(b)
}

func reportCPU(b *testing.B, total time.Duration) {
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func BenchmarkDump100k(b *testing.B) {
	c := prepareBench(b)
	b.ReportAllocs()
	var total time.Duration
	for b.Loop() {
		total += dumpOnce(b, c)
	}
	reportCPU(b, total)
}

func BenchmarkSS100k(b *testing.B) {
	prepareBench(b)
	var total time.Duration
	for b.Loop() {
		total += ssOnce(b)
	}
	reportCPU(b, total)
}

// BenchmarkDumpVersusSS takes turns, so that both meet the same table and the same noise. ratio is the CPU time
// of a dump as a share of that of `ss -tan`.
func BenchmarkDumpVersusSS(b *testing.B) {
	c := prepareBench(b)
	b.ReportAllocs()
	var dump, ss time.Duration
	for b.Loop() {
		dump += dumpOnce(b, c)
		ss += ssOnce(b)
	}
	b.ReportMetric(float64(dump)/float64(ss), "ratio")
	b.ReportMetric(float64(dump.Nanoseconds())/float64(b.N), "dump-cpu-ns/op")
	b.ReportMetric(float64(ss.Nanoseconds())/float64(b.N), "ss-cpu-ns/op")
}

// BenchmarkDumpInfo is the dearest dump: established connections with tcp_info. Compare cpu-ns/socket with and
// without, in a run of its own: the hash table is full of other benchmarks' TIME_WAIT for a minute.
func BenchmarkDumpInfo(b *testing.B) {
	enterNamespace(b)
	const pairs = 400 // within the usual limit of 1024 descriptors
	listener, port := listen(b, &unix.SockaddrInet4{}, 128)
	connections(b, pairs, listener, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	c := open(b)
	for _, wantInfo := range []bool{false, true} {
		b.Run(fmt.Sprintf("info=%t", wantInfo), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			start := cpuTime(b)
			for b.Loop() {
				check(b, c.Dump(unix.AF_INET, StatesOf(Established), wantInfo, func(*Socket) error { n++; return nil }))
			}
			if n != b.N*2*pairs {
				b.Fatalf("%d sockets, want %d", n, b.N*2*pairs)
			}
			b.ReportMetric(float64((cpuTime(b)-start).Nanoseconds())/float64(n), "cpu-ns/socket")
		})
	}
}
