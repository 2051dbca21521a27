package postgres

import "encoding/binary"

// What a session says of itself lies in a struct PgBackendStatus in shared memory (src/include/utils/backend_status.h),
// to which the symbol MyBEEntry leads in each process. It is the same from 14 to 18.
const (
	statusCount    = 0 // changes while it is written, when it is odd
	statusXact     = 24
	statusBegan    = 32 // when its statement did
	statusDatabase = 48
	statusUser     = 52
	statusState    = 232
	statusText     = 248
	statusSize     = 256
)

// States of a session, as pg_stat_activity calls them. A state that is "" says that the server keeps none
// (track_activities), or that the session only starts.
const (
	active     = "active"
	idle       = "idle"
	inXact     = "idle in transaction"
	inXactFail = "idle in transaction (aborted)"
)

// statesOf14 are those of enum BackendState until 17; in 18 there is one more, a session that starts.
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

// What a session waits for stands in its struct PGPROC (src/include/storage/proc.h), to which MyProc leads: the
// address of the LOCK, that of its own request, and the mode. Where, differs by version, before the 256th byte in all;
// a request says whose it is and for which lock, so that the place is found by that.
const (
	procSize  = 256
	waitFirst = 64 // behind the links and the latch
	waitSize  = 20
)

// kinds name locks by enum LockTagType. Who waits for a row waits for the transaction that changed it last, and those
// behind it for the tuple.
var kinds = [...]string{
	"table", "table's end", "database", "page", "row", "row", "transaction", "row", "object", "advisory", "advisory",
	"transaction",
}

// waitType names the upper byte of a wait event, as of pg_stat_activity (src/include/utils/wait_event.h): the same from
// 14 to 18. Which event it is, is numbered anew in each version. Locks are told by the lock manager, and who has no
// work is in no statement.
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

// otherKind is a kind of lock that came later.
const otherKind = "other"

func word(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

func half(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
