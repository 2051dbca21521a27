package waits

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	databaseLevel = &check.Param{
		Name: "share", Default: 0.1, Unit: quantity.Ratio,
		Why: "locks keep transactions apart: a tenth of the statements' time is more than they meet by chance",
	}
	databaseWarn = &check.Param{
		Name: "warn", Default: 0.4, Unit: quantity.Ratio,
		Why: "nearly half of what clients wait for is another session, and further sessions add less than the ones " +
			"before",
	}
	databaseSessions = &check.Param{
		Name: "sessions", Default: 0.5, Unit: sessions,
		Why: "clients seldom notice less than half of one session at any moment",
	}
)

// sessions are a unit of this rule.
const sessions quantity.Unit = "sessions"

// databaseLock is about locks inside a database, which the kernel sees as sessions that wait for an event.
var databaseLock = &check.Check{
	Name:  "database-lock",
	Stage: check.Runtime,
	Doc: `Sessions of a database wait for a lock that another session holds

A statement that changes a row locks it until its transaction ends: every session that wants the same row waits for the
end, however fast the statement was. A transaction that is idle meanwhile (its client computes, asks somebody else, or
forgot it) keeps the lock for nothing. The CPU and the disk are idle, and no thread is in a lock that the kernel knows.

Measured: PostgreSQL 14 to 18 keep in shared memory which session waits for which lock, which session has it, and the
statement of each. The check reads this from outside some twenty times a second: it does not log in, and keeps
statements without their values. A wait behind a session that waits itself counts for the session at the end of the
chain. The share is of the time in which statements run or wait. If the target is a client of the server, on the same
host or in a second recording (--and), the finding is about the sessions at the other ends of its connections, and the
share is of the time in which its threads wait for that server.

Fix: end the transaction before its client does anything else; change the rows that all sessions want last in it. Won't
help: more connections. Disproof: SELECT pid, pg_blocking_pids(pid) FROM pg_stat_activity WHERE wait_event_type =
'Lock' gives no rows, several times.`,
	URL:  "https://www.postgresql.org/docs/current/explicit-locking.html",
	Only: &check.Scope{Fact: metric.DatabaseServer, Name: "PostgreSQL (14 and newer)"},
	Needs: []metric.Metric{
		metric.DatabaseServer, metric.DatabaseLockTime, metric.DatabaseSessionTime, metric.DatabasePasses,
	},
	Uses: append([]metric.Metric{
		metric.DatabaseFrontTime, metric.DatabaseTransactionAge, metric.DatabaseSessionClient,
		metric.ConnectionWaitTime, metric.DatabaseScanTime,
	}, evidence.RequestMetrics()...),
	Facts:  []check.Fact{evidence.MostAnswers},
	Params: []*check.Param{databaseLevel, databaseWarn, databaseSessions},
	Run:    runDatabaseLock,
}

// A lockHolder is who keeps others from locks: a session, or several that do the same.
type lockHolder struct {
	pids             []string
	state, statement string
	lock             string // kind with the most time
	seconds          float64
	kinds            map[string]float64
	waiters          map[string]float64 // statements that wait
	front            string             // what most of the first in line want it for, if several hold it in turn
}

// a puts the article in front of the name of a kind of lock: a row lock, an object lock.
func a(lock string) string {
	if strings.IndexAny(lock, "aeiou") == 0 {
		return "an " + lock
	}
	return "a " + lock
}

// wait adds the verb to a number: 1 session waits, 2 sessions wait.
func wait(n quantity.Value) string {
	if strings.HasPrefix(n.Text(), "1 ") {
		return n.Text() + " waits"
	}
	return n.Text() + " wait"
}

// wanted is the statement in which most of the time is waited.
func (h *lockHolder) wanted() string {
	if list := byTime(h.waiters); len(list) > 0 && h.waiters[list[0]] >= mostOf*h.seconds {
		return list[0]
	}
	return ""
}

