package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

const (
	// maxPhase bounds every load of a phase in case nothing else ends it.
	maxPhase = 5 * time.Minute
	// defaultAwait is longer than it takes to use all ports of the default range on the search cliff (half a minute).
	defaultAwait = time.Minute
	awaitPoll    = 20 * time.Millisecond
	// defaultQuotaPeriod is the kernel's (kernel/sched/sched.h, default_cfs_period).
	defaultQuotaPeriod = 100 * time.Millisecond
)

// built is a site in a lab.
type built struct {
	lab       *lab.Lab
	dir       string // the run's directory; each external program has one below it
	workloads string // from Options
	site      *Site
	hosts     map[string]*lab.Host
	devices   map[string]string // by link or bridge and host
	groups    map[string]*lab.Cgroup
	engines   map[string]*lab.Engine // by host
	processes map[string]*process
}

// process is a running Process of a site.
type process struct {
	*Process
	host  *lab.Host
	child *lab.Child   // for the lab's own modes
	other *lab.Process // for Run
	dir   string
}

func (p *process) pid() int {
	if p.child != nil {
		return p.child.LoadPid()
	}
	return p.other.Pid
}

func (p *process) done() <-chan struct{} {
	if p.child != nil {
		return p.child.Done()
	}
	return p.other.Done()
}

// build makes everything in the site within l and starts its processes, in order.
func build(ctx context.Context, l *lab.Lab, dir, workloads string, s *Site) (*built, error) {
	b := &built{
		lab: l, dir: dir, workloads: workloads, site: s,
		hosts: map[string]*lab.Host{}, devices: map[string]string{}, groups: map[string]*lab.Cgroup{},
		engines: map[string]*lab.Engine{}, processes: map[string]*process{},
	}
	for _, step := range []func() error{
		b.setMachine, b.makeHosts, b.join, b.configureHosts, b.makeGroups,
		b.startEngines,
	} {
		if err := errors.Join(step(), ctx.Err()); err != nil {
			return nil, err
		}
	}
	for i := range s.Processes {
		if err := b.start(ctx, &s.Processes[i]); err != nil {
			return nil, fmt.Errorf("process %s: %w", s.Processes[i].Name, err)
		}
	}
	return b, nil
}

