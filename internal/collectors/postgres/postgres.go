// Package postgres samples what the sessions of a PostgreSQL server do, and which of them keeps the others from a lock.
//
// It reads the server's shared memory with process_vm_readv(2): it does not log in, so it needs no password, takes no
// connection and trusts no server; nothing is attached, stopped or written. The owner of the server controls what is
// read, so all of it is read within bounds. Only the fingerprints of statements are kept.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/memory"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// pace: a pass takes 80 µs per process (78 passes of 9 and 43 of 20 in windows of 6 s, on a CPU of 2.5 GHz); waits
// that are worth reporting are longer than a twentieth of a second.
var pace = collect.Passes{Share: 0.01, Least: 50 * time.Millisecond, Longest: 2 * time.Second}

const (
	// maxSessions bounds the processes that a pass looks at, and maxServers the servers.
	maxSessions, maxServers = 1000, 16
	// maxSeries bounds the series of waits, except for some that sum up the rest: see bounded. maxWaits bounds the
	// waits that are kept meanwhile, some 500 bytes each, for a server that has a new statement at each pass.
	maxSeries, maxWaits = 200, 20_000
	// maxOpening bounds the CPU time for the files of processes that may be a server's: each takes some milliseconds,
	// a file crafted for it half a second.
	maxOpening = time.Second
)

// Collectors lists this package's collector.
func Collectors() []collect.Collector {
	return []collect.Collector{{
		Name: "postgres",
		Doc: "Sessions of the target's PostgreSQL servers (14 to 18): their states, and which of them keeps others " +
			"from a lock, with both statements' fingerprints; how long each statement runs, in which function, and " +
			"what it waits for in the server; the tables that statements read from end to end. Of a target that is " +
			"no server but a client of one on this host, over TCP, the locks that its own sessions wait for. It " +
			"reads their memory and does not log in.",
		Overhead: "80 µs a process of the server and pass, so many that it takes 1 % of a CPU: 13 a second of 9, one " +
			"in 2 s of 250 and more; once the symbols of each server's file",
		Provides: []metric.Metric{
			metric.DatabaseServer, metric.DatabaseSessionTime, metric.DatabaseLockTime, metric.DatabaseFrontTime,
			metric.DatabaseTransactionAge, metric.DatabasePasses, metric.DatabaseSessionClient, metric.DatabaseScanTime,
			metric.DatabaseScanPages, metric.DatabaseScanKept, metric.DatabaseStatementTime, metric.DatabaseWaitTime,
			metric.DatabaseStatementAge, metric.DatabaseFunctionTime,
		},
		Pace: collect.AtEnd,
		Open: open,
	}}
}

// processKey identifies a process for good: after it has ended, another process may get its pid.
type processKey struct {
	pid   int
	start uint64
}

// waitKey holds the labels of a series of waits.
type waitKey struct {
	pid, holder                         string
	kind, state, statement, byStatement string
}

func (k waitKey) labels() []string {
	return []string{k.pid, k.holder, k.kind, k.state, k.statement, k.byStatement}
}

// source samples in a goroutine of its own between Open and Sample.
type source struct {
	env        collect.Env
	began      time.Time
	watch      *collect.Watch
	servers    map[int]*server // by the pid of the first process
	sessions   map[processKey]*session
	peers      peers               // read if the target is not a server itself
	far        bool                // the target is not a server itself
	none       map[processKey]bool // processes that belong to no server
	refused    error               // why a process could not be read
	states     map[[2]string]time.Duration
	waits      map[waitKey]time.Duration
	statements map[[2]string]time.Duration // that run, by server and fingerprint
	functions  map[[2]string]time.Duration // that these are in, by server and signature
	events     map[[3]string]time.Duration // what these wait for, by server, type and fingerprint
	ages       map[int]*age                // of statements, by server
	fronts     map[[2]string]time.Duration // of waits, by the lock's kind and the statement of the first in line
	openFor    map[string]time.Duration    // how long transactions have been open, by the holder's pid
	scans      map[scanKey]*scanned
	passes     int
	opening    time.Duration // CPU time spent on the files of processes
	over       int           // processes not looked at in a pass, at most
	lost       int           // sessions that could not be read in a pass
}