func runDatabaseLock(p *check.Pass) error {
	window := quantity.Of("window", p.Meta.Duration, quantity.Seconds)
	busy := 0.0
	for _, s := range p.Gauge(metric.DatabaseSessionTime) {
		if state := s.Label("state"); state == "active" || state == "waiting" {
			busy += s.Last()
		}
	}
	waited := 0.0
	for _, s := range p.Gauge(metric.DatabaseLockTime) {
		waited += s.Last()
	}
	if waited == 0 || p.Meta.Duration <= 0 {
		p.Read(quantity.Of("waited for locks", waited, quantity.Seconds))
		return nil
	}
	at := quantity.Of("waited for locks", waited, quantity.Seconds)
	chain, isClient := evidence.ChainOf(p)
	if isClient && chain.Seconds > 0 {
		busy = chain.Seconds
	}
	share := at.Per(quantity.Of("statements run or wait", max(busy, waited), quantity.Seconds)).
		Named("waiting for locks of other sessions, share of the statements' time")
	if isClient && chain.Seconds > 0 {
		share = share.Named("its sessions wait for locks of others, share of the time it waits for %s", chain.Server)
	}
	waiting := at.Per(window).As(sessions).Named("sessions that wait at any moment")
	p.Read(share)
	if share.AtLeast(p.Param(databaseLevel)) && waiting.AtLeast(p.Param(databaseSessions)) {
		f := databaseLockFinding(p, share, waiting, waited)
		evidence.WithoutThreads(p, &f, waiting.Number())
		if isClient {
			tellChain(p, &f, &chain, lockHolderOf(p, waited), waiting)
		}
		p.Report(f)
	}
	return nil
}

// mostOf is the share of the total from which on one session or statement is named.
const mostOf = 0.5

// lockHolderOf returns who others waited for most: one session if most waited for it, else the sessions that held the
// lock in turn if most wanted the same, else sessions that did the same.
func lockHolderOf(p *check.Pass, waited float64) *lockHolder {
	byPID, byWhat, known := map[string]*lockHolder{}, map[string]*lockHolder{}, map[string]*lockHolder{}
	all := &lockHolder{}
	for _, s := range p.Gauge(metric.DatabaseLockTime) {
		pid, what := s.Label("holder_pid"), s.Label("state")+" "+s.Label("holder_statement")
		addTo(byPID, pid, s)
		addTo(byWhat, what, s)
		if pid != "" {
			addTo(known, what, s)
			all.add(s)
		}
	}
	largest := func(list map[string]*lockHolder) *lockHolder {
		return evidence.SortedBy(list, func(h *lockHolder) float64 { return h.seconds })[0]
	}
	h := largest(byPID)
	if len(h.pids) != 1 || h.seconds < mostOf*waited {
		h = largest(byWhat)
		if front := frontOf(p, waited); front != "" && len(all.pids) > 1 {
			most := largest(known)
			h, all.front, all.state, all.statement = all, front, most.state, most.statement
		}
	}
	h.lock = byTime(h.kinds)[0]
	return h
}

func addTo(list map[string]*lockHolder, key string, s recording.GaugeSeries) {
	if list[key] == nil {
		list[key] = &lockHolder{}
	}
	list[key].add(s)
}

// add adds a series of waits to the holder.
func (h *lockHolder) add(s recording.GaugeSeries) {
	if h.kinds == nil {
		h.kinds, h.waiters = map[string]float64{}, map[string]float64{}
	}
	if pid := s.Label("holder_pid"); pid != "" && !slices.Contains(h.pids, pid) {
		h.pids = append(h.pids, pid)
	}
	h.state, h.statement = s.Label("state"), s.Label("holder_statement")
	h.seconds += s.Last()
	h.kinds[s.Label("lock")] += s.Last()
	h.waiters[s.Label("statement")] += s.Last()
}

