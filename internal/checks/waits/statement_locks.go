package waits

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// statementLocks is databaseLock for servers whose sessions are threads. It goes by the functions in which they wait.
var statementLocks = &check.Check{
	Name:  "statement-locks",
	Stage: check.Runtime,
	Doc: `Statements of MariaDB wait for a lock that another session holds

A statement that changes a row locks it until its transaction ends: every session that wants the same row waits for the
end, however fast the statement was. An ALTER TABLE waits for all transactions that have used the table, and later
statements wait behind it. The CPU and the disk are idle meanwhile. MyISAM, Aria and MEMORY lock a whole table for a
statement that changes it: one runs at a time, and nobody reads meanwhile.

Measured: the stacks of the server's threads, some twenty times a second, walked from outside; the check does not log
in. A thread that has a statement at hand and waits in the storage engine for a time (lock_wait) wants a row, one in
MDL_context a table, and one in mysql_lock_tables a table of an engine that has no locks of rows. Waits for the log,
for pages and for the binary log do not count. The share is of the time in which statements wait. Tried with MariaDB
10.11; the holder of the lock is not known from outside.

Fix: end the transaction before its client does anything else; change the rows that all sessions want last in it. Won't
help: more connections. Disproof: SHOW PROCESSLIST has no statement that waits for a lock, several times.`,
	URL:    "https://mariadb.com/kb/en/innodb-lock-modes/",
	Needs:  []metric.Metric{metric.WaitProfileSamples},
	Uses:   append([]metric.Metric{metric.TargetInfo}, evidence.RequestMetrics()...),
	Params: []*check.Param{databaseLevel, databaseWarn, databaseSessions},
	Run:    runStatementLocks,
}

// Frames of MariaDB: sql/sql_parse.cc, sql/handler.cc, sql/mdl.cc; the engine's lock_wait (storage/innobase/lock/
// lock0lock.cc) has no symbol in a stripped program, and waits by pthread_cond_timedwait(3).
var (
	statementFrames = hotcode.ParsePatterns("mysql_execute_command*", "dispatch_command*")
	engineFrames    = hotcode.ParsePatterns("handler::*", "ha_innobase::*")
	timedFrames     = hotcode.ParsePatterns("pthread_cond_timedwait*", "lock_wait*", "my_cond_timedwait*")
	tableFrames     = hotcode.ParsePatterns("MDL_context::*", "MDL_wait::*")
	wholeFrames     = hotcode.ParsePatterns("mysql_lock_tables", "thr_multi_lock*", "thr_lock") // sql/lock.cc
	kindFrames      = hotcode.ParsePatterns(
		"mysql_update", "mysql_multi_update", "mysql_delete", "mysql_insert", "mysql_load", "handle_select",
		"mysql_alter_table", "mysql_rm_table", "Sql_cmd_*::execute*",
	)
)

// lockWaits are the waits of statements for one kind of lock.
type lockWaits struct {
	row, table, whole float64            // seconds: a row's, a table's metadata, a table's
	all               float64            // of statements, whatever they wait for
	kinds             map[string]float64 // functions of the statements
	threads           map[int]bool
}

// sum is the time of all kinds of locks.
func (w *lockWaits) sum() float64 { return w.row + w.table + w.whole }

// The kinds of locks, as they are in the text.
const (
	rowLock      = "row"
	metadataLock = "table's metadata"
	tableLock    = "whole table's"
)

// most is the kind with the most time waited.
func (w *lockWaits) most() string {
	switch max(w.row, w.table, w.whole) {
	case w.row:
		return rowLock
	case w.table:
		return metadataLock
	}
	return tableLock
}

func runStatementLocks(p *check.Pass) error {
	prof, err := evidence.ProfileOf(p, stacks.Waits)
	if err != nil {
		return err
	}
	w := lockWaitsOf(prof)
	if prof.Duration <= 0 || w.sum() == 0 {
		p.Read(quantity.Of("statements wait for locks", w.sum(), quantity.Seconds))
		return nil
	}
	at := quantity.Of("wait for locks", w.sum(), quantity.Seconds)
	share := at.Per(quantity.Of("statements wait", w.all, quantity.Seconds)).
		Named("waiting for locks of other sessions, share of the time in which statements wait")
	waiting := at.Per(quantity.Of("window", prof.Duration.Seconds(), quantity.Seconds)).As(sessions).
		Named("sessions that wait at any moment")
	p.Read(share)
	if share.Below(p.Param(databaseLevel)) || waiting.Below(p.Param(databaseSessions)) {
		return nil
	}
	f := statementLocksFinding(p, w, share, waiting)
	if share.AtLeast(p.Param(databaseWarn)) {
		f.Severity = check.Warning
	}
	evidence.WithoutThreads(p, &f, waiting.Number())
	p.Report(f)
	return nil
}

