package metric

import q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

// Databases among the target's processes, from their own memory: nobody logs in.
var (
	DatabaseServer = info("database_info", "process_vm_readv(2) at the server's symbols",
		"A database server of the target: pid of its first process, and what it is, as PostgreSQL 14 to 17.",
		"pid", "runtime")
	DatabaseSessionTime = overWindow("database_session_seconds", q.Seconds,
		"process_vm_readv(2), struct PgBackendStatus and PGPROC, sampled",
		"Time in the window that the sessions of a server were in a state: active (a statement runs), waiting (it waits "+
			"for a lock of another session), idle, idle in transaction, idle in transaction (aborted), or none where the "+
			"server keeps none.",
		"pid", "state")
	DatabaseLockTime = overWindow("database_lock_wait_seconds", q.Seconds,
		"process_vm_readv(2), struct LOCK and PROCLOCK, sampled",
		"Time that the session pid waited for a lock which another session keeps from it. holder_pid is the session "+
			"at the end of the chain, which waits for no lock itself, and state is what it did; both are empty if it "+
			"is not one of the target's processes (a prepared transaction), or changed meanwhile. lock is row, table, "+
			"page, object, advisory, transaction or another kind; statement and holder_statement are their statements "+
			"without literals, for an idle holder its last one. The series beyond the first 200 are summed up by lock "+
			"and state.",
		"pid", "holder_pid", "lock", "state", "statement", "holder_statement")
	DatabaseFrontTime = overWindow("database_lock_front_seconds", q.Seconds,
		"process_vm_readv(2), struct LOCK and PROCLOCK, sampled",
		"The time of database_lock_wait_seconds by the statement of the session that was first in line: it waits for "+
			"the holder directly, so it wants what the holder has. The statements beyond the first 200 are left out.",
		"lock", "statement")
	DatabaseTransactionAge = overWindow("database_transaction_age_seconds", q.Seconds,
		"process_vm_readv(2), st_xact_start_timestamp of struct PgBackendStatus",
		"How long the transaction of a session that others waited for had been open when last looked at.", "pid")
	DatabaseSessionClient = info("database_session_client_info", "NETLINK_SOCK_DIAG, /proc/PID/fd",
		"Connection by which a session that waited for a lock serves its client: the client's end of it, and the "+
			"server's. A session without one serves none over TCP.", "pid", "source", "destination")
	DatabasePasses = overWindow("database_session_passes", q.Events, "process_vm_readv(2)",
		"How often all sessions were looked at for database_session_seconds.")
	DatabaseStatementTime = overWindow("database_statement_seconds", q.Seconds,
		"process_vm_readv(2), st_activity_raw of struct PgBackendStatus, sampled",
		"Time in the window that sessions of a server (pid) were in a statement and did not wait for a lock of another "+
			"session, by the statement without literals. The series beyond the first 200 are left out.",
		"pid", "statement")
	DatabaseFunctionTime = overWindow("database_function_seconds", q.Seconds,
		"process_vm_readv(2), error_context_stack and struct PLpgSQL_function, sampled",
		"The part of database_statement_seconds in which the statement was in a function of PL/pgSQL, or in a trigger, by "+
			"the signature of the innermost one. The series beyond the first 200 are left out.",
		"pid", "function")
	DatabaseWaitTime = overWindow("database_wait_seconds", q.Seconds,
		"process_vm_readv(2), *my_wait_event_info, sampled",
		"The part of database_statement_seconds in which the session waited for something in the server, by the type of "+
			"its wait event as pg_stat_activity has it: LWLock (a lock inside the server), BufferPin, Client, Extension, "+
			"IPC (another process of the server, such as a standby's), Timeout (it sleeps) or IO. The series beyond the "+
			"first 200 are left out.",
		"pid", "type", "statement")
	DatabaseStatementAge = overWindow("database_statement_age_seconds", q.Seconds,
		"process_vm_readv(2), st_activity_start_timestamp of struct PgBackendStatus, sampled",
		"Mean time for which the current statements of a server's sessions (pid) had been running when they were "+
			"looked at: half of what they take, if all take equally long.", "pid")
	DatabaseScanTime = overWindow("database_scan_seconds", q.Seconds,
		"process_vm_readv(2), struct PortalData, PlanState and HeapScanDescData, sampled",
		"Time in the window that sessions of a server (pid) were in a statement which was reading a table from end to "+
			"end. table is its name without its schema, statement the statement without literals. If a statement "+
			"reads several such tables, table is the largest. The series beyond the first 200 are left out.",
		"pid", "table", "statement")
	DatabaseScanPages = overWindow("database_scan_pages", q.Pages, "rs_nblocks of struct HeapScanDescData",
		"Pages (of 8 KiB, unless the server was built otherwise) that such a scan has to read: those of the table.",
		"pid", "table", "statement")
	DatabaseScanKept = overWindow("database_scan_kept_ratio", q.Ratio,
		"plan_rows of struct Plan, reltuples of struct FormData_pg_class",
		"Share of the table's rows that the planner expects to pass the filter of such a scan: 1 without a filter. "+
			"For a parallel scan it is the share of one process. It is missing if the table was never analysed.",
		"pid", "table", "statement")
)
