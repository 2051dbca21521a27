package load_test

import (
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

const benchTime = 2 * time.Second

// BenchmarkAgainstWrk prints the generator's CPU time per request beside wrk's. Each runs in a process of its own
// against the same server, one after the other: ratios hold on any machine, microseconds on one.
func BenchmarkAgainstWrk(b *testing.B) {
	testenv.Need(b, testenv.Root, testenv.Tool("wrk"))
	for name, perConn := range map[string]int{"keep": 0, "short": 1} {
		b.Run(name, func(b *testing.B) {
			l := labtest.New(b)
			host, err := l.Host("both")
			must(b, err)
			answering, err := host.StartChild(nil, lab.ChildOptions{
				Mode: lab.ModeAnswer, Answer: &load.ServerPlan{Listen: "127.0.0.1:9000", RequestsPerConn: perConn},
			})
			must(b, err)
			for b.Loop() {
				wrk := runWrk(b, host)
				// The server closes first in both, so that neither runs out of ports.
				child, err := host.StartChild(nil, lab.ChildOptions{Mode: lab.ModeLoad, Load: &load.Plan{
					Target: "127.0.0.1:9000", Connections: 8, Duration: benchTime, RequestsPerConn: perConn,
					Close: load.ServerCloses,
				}})
				must(b, err)
				stats, err := child.Wait()
				must(b, err)
				own := float64(stats.Load.CPUPerRequest()) / 1e3
				b.ReportMetric(own, "own-µs/req")
				b.ReportMetric(stats.Load.TPS(), "own-req/s")
				b.ReportMetric(wrk, "wrk-µs/req")
				b.ReportMetric(own/wrk, "own/wrk")
				b.Log(stats.Load.Latency, "errors", stats.Load.Errors)
			}
			_, err = answering.Stop()
			must(b, err)
		})
	}
}

var wrkCount = regexp.MustCompile(`(\d+) requests in`)

// runWrk returns wrk's CPU microseconds per request.
func runWrk(b *testing.B, host *lab.Host) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var out []byte
	var usage *syscall.Rusage
	must(b, host.Do(func() error {
		cmd := exec.CommandContext(ctx, "wrk", "-t1", "-c8", "-d"+benchTime.String(), "http://127.0.0.1:9000/")
		var err error
		out, err = cmd.CombinedOutput()
		usage, _ = cmd.ProcessState.SysUsage().(*syscall.Rusage)
		return err
	}))
	match := wrkCount.FindSubmatch(out)
	if match == nil || usage == nil {
		b.Fatalf("wrk printed %s", out)
	}
	requests, err := strconv.ParseFloat(string(match[1]), 64)
	must(b, err)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e3 / requests
}