// frontOf returns the statement of the first in line for most of the waited time; "" if there is none.
func frontOf(p *check.Pass, waited float64) string {
	sums := map[string]float64{}
	for _, s := range p.Gauge(metric.DatabaseFrontTime) {
		sums[s.Label("statement")] += s.Last()
	}
	if list := byTime(sums); len(list) > 0 && sums[list[0]] >= mostOf*waited {
		return list[0]
	}
	return ""
}

// byTime returns the keys, those with the most time first.
func byTime(times map[string]float64) []string {
	var keys []string
	for key := range times {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(x, y string) int {
		return cmp.Or(cmp.Compare(times[y], times[x]), strings.Compare(x, y))
	})
	return keys
}

func databaseLockFinding(p *check.Pass, share, waiting quantity.Value, waited float64) check.Finding {
	h := lockHolderOf(p, waited)
	by := quantity.Of("for "+h.who(), h.seconds, quantity.Seconds).
		Per(quantity.Of("waited for locks", waited, quantity.Seconds)).Named("of that for %s", h.who())
	f := check.Finding{
		Subject:    h.subject(),
		Severity:   check.Info,
		Confidence: check.Medium,
		Weight:     share.Number(),
		Summary: fmt.Sprintf("%s at any moment for %s lock of %s, %s", wait(waiting), a(h.lock), h.who(),
			h.does()),
		Evidence: []quantity.Value{share, waiting, by},
		Notes:    h.notes(p),
		Remedies: h.remedies(),
		Placebos: []string{
			"More connections: they wait for the same lock.", "More CPUs or memory: a waiting session uses none.",
		},
		Disproof: "SELECT pid, pg_blocking_pids(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' gives no " +
			"rows, several times.",
	}
	if share.AtLeast(p.Param(databaseWarn)) {
		f.Severity = check.Warning
	}
	if passes := p.Gauge(metric.DatabasePasses); len(passes) > 0 && passes[0].Last()*waiting.Number() >= leastLooks {
		f.Confidence = check.High
	}
	return f
}

// tellChain turns the finding into one about a client of the server: who waits, through which session, and for whom.
func tellChain(p *check.Pass, f *check.Finding, c *evidence.Chain, h *lockHolder, waiting quantity.Value) {
	f.Subject = check.Subject{Kind: "lock", ID: h.lock + " lock at " + c.Server}
	who, by := "the target", "PostgreSQL pid "+c.Sessions[0]
	if len(c.Waiters) > 0 {
		who = some(c.Waiters)
	}
	if len(c.Sessions) > 1 {
		by = "PostgreSQL pids " + some(c.Sessions)
	}
	f.Summary = fmt.Sprintf("%s waits for %s ← %s ← %s lock of %s, %s (%s at any moment)", who, c.Server, by,
		h.lock, strings.Replace(h.who(), "session", "pid", 1), h.does(), wait(waiting))
	if r, ok := evidence.RequestsOf(p); ok {
		if share, owned := r.Share(waiting); owned {
			part := quantity.Of("", min(1, share.Number()), quantity.Ratio)
			f.Summary = "a request waits " + r.Each.Times(part).As(quantity.Seconds).Text() + " and more: " + f.Summary
			f.Evidence = append(f.Evidence, r.InProgress, r.Each, share)
		}
	}
	if c.Answers > 0 && f.Weight*c.Seconds >= mostOf*c.Answers {
		f.Facts = append(f.Facts, evidence.MostAnswers)
	}
}