func lockWaitsOf(prof *stacks.Profile) *lockWaits {
	w := &lockWaits{kinds: map[string]float64{}, threads: map[int]bool{}}
	statement, _ := hotcode.Frames(prof, statementFrames)
	engine, _ := hotcode.Frames(prof, engineFrames)
	timed, _ := hotcode.Frames(prof, timedFrames)
	table, _ := hotcode.Frames(prof, tableFrames)
	whole, _ := hotcode.Frames(prof, wholeFrames)
	kind, _ := hotcode.Frames(prof, kindFrames)
	for _, s := range prof.Samples {
		if s.Innermost(statement) < 0 {
			continue
		}
		seconds := float64(s.Value) / 1e9
		w.all += seconds
		switch {
		case s.Innermost(table) >= 0:
			w.table += seconds
		case s.Innermost(engine) >= 0 && s.Innermost(timed) >= 0:
			w.row += seconds
		case s.Innermost(whole) >= 0 && s.Innermost(engine) < 0:
			w.whole += seconds
		default:
			continue
		}
		w.threads[s.Thread] = true
		if i := s.Innermost(kind); i >= 0 {
			w.kinds[prof.Frames[s.Stack[i]].Name] += seconds
		}
	}
	return w
}

func statementLocksFinding(p *check.Pass, w *lockWaits, share, waiting quantity.Value) check.Finding {
	f := check.Finding{
		Subject:    evidence.TargetSubject(p),
		Severity:   check.Info,
		Confidence: check.Medium,
		Weight:     share.Number(),
		Summary: fmt.Sprintf("%s at any moment for a %s lock of another session, %s of the time in which "+
			"statements wait", wait(waiting), w.most(), share.Text()),
		Evidence: []quantity.Value{
			share, waiting, quantity.Of("sessions that were seen to wait", float64(len(w.threads)), sessions),
		},
		Remedies: []check.Remedy{w.remedy()},
		Placebos: []string{
			"More connections: they wait for the same lock.", "More CPUs or memory: a waiting session uses none.",
		},
		Disproof: "SHOW PROCESSLIST has no statement that waits for a lock, several times.",
	}
	kinds := byTime(w.kinds)
	for _, name := range kinds[:min(len(kinds), evidence.NamedCulprits)] {
		part := quantity.Of("", w.kinds[name]/w.sum(), quantity.Ratio)
		f.Notes = append(f.Notes, fmt.Sprintf("%s of it waits in %s", part.Text(), statementOf(name)))
	}
	if len(kinds) > 0 {
		f.Summary += ": " + statementOf(kinds[0])
	}
	return f
}

// remedy says how to find the holder. The holder of a row has a transaction; the holder of a table need not have one.
func (w *lockWaits) remedy() check.Remedy {
	switch w.most() {
	case tableLock:
		return check.Remedy{
			Action: "Change the table to InnoDB, which locks rows. Until then give the statements that change it an " +
				"index: each has the table for as long as it runs.",
			Command: check.Commandf("mariadb -e %s", "SELECT table_schema, table_name, engine, table_rows FROM "+
				"information_schema.TABLES WHERE engine IN (\"MyISAM\", \"Aria\", \"MEMORY\") AND table_schema "+
				"<> \"mysql\""),
			Risk:   "ALTER TABLE copies the table, and InnoDB takes more room",
			Effect: "statements run side by side",
		}
	case metadataLock:
		return check.Remedy{
			Action: "Find what keeps the table, and end it: a transaction that has used it and is open, an ALTER " +
				"TABLE, or FLUSH TABLES WITH READ LOCK, as backups do.",
			Command: check.Commandf("mariadb -e %s", "SELECT id, command, time, state, info FROM "+
				"information_schema.PROCESSLIST ORDER BY time DESC LIMIT 10"),
			Risk:   "KILL of that id ends its session, and a backup with it",
			Effect: "sessions that wait fall with the time for which the table is kept",
		}
	}
	return check.Remedy{
		Action: "Find the transaction that holds it, and have its client end it: before it asks somebody else, " +
			"computes, or waits for a user.",
		Command: check.Commandf("mariadb -e %s", "SELECT trx_mysql_thread_id, trx_started, trx_state, trx_query "+
			"FROM information_schema.INNODB_TRX ORDER BY trx_started LIMIT 5"),
		Risk:   "KILL of that id rolls its changes back",
		Effect: "sessions that wait fall with the time for which the transaction is open",
	}
}

// statementOf names the kind of statement that a function executes.
func statementOf(function string) string {
	kinds := []struct{ in, kind string }{
		{"update", "UPDATE"},
		{"delete", "DELETE"},
		{"insert", "INSERT"},
		{"load", "LOAD DATA"},
		{"alter", "ALTER TABLE"},
		{"rm_table", "DROP TABLE"},
		{"select", "SELECT"},
	}
	i := slices.IndexFunc(kinds, func(k struct{ in, kind string }) bool { return strings.Contains(function, k.in) })
	if i < 0 {
		return function
	}
	return kinds[i].kind + " (" + function + ")"
}