func open(ctx context.Context, env collect.Env) (collect.Source, error) {
	if env.Target.Kind == host.KindHost {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"name a target with --pid, --comm, --cgroup or --container",
			"it is read for a target only, and the whole host was diagnosed")
	}
	s := &source{
		env: env, began: time.Now(), servers: map[int]*server{}, sessions: map[processKey]*session{},
		none: map[processKey]bool{}, states: map[[2]string]time.Duration{}, waits: map[waitKey]time.Duration{},
		fronts: map[[2]string]time.Duration{}, statements: map[[2]string]time.Duration{},
		events: map[[3]string]time.Duration{}, ages: map[int]*age{}, functions: map[[2]string]time.Duration{},
		openFor: map[string]time.Duration{}, scans: map[scanKey]*scanned{},
		peers: peers{clients: map[int]connection{}},
	}
	if err := s.find(ctx); err != nil {
		return nil, err
	}
	s.watch = env.Watch(ctx, "sessions of PostgreSQL", pace, s.pass)
	return s, nil
}

// find opens the servers, which costs more than a pass that reads them.
func (s *source) find(ctx context.Context) error {
	members, err := s.members(ctx)
	if err != nil {
		return err
	}
	for _, m := range members {
		s.session(m, members)
	}
	return ctx.Err()
}

// members lists the target's processes that may be a server's, or some of them if there are many. If there are none,
// it lists the processes of the servers on this host that serve the target.
func (s *source) members(ctx context.Context) (map[int]host.Process, error) {
	list, err := s.env.Host.LateMembers(ctx, s.env.Target)
	if err != nil {
		return nil, fmt.Errorf("list the target's processes: %w", err)
	}
	all := list
	list = slices.DeleteFunc(slices.Clone(all), func(m host.Process) bool { return !isProgram(m.Comm) })
	if s.far = len(list) == 0; s.far {
		return s.peers.members(ctx, s.env.Host, all), nil
	}
	s.over = max(s.over, len(list)-maxSessions)
	out := map[int]host.Process{}
	for _, m := range list[:min(len(list), maxSessions)] {
		out[m.PID] = m
	}
	return out, nil
}

// pass looks at each session once.
func (s *source) pass(ctx context.Context) (idle bool, err error) {
	members, err := s.members(ctx)
	if err != nil {
		return false, err
	}
	for of, glances := range s.look(ctx, members) {
		s.add(of, glances)
	}
	s.passes++
	s.forget(members)
	return len(s.servers) == 0, nil
}

// forget drops processes that have ended.
func (s *source) forget(members map[int]host.Process) {
	ended := func(key processKey) bool {
		m, ok := members[key.pid]
		return !ok || m.StartTime != key.start
	}
	maps.DeleteFunc(s.sessions, func(key processKey, _ *session) bool { return ended(key) })
	maps.DeleteFunc(s.none, func(key processKey, _ bool) bool { return ended(key) })
}

// look reads what each session does, by server.
func (s *source) look(ctx context.Context, members map[int]host.Process) map[*server][]glance {
	seen := map[*server][]glance{}
	for _, m := range members {
		x := s.session(m, members)
		if x == nil || ctx.Err() != nil {
			continue
		}
		g, err := x.glance()
		switch {
		case errors.Is(err, unix.ESRCH): // it has ended
		case errors.Is(err, unix.EPERM):
			s.refused = fmt.Errorf("read the memory of process %d: %w", m.PID, err)
		case err != nil:
			s.lost++
		case g.proc != 0:
			seen[x.server] = append(seen[x.server], g)
		}
	}
	return seen
}

// session returns the session of a process; nil if it has none. A server's sessions are children of its first
// process, which may have a higher pid than they.
func (s *source) session(m host.Process, members map[int]host.Process) *session {
	key := processKey{m.PID, m.StartTime}
	if x := s.sessions[key]; x != nil || s.none[key] {
		return x
	}
	of := s.serverOf(m, members)
	if of == nil {
		s.none[key] = true
		return nil
	}
	x := &session{pid: m.PID, server: of, read: memory.Of(m.PID), last: time.Now()}
	if s.passes == 0 {
		x.last = s.began
	}
	s.sessions[key] = x
	return x
}

// serverOf returns the server that a process belongs to: its parent's, or its own if it is a server's first process.
func (s *source) serverOf(m host.Process, members map[int]host.Process) *server {
	parent, ok := members[m.PPID]
	switch {
	case !ok:
		return s.open(m.PID)
	case s.session(parent, members) == nil:
		return nil
	}
	return s.session(parent, members).server
}