// some names the first few of a list.
func some(list []string) string {
	if n := len(list) - evidence.NamedCulprits; n > 0 {
		return strings.Join(list[:evidence.NamedCulprits], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(list, ", ")
}

func (h *lockHolder) subject() check.Subject {
	switch len(h.pids) {
	case 0:
		return check.Subject{Kind: "lock", ID: h.lock + " lock"}
	case 1:
		return check.Subject{Kind: "pid", ID: h.pids[0] + " (postgres)"}
	}
	return check.Subject{Kind: "lock", ID: h.lock + " lock of " + cmp.Or(h.front, h.statement, "several sessions")}
}

// who names the holder.
func (h *lockHolder) who() string {
	switch len(h.pids) {
	case 0:
		return "a session that is not known"
	case 1:
		return "session " + h.pids[0]
	}
	return fmt.Sprintf("%d sessions in turn", len(h.pids))
}

// idles reports whether the holder does nothing.
func (h *lockHolder) idles() bool { return strings.HasPrefix(h.state, "idle in transaction") }

// does says what the holder does, with its statement's fingerprint.
func (h *lockHolder) does() string {
	if h.front != "" {
		return fmt.Sprintf("wanted by: %s; the holder is mostly %s", h.front, h.doing())
	}
	return h.doing()
}

// doing says what the holder is doing.
func (h *lockHolder) doing() string {
	switch {
	case len(h.pids) == 0 && h.wanted() != "":
		return "wanted by: " + h.wanted()
	case len(h.pids) == 0:
		return "which is a prepared transaction, no process of the target, or was gone when it was looked for"
	case h.idles() && h.statement != "":
		return "idle in a transaction after: " + h.statement
	case h.idles():
		return "idle in a transaction"
	case h.statement != "":
		return "at: " + h.statement
	}
	return "whose statement the server does not keep (track_activities)"
}

func (h *lockHolder) notes(p *check.Pass) (out []string) {
	if len(h.pids) == 1 {
		for _, s := range p.Gauge(metric.DatabaseTransactionAge, "pid", h.pids[0]) {
			out = append(out, "its transaction was open for "+quantity.Of("", s.Last(), quantity.Seconds).Text())
		}
	}
	list := byTime(h.waiters)
	for _, statement := range list[:min(len(list), evidence.NamedCulprits)] {
		share := quantity.Of("", h.waiters[statement]/h.seconds, quantity.Ratio)
		out = append(out, fmt.Sprintf("%s of it waits in: %s", share.Text(),
			cmp.Or(statement, "a statement not known")))
	}
	return out
}

// notifies reports whether the waits are for the lock that each transaction with NOTIFY takes while it commits. There
// is one for the whole server (PreCommit_Notify in src/backend/commands/async.c); the object has no name, and is not
// the program's.
func (h *lockHolder) notifies() bool {
	statement := strings.ToLower(h.wanted())
	return h.lock == "object" && (strings.HasPrefix(statement, "notify ") || strings.Contains(statement, "pg_notify"))
}

func (h *lockHolder) remedies() []check.Remedy {
	if h.notifies() {
		return []check.Remedy{{
			Action: "Send fewer notifications, one for many changes, and from one session: each transaction that " +
				"sends some holds one lock of the whole server while it commits.",
			Risk:   "listeners hear of changes later",
			Effect: "sessions commit side by side again",
		}}
	}
	if !h.idles() {
		return []check.Remedy{{
			Action: "Hold the lock for less: change the rows that all want last in the transaction, commit at once, " +
				"and split a row that all count in.",
			Risk:   "what belongs together must stay in one transaction",
			Effect: "sessions that wait fall with the time from that statement to the end of its transaction",
		}}
	}
	end := check.Remedy{
		Action: "To go on now, end the session that holds it, as a superuser or its owner.",
		Risk:   "what its transaction did is rolled back, and its client gets an error",
		Effect: "sessions that wait fall to 0",
	}
	if len(h.pids) == 1 {
		end.Command = check.Commandf("psql -c %s", "SELECT pg_terminate_backend("+h.pids[0]+")")
	}
	return []check.Remedy{{
		Action: "Let the client commit or roll back before it does anything else (asks another service, waits for a " +
			"person), and set idle_in_transaction_session_timeout as a limit.",
		Risk:   "a client that is above the limit loses its session",
		Effect: "sessions that wait fall to the time of the statements themselves",
	}, end}
}
