package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

// childEnv holds a child's options as JSON.
const childEnv = "PERFDOCTOR_LAB_CHILD"

// Mode is what a child process does.
type Mode string

// The modes of a child. Each is bounded by ChildOptions.Duration.
const (
	ModeServer    Mode = "server"    // Addr, Server
	ModeClient    Mode = "client"    // Addr, Client
	ModeCloseWait Mode = "closewait" // Addr, Client: a client that holds every connection, even if the peer closed it
	ModeSpin      Mode = "spin"      // Spin
	ModePool      Mode = "pool"      // Pool
	ModeOpenFDs   Mode = "openfds"   // FDs
	ModeUDPFlood  Mode = "udpflood"  // Addr, Flood
	ModeSleep     Mode = "sleep"     // nothing
	ModeLoad      Mode = "load"      // Load
	ModeAnswer    Mode = "answer"    // Answer
)

// ChildOptions say what a child process does. Only the part that belongs to the mode counts.
type ChildOptions struct {
	Mode     Mode
	Name     string        // shown as the process's comm, 15 bytes; "": pd-<mode>
	Addr     string        // ip:port to listen on or to send to
	Affinity []int         // as in Place; not in a container
	Duration time.Duration // 0: 10 s, or 10 min for a server and sleep; at most 10 min
	Server   ServeOptions
	Client   ClientOptions
	Spin     SpinOptions
	Pool     PoolOptions
	FDs      FDOptions
	Flood    FloodOptions
	// Load's Result is in the last Stats, and the parent writes its Live line. The plan's duration bounds the child,
	// not Duration.
	Load   *load.Plan
	Answer *load.ServerPlan
	Engine *engineOptions `json:",omitempty"` // set by Host.StartDocker alone
}

// limit returns the child's time limit. Client.Duration and Server.Duration are for loads within this process.
func (o ChildOptions) limit() time.Duration {
	fallback := defaultClientTime
	if o.Mode == ModeClient {
		fallback = o.Client.fallback()
	}
	if o.Mode == ModeServer || o.Mode == ModeSleep || o.Mode == ModeAnswer {
		fallback = defaultServerTime
	}
	if o.Mode == ModeLoad || o.Mode == modeEngine {
		return maxDuration
	}
	inner := o.Client.Duration
	if o.Mode == ModeServer {
		inner = o.Server.Duration
	}
	if o.Mode == ModeAnswer && o.Answer != nil {
		inner = o.Answer.Duration
	}
	if o.Duration == 0 {
		o.Duration = inner
	}
	return limited(o.Duration, fallback)
}

// Child is a load in a process of its own.
type Child struct {
	*Process

	loadPid int // the pid in a container; 0: Process.Pid

	stdin *os.File // closing it asks the child to end and report
	errs  *tail
	live  io.Writer // for a load.Plan, or nil

	mu    sync.Mutex
	stats Stats
	heard chan struct{} // closed when the last report has been read
	ready chan struct{} // closed at the first report
}

// StartClient starts a process in the host that connects to addr.
func (h *Host) StartClient(addr string, o ClientOptions) (*Child, error) {
	return h.StartChild(nil, ChildOptions{Mode: ModeClient, Addr: addr, Client: o})
}

// StartServer starts a process in the host that listens on addr. It is listening when the call returns.
func (h *Host) StartServer(addr string, o ServeOptions) (*Child, error) {
	return h.StartChild(nil, ChildOptions{Mode: ModeServer, Addr: addr, Server: o})
}

// StartChild starts this program again, in the host and the group (nil for none), to run one load. The program's main
// or TestMain must call [RunIfChild] first. StartChild returns when the load has begun.
func (h *Host) StartChild(group *Cgroup, o ChildOptions) (*Child, error) {
	cmd, err := childCommand(o)
	if err != nil {
		return nil, err
	}
	return h.startChild(group, cmd, o)
}

// childCommand returns the command that runs this program as a child.
func childCommand(o ChildOptions) (*exec.Cmd, error) {
	options, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("options of lab child: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe) //nolint:noctx // a child ends by its own time limit, by Stop, or with its parent
	cmd.Args = []string{"pd-lab", string(o.Mode), o.Addr}
	cmd.Env = append(os.Environ(), childEnv+"="+string(options))
	return cmd, nil
}

// startChild starts a command that runs a child with these options, here or in a container.
func (h *Host) startChild(group *Cgroup, cmd *exec.Cmd, o ChildOptions) (*Child, error) {
	c := &Child{errs: &tail{}, heard: make(chan struct{}), ready: make(chan struct{})}
	if o.Load != nil {
		c.live = o.Load.Live
	}
	cmd.Stderr = c.errs
	reports, err := c.start(h, Place{Group: group, Affinity: o.Affinity}, cmd)
	if err != nil {
		return nil, err
	}
	go c.listen(reports)
	return c, c.await(h, o)
}

// LoadPid returns the pid of the process that runs the load. In a container that is not the pid of Process, which
// waits for it.
func (c *Child) LoadPid() int {
	if c.loadPid != 0 {
		return c.loadPid
	}
	return c.Pid
}

func (c *Child) start(h *Host, place Place, cmd *exec.Cmd) (*os.File, error) {
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	reports, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), stdin.Close())
	}
	cmd.Stdin, cmd.Stdout = in, out
	c.stdin = stdin
	c.Process, err = h.StartIn(place, cmd)
	err = errors.Join(err, in.Close(), out.Close())
	if err != nil {
		return nil, errors.Join(err, stdin.Close(), reports.Close())
	}
	return reports, nil
}

// startWait is how long a child may take to begin on a busy machine, throttled by a small quota.
const startWait = 20 * time.Second

