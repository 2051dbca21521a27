package postgres

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect/collecttest"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// servers are the servers of this machine: Debian's, and any that come before them in the PATH.
func servers(t *testing.T) (dirs []string) {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.Tool("psql"), testenv.Tool("pg_ctlcluster"), testenv.Tool("unshare"))
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), debian...) {
		program, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb"))
		if dir = filepath.Dir(program); err == nil && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// eachServer runs a test with a server of each kind.
func eachServer(t *testing.T, test func(*testing.T, db)) {
	t.Helper()
	for _, bin := range servers(t) {
		t.Run(filepath.Base(filepath.Dir(bin)), func(t *testing.T) { test(t, startServer(t, bin)) })
	}
}

// A db is a server under test.
type db struct{ pid, port int }

// startServer starts a server in a user namespace, because it refuses to be root.
func startServer(t *testing.T, bin string) db {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	const script = `PATH=$1:$PATH
initdb --pgdata="$2" --auth=trust --username=bench --no-sync --locale=C >"$2.log" 2>&1 || { cat "$2.log" >&2; exit 1; }
postgres -D "$2" -k "" -h 127.0.0.1 -p "$3" -c fsync=off >>"$2.log" 2>&1 & pid=$!
echo $pid
cat
kill -INT $pid
wait $pid`
	cmd := exec.Command("unshare", "--user", "--map-user=1000", "--map-group=1000", "sh", "-c", script, "sh", bin,
		filepath.Join(t.TempDir(), "data"), strconv.Itoa(port))
	child := testenv.StartChild(t, cmd)
	out := db{port: port}
	if _, err := fmt.Fscan(child.Out, &out.pid); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
			return out
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return out
}

// A client is a session of psql.
type client struct {
	in  io.Writer
	out *bufio.Reader
	pid string // of its server process
	own int    // its process
}

func (d db) connect(t *testing.T) *client {
	t.Helper()
	cmd := exec.Command("psql", "-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-p", strconv.Itoa(d.port), "-U", "bench",
		"postgres")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may wait for a lock
		_ = cmd.Wait()
	})
	c := &client{in: in, out: bufio.NewReader(out), own: cmd.Process.Pid}
	c.pid = c.ask(t, "SELECT pg_backend_pid();")
	return c
}

// say sends statements, and does not wait.
func (c *client) say(t *testing.T, statements string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, statements); err != nil {
		t.Fatal(err)
	}
}

// ask sends statements and returns the one line that the last one gives.
func (c *client) ask(t *testing.T, statements string) string {
	t.Helper()
	c.say(t, statements)
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	return strings.TrimSpace(line)
}

// TestLocks: sessions of a real server wait for locks of each kind. Each waits for a session that is idle in a
// transaction, some behind others.
func TestLocks(t *testing.T) { eachServer(t, testLocks) }

