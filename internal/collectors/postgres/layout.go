package postgres

import "encoding/binary"

// A session describes itself in a struct PgBackendStatus in shared memory (src/include/utils/backend_status.h). In
// each process the symbol MyBEEntry leads to it. It is the same from 14 to 18.
const (
	statusCount    = 0 // changes with each write, and is odd during one
	statusXact     = 24
	statusBegan    = 32 // when its statement did
	statusDatabase = 48
	statusUser     = 52
	statusState    = 232
	statusText     = 248
	statusSize     = 256
)

// States of a session, as pg_stat_activity calls them. The state "" says that the server keeps none
// (track_activities), or that the session is still starting.
const (
	active     = "active"
	idle       = "idle"
	inXact     = "idle in transaction"
	inXactFail = "idle in transaction (aborted)"
)

// statesOf14 returns the states of enum BackendState until 17; 18 has one more, for a session that starts.
func statesOf14() []string { return []string{"", idle, active, inXact, active, inXactFail, ""} }

func statesOf18() []string { return append([]string{""}, statesOf14()...) }

// Symbols that a server exports since a version: settings that came with it (src/backend/utils/misc/guc_tables.c).
// Before 14 the symbol MyBEEntry is not exported either.
const (
	since14 = "compute_query_id"
	since18 = "io_method"
)

// Structures of the lock manager (src/include/storage/lock.h), the same from 14 to 18. Lists are rings of two
// addresses, the one before and the next.
const (
	// struct LOCK
	lockType  = 14 // in its tag
	lockHolds = 24 // head of the list of requests for it, PROCLOCKs
	lockSize  = 40
	// struct PROCLOCK
	requestLock   = 0
	requestProc   = 8
	requestLeader = 16 // of a parallel query
	requestHeld   = 24 // bits of the modes that it has
	requestLink   = 32 // in the list
	requestNext   = 40
	requestSize   = 48
)

// A session's struct PGPROC (src/include/storage/proc.h), to which MyProc leads, has what it waits for: the address
// of the LOCK, the address of its own request, and the mode. The place differs by version, and is before the 256th
// byte in all. It is found by the request, which says whose it is and for which lock.
const (
	procSize  = 256
	waitFirst = 64 // behind the links and the latch
	waitSize  = 20
)

// kinds names locks by enum LockTagType. A session that waits for a row waits for the transaction that changed it
// last, and the sessions behind it wait for the tuple.
var kinds = [...]string{
	"table", "table's end", "database", "page", "row", "row", "transaction", "row", "object", "advisory", "advisory",
	"transaction",
}

// waitType names the type of a wait event, its upper byte, as pg_stat_activity does (src/include/utils/wait_event.h).
// The types are the same from 14 to 18; the events are numbered anew in each version. Locks come from the lock
// manager, and a session without work is in no statement.
func waitType(event uint32) string {
	switch event >> 24 {
	case 1:
		return "LWLock"
	case 4:
		return "BufferPin"
	case 6:
		return "Client"
	case 7:
		return "Extension"
	case 8:
		return "IPC"
	case 9:
		return "Timeout"
	case 10:
		return "IO"
	}
	return ""
}

// conflicts are the modes that exclude each mode (LockConflicts in src/backend/storage/lmgr/lock.c), as bits; modes
// are counted from 1.
var conflicts = [...]uint32{
	1: 1 << 8,
	2: 1<<7 | 1<<8,
	3: 1<<5 | 1<<6 | 1<<7 | 1<<8,
	4: 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8,
	5: 1<<3 | 1<<4 | 1<<6 | 1<<7 | 1<<8,
	6: 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8,
	7: 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8,
	8: 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8,
}

// otherKind is a kind of lock that was added later.
const otherKind = "other"

func word(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

func half(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