// open opens the server with this first process; nil if the process is not one.
func (s *source) open(pid int) *server {
	if len(s.servers) >= maxServers || s.opening > maxOpening {
		return nil
	}
	began := collect.ThreadCPU()
	defer func() { s.opening += collect.ThreadCPU() - began }()
	found, err := firewall.Parse(fmt.Sprintf("process %d", pid), func() (*server, error) {
		return openServer(s.env.Host.Proc+"/"+strconv.Itoa(pid), pid)
	})
	if err != nil && !errors.Is(err, errNone) {
		s.refused = fmt.Errorf("process %d: %w", pid, err)
	}
	if err != nil {
		return nil
	}
	s.servers[pid] = found
	return found
}

// add adds the time since each session was last looked at to what it does now.
func (s *source) add(of *server, glances []glance) {
	now := time.Now()
	stuck := of.stuck(glances) // right away: locks that are held for a millisecond change hands meanwhile
	if !s.far {
		s.addScans(of, glances, stuck, now)
	}
	for i := range glances {
		g := &glances[i]
		state, passed := g.state, now.Sub(g.last)
		g.last = now
		if s.far && !s.peers.serving[g.pid] {
			continue
		}
		if w, ok := stuck[g.proc]; ok {
			state = waiting
			s.addWait(s.keyOf(g, &w, now), passed)
			s.addFront(&w, passed)
		} else if !g.client {
			continue
		}
		if state == active {
			s.addStatement(of.pid, g, passed)
			s.addFunction(of, g, passed)
			s.addAge(of.pid, now.Sub(g.began))
		}
		s.states[[2]string{strconv.Itoa(of.pid), state}] += passed
	}
}

// addStatement adds the time of a running statement.
func (s *source) addStatement(server int, g *glance, d time.Duration) {
	if g.fingerprint == "" {
		return
	}
	pid := strconv.Itoa(server)
	addBounded(s.statements, [2]string{pid, g.fingerprint}, d)
	if g.waits != "" {
		addBounded(s.events, [3]string{pid, g.waits, g.fingerprint}, d)
	}
}

// An age is how long statements had been running when they were looked at.
type age struct {
	sum   time.Duration
	looks float64
}

func (s *source) addAge(server int, d time.Duration) {
	if s.ages[server] == nil {
		s.ages[server] = &age{}
	}
	s.ages[server].sum += max(d, 0)
	s.ages[server].looks++
}

// addBounded adds to a series, unless it is one too many.
func addBounded[K comparable](m map[K]time.Duration, key K, d time.Duration) {
	if _, known := m[key]; known || len(m) < maxSeries {
		m[key] += d
	}
}

// addWait adds a wait; a new one past the bound is added without pids and statements.
func (s *source) addWait(key waitKey, d time.Duration) {
	if _, known := s.waits[key]; !known && len(s.waits) >= maxWaits {
		key = waitKey{kind: key.kind, state: key.state}
	}
	s.waits[key] += d
}

// addFront adds a wait to the statement of the first in line.
func (s *source) addFront(w *behind, d time.Duration) {
	if w.first == nil || w.first.fingerprint == "" {
		return
	}
	addBounded(s.fronts, [2]string{w.kind, w.first.fingerprint}, d)
}

// waiting is the state of a session whose statement waits for a lock.
const waiting = "waiting"

// keyOf returns the series of a wait.
func (s *source) keyOf(g *glance, w *behind, now time.Time) waitKey {
	key := waitKey{pid: strconv.Itoa(g.pid), kind: w.kind, statement: g.fingerprint}
	if holder := w.holder; holder != nil {
		key.holder, key.state, key.byStatement = strconv.Itoa(holder.pid), holder.state, holder.fingerprint
		if !holder.xact.IsZero() {
			s.openFor[key.holder] = max(now.Sub(holder.xact), 0)
		}
	}
	return key
}

// Sample ends the passes and appends what they saw.
func (s *source) Sample(ctx context.Context, a *recording.Appender) error {
	if err := s.watch.Stop(); err != nil {
		return err
	}
	if _, err := s.pass(ctx); err != nil && s.passes == 0 { // for the time since the last one
		return err
	}
	if len(s.states) == 0 && s.refused != nil {
		if errors.Is(s.refused, fs.ErrPermission) {
			return collect.Unavailable(recording.StatusDenied, "run as root", "%v", s.refused)
		}
		return collect.Unavailable(recording.StatusUnsupported, "", "%v", s.refused)
	}
	a.None(metric.DatabaseServer, metric.DatabaseSessionTime, metric.DatabaseLockTime, metric.DatabaseFrontTime,
		metric.DatabaseTransactionAge, metric.DatabaseStatementTime, metric.DatabaseWaitTime,
		metric.DatabaseStatementAge, metric.DatabaseFunctionTime)
	for _, m := range []metric.Metric{metric.DatabaseScanTime, metric.DatabaseScanPages, metric.DatabaseScanKept} {
		if s.far && len(s.servers) > 0 {
			a.Missing(m, recording.StatusUnsupported, "the target is a client of the server", "diagnose the server")
			continue
		}
		a.None(m)
	}
	a.Gauge(metric.DatabasePasses, float64(s.passes))
	for _, x := range s.servers {
		a.Info(metric.DatabaseServer, strconv.Itoa(x.pid), "PostgreSQL "+x.version)
	}
	a.Lost(s.over, fmt.Sprintf("processes of PostgreSQL not looked at, beyond %d", maxSessions))
	a.LostOfSample(s.lost, "looks at sessions of PostgreSQL whose memory could not be read")
	s.sampleTimes(a)
	s.sampleClients(ctx, a)
	s.sampleScans(a)
	return nil
}