func (b *built) setMachine() error {
	for key, value := range b.site.Sysctls {
		if err := b.lab.MachineSysctl(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (b *built) makeHosts() error {
	for i := range b.site.Hosts {
		h, err := b.lab.Host(b.site.Hosts[i].Name)
		if err != nil {
			return err
		}
		b.hosts[b.site.Hosts[i].Name] = h
	}
	return nil
}

// deviceOf returns the key of a link's or bridge's device in a host.
func deviceOf(link, host string) string { return link + " " + host }

func (b *built) join() error {
	for _, link := range b.site.Links {
		one, two := link.Ends[0], link.Ends[1]
		oneDev, twoDev, err := b.link(&link)
		if err != nil {
			return fmt.Errorf("link %s: %w", link.Name, err)
		}
		b.devices[deviceOf(link.Name, one.Host)], b.devices[deviceOf(link.Name, two.Host)] = oneDev, twoDev
		for host, mask := range link.RPS {
			if err := b.hosts[host].RPS(b.devices[deviceOf(link.Name, host)], mask); err != nil {
				return fmt.Errorf("link %s: %w", link.Name, err)
			}
		}
	}
	for i := range b.site.Bridges {
		if err := b.bridge(&b.site.Bridges[i]); err != nil {
			return fmt.Errorf("bridge %s: %w", b.site.Bridges[i].Name, err)
		}
	}
	return nil
}

func (b *built) link(l *Link) (oneDev, twoDev string, err error) {
	one, two := l.Ends[0], l.Ends[1]
	if l.Delay > 0 {
		return b.lab.DelayLine(b.hosts[one.Host], b.hosts[two.Host], one.Address, two.Address, l.Delay)
	}
	return b.lab.Link(b.hosts[one.Host], b.hosts[two.Host], one.Address, two.Address)
}

func (b *built) bridge(br *Bridge) error {
	var ports []lab.Port
	for _, p := range br.Ports {
		ports = append(ports, lab.Port{Host: b.hosts[p.Host], CIDR: p.Address})
	}
	b.devices[deviceOf(br.Name, br.Host)] = br.Name
	return b.lab.NamedBridge(b.hosts[br.Host], br.Name, br.Address, ports...)
}

func (b *built) configureHosts() error {
	for i := range b.site.Hosts {
		if err := b.configure(&b.site.Hosts[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *built) configure(s *Host) error {
	h := b.hosts[s.Name]
	for key, value := range s.Sysctls {
		if err := h.Sysctl(key, value); err != nil {
			return err
		}
	}
	if s.Forward {
		if err := h.Forward(); err != nil {
			return err
		}
	}
	for dst, via := range s.Routes {
		if err := h.Route(dst, via); err != nil {
			return err
		}
	}
	return b.filter(h, s)
}

func (b *built) filter(h *lab.Host, s *Host) error {
	if s.Masquerade != "" {
		dev := b.devices[deviceOf(s.Masquerade, s.Name)]
		if dev == "" {
			return fmt.Errorf("host %s: masquerade: %s is not a link of this host", s.Name, s.Masquerade)
		}
		if err := h.Masquerade(dev); err != nil {
			return err
		}
	}
	if s.Rules > 0 {
		if err := h.LinearRules(s.Rules); err != nil {
			return err
		}
	}
	if s.DropSYN != nil {
		return h.DropOneSYNIn(max(s.DropSYN.OneIn, 1), s.DropSYN.Port)
	}
	return nil
}

func (b *built) makeGroups() error {
	for _, s := range b.site.Cgroups {
		g, err := b.lab.Cgroup(strings.Split(s.Name, "/")...)
		if err != nil {
			return err
		}
		b.groups[s.Name] = g
		if s.Quota > 0 {
			if err := g.SetQuota(cmp.Or(s.Period, defaultQuotaPeriod), s.Quota); err != nil {
				return fmt.Errorf("cgroup %s: %w", s.Name, err)
			}
		}
		if s.Memory > 0 {
			if err := g.SetMemoryLimit(int64(s.Memory)); err != nil {
				return fmt.Errorf("cgroup %s: %w", s.Name, err)
			}
		}
	}
	return nil
}

// startEngines starts each engine in a directory whose name no process can have.
func (b *built) startEngines() error {
	for i := range b.site.Hosts {
		s := &b.site.Hosts[i]
		if s.Engine == "" {
			continue
		}
		e, err := b.hosts[s.Name].StartDocker(filepath.Join(b.dir, "docker."+s.Name))
		if err != nil {
			return err
		}
		b.engines[s.Name] = e
	}
	return nil
}

func (b *built) start(ctx context.Context, s *Process) error {
	p := &process{Process: s, host: b.hosts[s.Host], dir: filepath.Join(b.dir, s.Name)}
	var err error
	if s.Java != nil {
		if p.Process, err = b.site.onJVM(s, b.workloads); err != nil {
			return err
		}
	}
	switch {
	case p.Run != nil:
		p.other, err = b.run(p)
	case s.Container != nil:
		p.child, err = b.engines[s.Host].StartChild(containerOf(s), childOptions(s))
	default:
		p.child, err = p.host.StartChild(b.groups[s.Cgroup], childOptions(s))
	}
	if err != nil {
		return err
	}
	b.processes[s.Name] = p
	return p.await(ctx)
}

func containerOf(s *Process) lab.Container {
	c := s.Container
	return lab.Container{
		Name: s.Name, CPUs: c.CPUs, Memory: int64(c.Memory), HostNetwork: c.Network == NetworkHost, Publish: c.Publish,
	}
}

func childOptions(s *Process) lab.ChildOptions {
	limit := s.For
	if limit == 0 {
		limit = maxPhase
	}
	o := lab.ChildOptions{Duration: limit, Affinity: s.Affinity}
	switch {
	case s.Serve != nil:
		o.Mode, o.Addr = lab.ModeServer, s.Serve.Listen
		o.Server = lab.ServeOptions{
			Backlog: s.Serve.Backlog, AcceptRate: s.Serve.AcceptRate, NeverAccept: s.Serve.NeverAccept,
			CloseFirst: s.Serve.CloseFirst, Requests: s.Serve.Requests, Delay: s.Serve.Delay,
		}
	case s.Connect != nil:
		o.Mode, o.Addr, o.Client = lab.ModeClient, s.Connect.To, clientOptions(s.Connect)
	case s.Answer != nil:
		o.Mode, o.Answer = lab.ModeAnswer, s.Answer
	case s.Load != nil:
		plan := s.loadPlan()
		o.Mode, o.Load = lab.ModeLoad, &plan
	case s.Spin != nil:
		o.Mode, o.Spin = lab.ModeSpin, lab.SpinOptions{
			Threads: s.Spin.Threads, Burst: s.Spin.Burst,
			Every: s.Spin.Every,
		}
	case s.Pool != nil:
		o.Mode = lab.ModePool
		o.Pool = lab.PoolOptions{Threads: s.Pool.Threads, To: s.Pool.To, Hold: s.Pool.Hold, Every: s.Pool.Every}
	case s.OpenFiles != nil:
		o.Mode = lab.ModeOpenFDs
		o.FDs = lab.FDOptions{Count: s.OpenFiles.Count, PerSecond: s.OpenFiles.PerSecond, Limit: s.OpenFiles.Limit}
	case s.Flood != nil:
		o.Mode, o.Addr = lab.ModeUDPFlood, s.Flood.To
		o.Flood = lab.FloodOptions{PPS: s.Flood.PPS, Sockets: s.Flood.Sockets, Size: s.Flood.Size}
	default:
		o.Mode = lab.ModeSleep
	}
	return o
}

// loadPlan returns the process's load. A load without its own end stops with the phase.
func (p *Process) loadPlan() load.Plan {
	plan := *p.Load
	if plan.Duration == 0 && plan.Count == 0 && len(plan.Steps) == 0 {
		plan.Duration = maxPhase
		if p.For > 0 {
			plan.Duration = p.For
		}
	}
	return plan
}

func clientOptions(c *Connect) lab.ClientOptions {
	return lab.ClientOptions{
		Count: c.Count, Concurrency: c.Concurrency, Rate: c.Rate, Timeout: c.Timeout, Requests: c.Requests,
		KeepAlive:  c.KeepAlive,
		CloseFirst: c.CloseFirst, HoldOpen: c.HoldOpen, BindIP: c.BindIP, BindNoPort: c.BindNoPort,
	}
}

// The names of the files that a program writes in its directory.
const (
	stdoutName = "stdout.log"
	stderrName = "stderr.log"
)

// run starts an external program in its own directory. That is also its working directory: [Clean] uses it to find
// what a killed run left.
func (b *built) run(p *process) (*lab.Process, error) {
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return nil, err
	}
	inDir := strings.NewReplacer("${dir}", p.dir)
	for _, f := range p.Run.Files {
		if err := os.WriteFile(filepath.Join(p.dir, f.Name), []byte(inDir.Replace(f.Text)), 0o600); err != nil {
			return nil, err
		}
	}
	args := slices.Clone(p.Run.Command)
	for i := range args {
		args[i] = inDir.Replace(args[i])
	}
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // the lab ends it, with time to clean up
	cmd.Dir = p.dir
	if len(p.Run.Env) > 0 {
		cmd.Env = os.Environ()
	}
	for _, name := range slices.Sorted(maps.Keys(p.Run.Env)) {
		cmd.Env = append(cmd.Env, name+"="+inDir.Replace(p.Run.Env[name]))
	}
	out, err := os.Create(filepath.Join(p.dir, stdoutName))
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the program has its own descriptor
	errs, err := os.Create(filepath.Join(p.dir, stderrName))
	if err != nil {
		return nil, err
	}
	defer func() { _ = errs.Close() }()
	cmd.Stdout, cmd.Stderr = out, errs
	if p.Run.User != "" {
		if err := b.runAs(p.Run.User, p.dir, cmd); err != nil {
			return nil, err
		}
	}
	return p.host.StartIn(lab.Place{Group: b.groups[p.Cgroup], Affinity: p.Affinity}, cmd)
}

// runAs makes cmd run as another user. That user gets dir and everything in it, and may pass through the run's
// directory.
func (b *built) runAs(name, dir string, cmd *exec.Cmd) error {
	account, err := user.Lookup(name)
	if err != nil {
		return err
	}
	var ids []uint32
	groups, err := account.GroupIds()
	if err != nil {
		return fmt.Errorf("groups of user %s: %w", name, err)
	}
	for _, id := range append([]string{account.Uid, account.Gid}, groups...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return fmt.Errorf("user %s: %w", name, err)
		}
		ids = append(ids, uint32(n))
	}
	if err := os.Chmod(b.dir, 0o711); err != nil { //nolint:gosec // passed, not listed; each directory below has an owner
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ids[0], Gid: ids[1], Groups: ids[2:]}}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(ids[0]), int(ids[1])))
	})
}

