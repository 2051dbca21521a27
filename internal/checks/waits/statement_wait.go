package waits

import (
	"cmp"
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	statementWaitShare = &check.Param{
		Name: "share", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time of statements: from a half on nothing else in the server matters more",
	}
	statementWaitSessions = &check.Param{
		Name: "sessions", Default: 1, Unit: sessions,
		Why: "with less than one waiting at any moment, clients hardly wait for each other",
	}
	statementWaitEach = evidence.RequestSeconds()
)

// statementWait is about what a session waits for inside the server. The kernel sees a wait for an event, as in a
// session without work.
var statementWait = &check.Check{
	Name:  "statement-wait",
	Stage: check.Runtime,
	Doc: `Statements wait inside the database server

A session that has a statement in hand may wait for a standby that has to confirm the commit, for a lock of the server's
own (the log, a buffer, a list that all sessions share), for another process of the server, or because the statement
says so (pg_sleep). The CPU and the disk are idle, the kernel sees a wait for events, and no lock of a transaction is
held.

Measured: PostgreSQL 14 to 18 keep in shared memory what each session does and the type of the event that it waits for;
both are read from outside some twenty times a second. Waits for the client and for the disk are not counted, nor those
for locks of transactions (see database-lock). A statement's time is twice what it had been running when it was looked
at. It is a warning where that is a tenth of a second and more; below it is a fact, since at full load sessions wait
for each other for a moment. Stacks show where the sessions stand.

Fix: depends on the function in which they wait; pg_stat_activity names the event. Won't help: more CPUs.
Disproof: SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE state = 'active' shows none, several times.`,
	URL:  "https://www.postgresql.org/docs/current/monitoring-stats.html#WAIT-EVENT-TABLE",
	Only: &check.Scope{Fact: metric.DatabaseServer, Name: "PostgreSQL (14 and newer)"},
	Needs: []metric.Metric{
		metric.DatabaseServer, metric.DatabaseWaitTime, metric.DatabaseStatementTime, metric.DatabaseStatementAge,
	},
	Uses: append([]metric.Metric{
		metric.OffCPUProfileSamples, metric.WaitProfileSamples, metric.TargetInfo,
	}, evidence.RequestMetrics()...),
	Params: []*check.Param{statementWaitShare, statementWaitSessions, statementWaitEach},
	Run:    runStatementWait,
}

// A statementWaits is what the statements of a server wait for.
type statementWaits struct {
	seconds, all      float64
	types, statements map[string]float64
}

func statementWaitsOf(p *check.Pass) *statementWaits {
	w := &statementWaits{types: map[string]float64{}, statements: map[string]float64{}}
	for _, s := range p.Gauge(metric.DatabaseStatementTime) {
		w.all += s.Last()
	}
	list := p.Gauge(metric.DatabaseWaitTime)
	sleep := 0.0
	for _, s := range list {
		if s.Label("type") == "Timeout" {
			sleep += s.Last()
		}
	}
	const aJob = 1.5 // sessions: one that sleeps all the time is a job that looks for work now and then
	for _, s := range list {
		kind := s.Label("type")
		if kind == "Client" || kind == "IO" || kind == "Timeout" && sleep < aJob*p.Meta.Duration {
			continue
		}
		w.seconds += s.Last()
		w.types[kind] += s.Last()
		w.statements[s.Label("statement")] += s.Last()
	}
	return w
}

func runStatementWait(p *check.Pass) error {
	w := statementWaitsOf(p)
	waited := quantity.Of("waited in the server", w.seconds, quantity.Seconds)
	if w.seconds == 0 || p.Meta.Duration <= 0 {
		p.Read(waited)
		return nil
	}
	all := quantity.Of("statements ran or waited", max(w.all, w.seconds), quantity.Seconds)
	share := waited.Per(all).Named("waiting inside the server, share of the statements' time")
	waiting := waited.Per(quantity.Of("window", p.Meta.Duration, quantity.Seconds)).As(sessions).
		Named("sessions that wait at any moment")
	p.Read(share)
	if share.Below(p.Param(statementWaitShare)) || waiting.Below(p.Param(statementWaitSessions)) {
		return nil
	}
	oldest := 0.0 // of several servers
	for _, s := range p.Gauge(metric.DatabaseStatementAge) {
		oldest = max(oldest, s.Last())
	}
	age := quantity.Of("time that a statement had been running when looked at, mean", oldest, quantity.Seconds)
	each := age.Times(quantity.Of("", 2, quantity.None)).Named("time of a statement, twice what it had been running")
	f := statementWaitFinding(p, w, share, waiting)
	f.Evidence = append(f.Evidence, age, each)
	if each.AtLeast(p.Param(statementWaitEach)) {
		f.Severity = check.Warning
	}
	evidence.WithoutThreads(p, &f, waiting.Number())
	p.Report(f)
	return nil
}