// sampleTimes appends all times.
func (s *source) sampleTimes(a *recording.Appender) {
	for key, d := range s.states {
		a.Gauge(metric.DatabaseSessionTime, d.Seconds(), key[:]...)
	}
	for key, d := range s.bounded() {
		a.Gauge(metric.DatabaseLockTime, d.Seconds(), key.labels()...)
	}
	for key, d := range s.fronts {
		a.Gauge(metric.DatabaseFrontTime, d.Seconds(), key[:]...)
	}
	for key, d := range s.statements {
		a.Gauge(metric.DatabaseStatementTime, d.Seconds(), key[:]...)
	}
	for key, d := range s.functions {
		a.Gauge(metric.DatabaseFunctionTime, d.Seconds(), key[:]...)
	}
	for pid, x := range s.ages {
		a.Gauge(metric.DatabaseStatementAge, x.sum.Seconds()/x.looks, strconv.Itoa(pid))
	}
	for key, d := range s.events {
		a.Gauge(metric.DatabaseWaitTime, d.Seconds(), key[:]...)
	}
	for pid, d := range s.openFor {
		a.Gauge(metric.DatabaseTransactionAge, d.Seconds(), pid)
	}
}

// sampleClients appends the clients of the sessions that waited.
func (s *source) sampleClients(ctx context.Context, a *recording.Appender) {
	clients, waited := s.peers.clients, map[string]bool{}
	for key := range s.waits {
		waited[key.pid] = true
	}
	if !s.far && len(waited) > 0 {
		var list []host.Process
		for key := range s.sessions {
			if len(list) < maxSeries && waited[strconv.Itoa(key.pid)] {
				list = append(list, host.Process{Stat: host.Stat{PID: key.pid}})
			}
		}
		clients = map[int]connection{}
		for c, pid := range connectionsOf(ctx, s.env.Host, list, func(*connection) bool { return true }) {
			clients[pid] = c
		}
	}
	a.None(metric.DatabaseSessionClient)
	n := 0
	for _, pid := range slices.Sorted(maps.Keys(clients)) {
		c, id := clients[pid], strconv.Itoa(pid)
		if n < maxSeries && waited[id] {
			n++
			a.Info(metric.DatabaseSessionClient, id, c.client.String(), c.server.String())
		}
	}
}

// bounded returns the waits. If there are too many, it drops who waits. If there are still too many, it keeps the
// longest up to half of the bound, and drops who holds the lock from the rest. It sums up what is beyond the bound
// even then. Sessions come and go, but statements are few.
func (s *source) bounded() map[waitKey]time.Duration {
	waits := folded(s.waits, 0, func(key waitKey) waitKey {
		key.pid = ""
		return key
	})
	waits = folded(waits, maxSeries/2, func(key waitKey) waitKey {
		key.pid, key.holder = "", ""
		return key
	})
	return folded(waits, maxSeries-1, func(key waitKey) waitKey { return waitKey{kind: key.kind, state: key.state} })
}

// folded drops labels from waits that are too many, except from the longest: kept says how many of these.
func folded(waits map[waitKey]time.Duration, kept int, by func(waitKey) waitKey) map[waitKey]time.Duration {
	if len(waits) <= maxSeries {
		return waits
	}
	keys := slices.SortedFunc(maps.Keys(waits), func(x, y waitKey) int { return cmp.Compare(waits[y], waits[x]) })
	out := map[waitKey]time.Duration{}
	for i, key := range keys {
		d := waits[key]
		if i >= kept {
			key = by(key)
		}
		out[key] += d
	}
	return out
}

// Close ends the passes.
func (s *source) Close() error {
	_ = s.watch.Stop() // Sample reports an error
	return nil
}