// await waits until the process has reached the state that the next one needs.
func (p *process) await(ctx context.Context) error {
	want := p.Await
	if want == (Await{}) {
		return nil
	}
	within := want.Within
	if within == 0 {
		within = defaultAwait
	}
	for deadline := time.Now().Add(within); ; {
		reached, err := p.reached()
		if reached || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not reached within %v: %s", within, p.progress())
		}
		if p.ended() && !want.End {
			return fmt.Errorf("ended before it had reached what await wants: %s%s", p.progress(), p.lastWords())
		}
		if err := clock.Sleep(ctx, awaitPoll); err != nil {
			return err
		}
	}
}

func (p *process) reached() (bool, error) {
	if p.Await.End && !p.ended() {
		return false, nil
	}
	if p.Await.Listen > 0 {
		return listens(p.host, p.Await.Listen)
	}
	if p.child == nil {
		return true, nil
	}
	s := p.child.Stats()
	return s.Conns >= p.Await.Connections && s.Units >= p.Await.Units && s.ErrorCount() >= p.Await.Errors, nil
}

func (p *process) progress() string {
	if p.child == nil {
		return fmt.Sprintf("pid %d", p.pid())
	}
	s := p.child.Stats()
	return fmt.Sprintf("%d connections, %d units, errors %v", s.Conns, s.Units, s.Errors)
}

func (p *process) ended() bool {
	select {
	case <-p.done():
		return true
	default:
		return false
	}
}

// lastWords returns the end of an external program's standard error, for messages.
func (p *process) lastWords() string {
	if p.other == nil {
		return ""
	}
	const enough = 300
	text, err := os.ReadFile(filepath.Join(p.dir, stderrName))
	if err != nil || len(text) == 0 {
		return ""
	}
	return ": " + strings.TrimSpace(string(text[max(0, len(text)-enough):]))
}

// listens reports whether a TCP socket in the host listens on the port: state 0A in /proc/net/tcp (proc_pid_net(5),
// include/net/tcp_states.h).
func listens(h *lab.Host, port uint16) (bool, error) {
	pattern := fmt.Sprintf(":%04X ", port)
	var found bool
	err := h.Do(func() error {
		for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			table, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) {
				continue // a kernel without IPv6
			}
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(table)) {
				field := strings.Fields(line)
				found = found || len(field) > 3 && strings.HasSuffix(field[1]+" ", pattern) && field[3] == "0A"
			}
		}
		return nil
	})
	return found, err
}