func (c *Child) await(h *Host, o ChildOptions) error {
	select {
	case <-c.ready:
		return nil
	case <-c.heard:
		return fmt.Errorf("host %s: lab child %s ended at once (does TestMain call lab.RunIfChild?): %w: %s",
			h.name, o.Mode, c.Process.Wait(), c.errs)
	case <-time.After(startWait):
		return fmt.Errorf("host %s: lab child %s has not begun after %v", h.name, o.Mode, startWait)
	}
}

// listen keeps the child's latest report.
func (c *Child) listen(reports *os.File) {
	defer close(c.heard)
	defer func() { _ = errors.Join(reports.Close(), c.stdin.Close()) }() // Stop may have closed stdin before
	decoder := json.NewDecoder(reports)
	for first := true; ; {
		var s Stats
		if err := decoder.Decode(&s); err != nil {
			return // the end of the pipe; Wait says how the process ended
		}
		c.mu.Lock()
		news := s.Live != "" && s.Live != c.stats.Live
		c.stats = s
		c.mu.Unlock()
		if news && c.live != nil {
			_, _ = io.WriteString(c.live, s.Live) // a reader that went away does not end the load
		}
		if first && s.Ready {
			first = false
			close(c.ready)
		}
	}
}

// Stats returns the child's latest report, at most about 100 ms old while the child gets CPU time.
func (c *Child) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Wait waits until the load ends by its own bounds, and returns its last report.
func (c *Child) Wait() (Stats, error) {
	err := c.Process.Wait()
	<-c.heard
	if err != nil {
		err = fmt.Errorf("lab child %d: %w: %s", c.Pid, err, c.errs)
	}
	return c.Stats(), err
}

// childGrace is longer than the second that a program built with -race sleeps at its exit (atexit_sleep_ms).
const childGrace = 5 * time.Second

// Stop asks the child to end, and returns its last report.
func (c *Child) Stop() (Stats, error) {
	_ = c.stdin.Close() // an error means that it was closed before
	select {
	case <-c.Done():
	case <-time.After(childGrace):
		if err := c.Process.Stop(); err != nil {
			return c.Stats(), err
		}
	}
	return c.Wait()
}

// tail keeps the first bytes of a child's stderr for error messages.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const tailBytes = 4096 // a panic's message and first frames

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p[:min(len(p), tailBytes-t.buf.Len())])
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// RunIfChild runs a load if [Host.StartChild] started this process, and otherwise does nothing. Call it first in main
// or TestMain, which must then exit with the code:
//
//	if code, child := lab.RunIfChild(); child {
//		os.Exit(code)
//	}
func RunIfChild() (code int, child bool) {
	options, ok := os.LookupEnv(childEnv)
	if !ok {
		return 0, false
	}
	if err := runChild(options); err != nil {
		fmt.Fprintln(os.Stderr, "lab child:", err)
		return 1, true
	}
	return 0, true
}

// reportEvery bounds the age of a report: ten writes a second do not disturb a measurement.
const reportEvery = 100 * time.Millisecond

func runChild(options string) error {
	var o ChildOptions
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return fmt.Errorf("%s: %w", childEnv, err)
	}
	if o.Name == "" {
		o.Name = "pd-" + string(o.Mode)
	}
	if err := os.WriteFile("/proc/self/comm", []byte(o.Name), 0); err != nil {
		return err
	}
	rec := newRecorder()
	run, err := childLoad(o, rec)
	if err != nil {
		return err
	}
	limit := o.limit()
	if o.Mode == ModeClient || o.Mode == ModeCloseWait {
		limit = maxDuration // the limit of its plan is shorter; it waits for requests under way
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	go exitOn(cancel)
	encoder := json.NewEncoder(os.Stdout)
	var reports sync.WaitGroup
	reports.Go(func() { report(ctx, encoder, rec) })
	run(ctx)
	cancel()
	reports.Wait()
	rec.finish()
	return encoder.Encode(rec.snapshot())
}

// exitOn ends the load when the parent closes its end of stdin, on purpose or by dying.
func exitOn(cancel context.CancelFunc) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
}

func report(ctx context.Context, encoder *json.Encoder, rec *recorder) {
	for {
		if err := encoder.Encode(rec.snapshot()); err != nil {
			return
		}
		if clock.Sleep(ctx, reportEvery) != nil {
			return
		}
	}
}

// childLoad makes the load of the mode. A server is listening when childLoad returns.
func childLoad(o ChildOptions, rec *recorder) (func(context.Context), error) {
	switch o.Mode {
	case ModeServer:
		plan := o.Server.plan(o.Addr, o.limit())
		return newAnswer(&plan, nil, rec)
	case ModeClient, ModeCloseWait:
		o.Client.HoldOpen = o.Client.HoldOpen || o.Mode == ModeCloseWait
		plan := o.Client.plan(o.Addr, o.limit())
		return newLoad(&plan, nil, rec)
	case ModeSpin:
		return newSpin(o.Spin, rec)
	case ModePool:
		return newPool(o.Pool, rec)
	case ModeOpenFDs:
		return newOpener(o.FDs, rec)
	case ModeUDPFlood:
		return newFlood(o.Addr, o.Flood, rec)
	case ModeLoad:
		return newLoad(o.Load, nil, rec)
	case ModeAnswer:
		return newAnswer(o.Answer, nil, rec)
	case modeEngine:
		return newEngine(o.Engine, rec)
	case ModeSleep:
		return func(ctx context.Context) {
			rec.ready("")
			<-ctx.Done()
		}, nil
	default:
		return nil, fmt.Errorf("no lab child mode %q", o.Mode)
	}
}

// setFDLimit sets both limits of RLIMIT_NOFILE.
func setFDLimit(n uint64) error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
		return fmt.Errorf("set RLIMIT_NOFILE to %d: %w", n, err)
	}
	return nil
}