func statementWaitFinding(p *check.Pass, w *statementWaits, share, waiting quantity.Value) check.Finding {
	kind := byTime(w.types)[0]
	f := check.Finding{
		Subject:    evidence.TargetSubject(p),
		Severity:   check.Info,
		Confidence: check.High,
		Weight:     share.Number(),
		Summary: fmt.Sprintf("%s wait inside the server at any moment, %s of the statements' time, most %s",
			waiting.Text(), share.Text(), waitTypes[kind]),
		Evidence: []quantity.Value{
			share, waiting, quantity.Of("of it for "+kind, w.types[kind], quantity.Seconds).
				Per(quantity.Of("waited in the server", w.seconds, quantity.Seconds)).Named("of it for %s", kind),
		},
		Placebos: []string{"More CPUs or memory: a waiting session uses none."},
		Disproof: "SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE state = 'active' shows none, " +
			"several times.",
	}
	if kind == "LWLock" || kind == "BufferPin" { // in other waits each waits for itself, and more of them do more
		f.Placebos = append(f.Placebos, "More connections: they wait for the same.")
	}
	for _, s := range byTime(w.statements)[:min(len(w.statements), evidence.NamedCulprits)] {
		f.Notes = append(f.Notes, "statement: "+s)
	}
	in := statementPlace(p)
	if in != "" {
		f.Summary += ", in " + in
	}
	f.Remedies = []check.Remedy{statementRemedy(in)}
	return f
}

// waitTypes say what a type of pg_stat_activity means.
var waitTypes = map[string]string{
	"LWLock":    "for a lock of the server's own (LWLock)",
	"BufferPin": "for a page that another session keeps (BufferPin)",
	"Extension": "in an extension (Extension)",
	"IPC":       "for another process (IPC)",
	"Timeout":   "for a time to pass (Timeout)",
}

var (
	// sessionFrames are in the stack of a session that has a statement in hand (src/backend/tcop/postgres.c), and
	// clientFrames in the stack of one that waits for its client (src/backend/libpq).
	sessionFrames = hotcode.ParsePatterns("PortalRun*", "exec_*", "finish_xact_command", "CommitTransactionCommand",
		"ProcessUtility", "standard_ProcessUtility", "ExecutorRun", "standard_ExecutorRun")
	clientFrames = hotcode.ParsePatterns("pq_*", "secure_read", "secure_write", "ProcSleep")
	// waitFrames show how a session waits, but not what for (src/backend/storage/ipc/latch.c, lmgr).
	waitFrames = hotcode.ParsePatterns("WaitEventSetWait*", "WaitLatch*", "ConditionVariable*", "LWLock*",
		"PGSemaphore*", "ProcWaitForSignal", "pg_usleep", "epoll_*", "*sem_*", "futex*", "__futex*", "do_futex*",
		"select", "*nanosleep*", "[unknown*")
)

// statementPlace returns the function of the server in which its sessions wait most of the time; "" if no stack shows
// it.
func statementPlace(p *check.Pass) string {
	byName := map[string]float64{}
	for _, event := range []stacks.Event{stacks.Waits, stacks.OffCPU} {
		prof, ok := p.Ranked(event)
		if !ok {
			continue
		}
		session, _ := hotcode.Frames(prof, sessionFrames)
		client, _ := hotcode.Frames(prof, clientFrames)
		how, _ := hotcode.Frames(prof, waitFrames)
		for _, s := range prof.Samples {
			if s.Innermost(session) < 0 || s.Innermost(client) >= 0 {
				continue
			}
			for _, at := range s.Stack {
				if f := prof.Frames[at]; !how[at] && f.Kind != stacks.Kernel {
					byName[f.Name] += float64(s.Value)
					break
				}
			}
		}
		if len(byName) > 0 {
			break
		}
	}
	if len(byName) == 0 {
		return ""
	}
	return byTime(byName)[0]
}

// statementRemedy says what to do about a wait in a function of the server.
func statementRemedy(in string) check.Remedy {
	known := map[string]check.Remedy{
		"SyncRepWaitForLSN": {
			Action: "A commit waits for a standby: see pg_stat_replication, start the standby, or take it out of " +
				"synchronous_standby_names and reload.",
			Command: check.Commandf("psql -c %s", "SELECT application_name, state, sync_state, replay_lag FROM "+
				"pg_stat_replication"),
			Risk:   "without a synchronous standby a commit is lost with the host",
			Effect: "a commit takes the time of this host's log",
		},
		"pg_sleep": {
			Action: "The statement sleeps: take pg_sleep() out of it.",
			Risk:   "whoever put it there may rely on the delay", Effect: "the statement takes the rest of its time",
		},
		"XLogFlush": {
			Action: "Commits wait for each other at the log: put more changes into a transaction, or let those that " +
				"may be lost commit with synchronous_commit = off.",
			Risk:   "what was not flushed is lost in a crash",
			Effect: "fewer waits for the log, and with them the time of a commit",
		},
	}
	if r, ok := known[in]; ok {
		return r
	}
	return check.Remedy{
		Action: "See which event it is, and what the statement wants of " + cmp.Or(in, "the server") +
			": the manual explains each event.",
		Command: check.Commandf("psql -c %s", "SELECT wait_event_type, wait_event, count(*) FROM pg_stat_activity "+
			"WHERE state = 'active' GROUP BY 1, 2 ORDER BY 3 DESC"),
		Risk: "none", Effect: "the time of a statement falls by what it waits",
	}
}