func testLocks(t *testing.T, server db) {
	holder, other := server.connect(t), server.connect(t)
	holder.ask(t, `CREATE TABLE seats (id int PRIMARY KEY, guest text);
		INSERT INTO seats VALUES (1, ''), (2, ''); BEGIN; SELECT pg_advisory_xact_lock(4711);`)
	holder.ask(t, "UPDATE seats SET guest = 'secret' WHERE id = 1 RETURNING 'done'; -- a comment")
	const heldBy = "UPDATE seats SET guest = ? WHERE id = ? RETURNING ?;"
	want := map[string]string{}
	for _, x := range []struct{ kind, statement, fingerprint string }{
		{"row", "UPDATE seats SET guest = 'first' WHERE id = 1;", "UPDATE seats SET guest = ? WHERE id = ?"},
		{"row", "DELETE FROM seats WHERE id=1;", "DELETE FROM seats WHERE id=?"},
		{
			"row", "INSERT INTO seats VALUES (3, 'a'); SELECT * FROM seats WHERE id = 1 FOR UPDATE;",
			"SELECT * FROM seats WHERE id = ? FOR UPDATE",
		},
		{"table", "ALTER TABLE seats ADD COLUMN price int;", "ALTER TABLE seats ADD COLUMN price int"},
		{"table", "SELECT count(*) FROM seats;", "SELECT count(*) FROM seats"},
		{"advisory", "SELECT pg_advisory_lock(4711);", "SELECT pg_advisory_lock(?)"},
	} {
		c := server.connect(t)
		c.say(t, x.statement)
		waitUntil(t, other, c.pid)
		want[c.pid] = strings.Join([]string{holder.pid, x.kind, "idle in transaction", x.fingerprint}, " | ")
	}
	const window = time.Second
	rec := collecttest.Once(t, open, server.pid, window)

	got := map[string]string{}
	for _, s := range rec.Gauge(metric.DatabaseLockTime) {
		got[s.Label("pid")] = strings.Join([]string{
			s.Label("holder_pid"), s.Label("lock"), s.Label("state"), s.Label("statement"),
		}, " | ")
		if by := s.Label("holder_statement"); by+";" != heldBy {
			t.Errorf("the holder's statement is %q", by)
		}
		if x := s.Last(); x < 0.5*window.Seconds() || x > 1.5*window.Seconds() {
			t.Errorf("%v waits for %v s", s.Labels, x)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	ages := rec.Gauge(metric.DatabaseTransactionAge)
	if len(ages) != 1 || ages[0].Label("pid") != holder.pid || ages[0].Last() < window.Seconds()/2 ||
		ages[0].Last() > 60 {
		t.Errorf("ages of transactions: %v", ages)
	}
	if run := rec.Gauge(metric.DatabaseStatementTime); len(run) > 0 {
		t.Errorf("%v runs, and all wait", run[0].Labels)
	}
	checkStates(t, rec, window)
}

// TestEvents: a session sleeps, and another one has no work.
func TestEvents(t *testing.T) { eachServer(t, testEvents) }

func testEvents(t *testing.T, server db) {
	other, sleeper := server.connect(t), server.connect(t)
	sleeper.say(t, "SELECT pg_sleep(60);")
	for range 100 {
		if other.ask(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep';") == "1" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	const window = time.Second
	rec := collecttest.Once(t, open, server.pid, window)
	got := map[string]string{}
	for _, s := range rec.Gauge(metric.DatabaseWaitTime) {
		got[s.Label("type")] = s.Label("statement")
		if x := s.Last(); x < 0.5*window.Seconds() || x > 1.5*window.Seconds() {
			t.Errorf("%v for %v s", s.Labels, x)
		}
	}
	if diff := cmp.Diff(map[string]string{"Timeout": "SELECT pg_sleep(?)"}, got); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	n := rec.Gauge(metric.DatabaseStatementAge)
	if len(n) != 1 || n[0].Last() < window.Seconds()/4 || n[0].Last() > 60 {
		t.Errorf("ages of statements: %v", n)
	}
}

// TestPeers diagnoses a client of a server. The session that serves it waits, and so does another client's.
func TestPeers(t *testing.T) { eachServer(t, testPeers) }

func testPeers(t *testing.T, server db) {
	holder, other, target, stranger := server.connect(t), server.connect(t), server.connect(t), server.connect(t)
	holder.ask(t, `CREATE TABLE seats (id int PRIMARY KEY, guest text);
		INSERT INTO seats VALUES (1, ''); BEGIN; UPDATE seats SET guest = 'a' WHERE id = 1 RETURNING 'done';`)
	for _, c := range []*client{target, stranger} {
		c.say(t, "DELETE FROM seats WHERE id = 1;")
		waitUntil(t, other, c.pid)
	}
	rec := collecttest.Once(t, open, target.own, 500*time.Millisecond)
	waits := rec.Gauge(metric.DatabaseLockTime)
	if len(waits) != 1 || waits[0].Label("pid") != target.pid || waits[0].Label("holder_pid") != holder.pid {
		t.Errorf("waits %v, want those of %s for %s", waits, target.pid, holder.pid)
	}
	clients := rec.Info(metric.DatabaseSessionClient)
	port := ":" + strconv.Itoa(server.port)
	if len(clients) != 1 || clients[0].Label("pid") != target.pid ||
		!strings.HasSuffix(clients[0].Label("destination"), port) {
		t.Errorf("clients %v, want that of %s", clients, target.pid)
	}
	if rec.Recorded(metric.DatabaseScanTime) {
		t.Error("scans of a server that is not the target are said to be known")
	}
	// The server's own recording has the same connection.
	own := map[string]string{}
	for _, c := range collecttest.Once(t, open, server.pid, 500*time.Millisecond).Info(metric.DatabaseSessionClient) {
		own[c.Label("pid")] = c.Label("source")
	}
	if len(own) != 2 || own[target.pid] == "" || len(clients) == 1 && own[target.pid] != clients[0].Label("source") {
		t.Errorf("the server's clients %v, want %s and %s", own, target.pid, stranger.pid)
	}
}

// checkStates: six sessions wait, one is idle, one is idle in a transaction.
func checkStates(t *testing.T, rec *recording.Recording, window time.Duration) {
	t.Helper()
	for _, s := range rec.Gauge(metric.DatabaseSessionTime) {
		want := map[string]float64{waiting: 6, idle: 1, inXact: 1}[s.Label("state")] * window.Seconds()
		if got := s.Last(); got < 0.5*want || got > 1.5*want || want == 0 {
			t.Errorf("%q for %v s of sessions, want %v", s.Label("state"), got, want)
		}
	}
	if n := len(rec.Gauge(metric.DatabaseSessionTime)); n != 3 {
		t.Errorf("%d states", n)
	}
}

// waitUntil returns when the session waits for a lock, according to the server itself.
func waitUntil(t *testing.T, by *client, pid string) {
	t.Helper()
	for range 100 {
		if by.ask(t, "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = "+pid+";") != "0" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("session %s does not wait", pid)
}

// TestNone: a program that is not a database is reported as such.
func TestNone(t *testing.T) {
	rec := collecttest.Once(t, open, os.Getpid(), 10*time.Millisecond)
	if !rec.Recorded(metric.DatabaseServer) || len(rec.Info(metric.DatabaseServer)) > 0 {
		t.Errorf("servers %v", rec.Info(metric.DatabaseServer))
	}
}
