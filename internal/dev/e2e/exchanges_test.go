package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// startPostgres is the command that runs PostgreSQL in a directory. PostgreSQL refuses to be root, and in a user
// namespace of its own it is not.
const startPostgres = `set -e
for bin in /usr/lib/postgresql/*/bin; do PATH="$bin:$PATH"; done
initdb --pgdata="$1/data" --auth=trust --username=bench --no-sync --locale=C >/dev/null
echo "host all all 10.91.0.0/24 trust" >> "$1/data/pg_hba.conf"
exec postgres -D "$1/data" -k "$1" -h 0.0.0.0 -p 5433 -c fsync=off
`

// TestTransactions: pgbench writes down each transaction. Perfdoctor counts the exchanges and takes their times, at the
// server and at pgbench. The counts agree within 2 %, and the client's medians within 10 %. A statement with the
// extended protocol sends Parse, Bind, Execute and Sync together, so they are one exchange.
func TestTransactions(t *testing.T) {
	testenv.Need(t, testenv.Tool("pgbench"), testenv.Tool("unshare"))
	perfdoctor(t) // it is built before the load begins
	client, server := pair(t)
	dir := t.TempDir()
	postgres := start(t, server, "unshare", "--user", "--map-user=1000", "--map-group=1000", "sh", "-c", startPostgres,
		"sh", dir)
	awaitPort(t, server, 5433)
	bench := func(address string, args ...string) *exec.Cmd {
		// Nice, so that the test does not wait for perfdoctor's start and end.
		args = append([]string{"pgbench"}, append(args, "-h", address, "-p", "5433", "-U", "bench", "postgres")...)
		cmd := exec.Command("nice", args...)
		cmd.Dir = t.TempDir()
		return cmd
	}
	fill, err := server.Start(bench("127.0.0.1", "-i", "-q", "-s", "2"))
	must(t, err)
	must(t, fill.Wait())
	for _, c := range []struct {
		name, protocol, script string
		veth                   bool
		statements             float64 // of a transaction
	}{
		{"loopback", "simple", "select-only", false, 1},
		{"veth, extended", "extended", "select-only", true, 1},
		{"veth, prepared", "prepared", "simple-update", true, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			host, address := client, "10.91.0.2"
			if !c.veth {
				host, address = server, "127.0.0.1"
			}
			cmd := bench(address, "-n", "-c", "4", "-j", "1", "-T", "300", "-l", "-M", c.protocol, "-b", c.script)
			load, err := host.Start(cmd)
			must(t, err)
			time.Sleep(time.Second)
			reports := exchangesSeen(t, load.Pid, postgres.Pid)
			must(t, load.Stop())
			log := transactions(t, cmd.Dir)
			for i, side := range []string{"client", "server"} {
				r := reports[i]
				took := log.between(r.from, r.to)
				got, want := r.exchanges(side), float64(len(took))*c.statements
				if len(took) == 0 {
					t.Fatalf("%s: pgbench wrote of no transaction between %s and %s", side, r.from, r.to)
				}
				t.Logf("%s: %.0f exchanges, p50 %.0f µs, p99 %.0f µs; pgbench: %.0f, p50 %d µs, p99 %d µs",
					side, got.Exchanges, got.P50*1e6, got.P99*1e6, want, took[len(took)/2], took[len(took)*99/100])
				if math.Abs(got.Exchanges-want) > 0.02*want || want < 1000 {
					t.Errorf("%s: %.0f exchanges, and pgbench had %.0f", side, got.Exchanges, want)
				}
				median := float64(took[len(took)/2]) * 1e-6
				if c.statements == 1 && (side == "client" && got.P50 < 0.9*median || got.P50 > 1.1*median) {
					t.Errorf("%s: median %v s, and pgbench's is %v s", side, got.P50, median)
				}
			}
		})
	}
}

// measured is what a report says of exchanges, and when they were counted.
type measured struct {
	measuredJSON
	from, to time.Time
}

// exchangesSeen diagnoses processes in parallel.
func exchangesSeen(t *testing.T, pids ...int) []measured {
	t.Helper()
	list, dir := make([]measured, len(pids)), t.TempDir()
	outs := make([][]byte, len(pids))
	saved := func(i int) string { return filepath.Join(dir, fmt.Sprintf("%d.zip", i)) }
	var all sync.WaitGroup
	for i, pid := range pids {
		all.Go(func() {
			outs[i], _ = output(t, "diagnose", "--pid", strconv.Itoa(pid), "--duration", "6s", "--save", saved(i),
				"-o", "json")
		})
	}
	all.Wait()
	for i := range list {
		m := &list[i]
		must(t, json.Unmarshal(outs[i], &m.measuredJSON))
		first, last := counted(t, saved(i), "arrive", "tcp_exchange_durations_total")
		m.from, m.to = m.Window.Started.Add(first), m.Window.Started.Add(last)
	}
	return list
}

// A transaction ended at a moment, after so many microseconds.
type transaction struct {
	at   time.Time
	took int
}

type transactionLog []transaction

// transactions reads what pgbench -l wrote in its directory: the client, a number, the microseconds, the script, and
// the end in seconds and microseconds.
func transactions(t *testing.T, dir string) (log transactionLog) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "pgbench_log.*"))
	must(t, err)
	for _, name := range names {
		f, err := os.Open(name)
		must(t, err)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 6 {
				continue // it was stopped while it wrote
			}
			var n [6]int
			for i := range n {
				n[i], err = strconv.Atoi(fields[i])
				must(t, err)
			}
			log = append(log, transaction{time.Unix(int64(n[4]), int64(n[5])*1000), n[2]})
		}
		must(t, f.Close())
	}
	return log
}

// between returns the microseconds of the transactions that ended between two moments, the shortest first.
func (l transactionLog) between(from, to time.Time) (took []int) {
	for _, x := range l {
		if x.at.After(from) && !x.at.After(to) {
			took = append(took, x.took)
		}
	}
	slices.Sort(took)
	return took
}
