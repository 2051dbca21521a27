package threadstates

// What a call waits for, before its descriptor is known: the words of the label "for".
const (
	forOther   = "other"
	forFutex   = "futex"
	forMutex   = "mutex"
	forAnswer  = "answer"  // from a destination
	forMessage = "message" // from a destination that was not asked
	forRequest = "request" // from a client of its own port
	forConnect = "connect"
	forRoom    = "room"   // the peer takes no more
	forClient  = "client" // to accept
	forSocket  = "socket" // any other
	forPipe    = "pipe"
	forFile    = "file"
	forSleep   = "sleep"
	forChild   = "child"
	forEvents  = "events" // on any of several descriptors
	forLock    = "lock"   // of a file or record
	forSignal  = "signal"
	forMemory  = "memory" // a page fault
	forPoll    = "poll"   // on one descriptor, which has to be looked at first
)

// kinds says what calls wait for. Calls with forPipe have a descriptor as the first argument, which determines the
// rest.
var kinds = map[string]string{
	"read": forPipe, "readv": forPipe, "pread64": forPipe, "preadv": forPipe, "preadv2": forPipe,
	"recvfrom": forPipe, "recvmsg": forPipe, "recvmmsg": forPipe,
	"write": forPipe, "writev": forPipe, "pwrite64": forPipe, "pwritev": forPipe, "pwritev2": forPipe,
	"sendto": forPipe, "sendmsg": forPipe, "sendmmsg": forPipe, "sendfile": forPipe, "splice": forPipe,
	"fsync": forFile, "fdatasync": forFile, "sync_file_range": forFile, "ftruncate": forFile, "fallocate": forFile,
	"accept": forClient, "accept4": forClient, "connect": forConnect,
	"flock": forLock, "fcntl": forLock,
	"futex": forFutex, "futex_waitv": forFutex,
	"nanosleep": forSleep, "clock_nanosleep": forSleep,
	"wait4": forChild, "waitid": forChild, "vfork": forChild,
	"epoll_wait": forEvents, "epoll_pwait": forEvents, "epoll_pwait2": forEvents,
	"select": forEvents, "pselect6": forEvents, "poll": forPoll, "ppoll": forPoll,
	"io_getevents": forFile, "io_pgetevents": forFile, "io_uring_enter": forEvents,
	"pause": forSignal, "rt_sigtimedwait": forSignal, "rt_sigsuspend": forSignal,
}

// writes are the calls that wait for room, not for data.
var writes = map[string]bool{
	"write": true, "writev": true, "pwrite64": true, "pwritev": true, "pwritev2": true, "sendto": true,
	"sendmsg": true, "sendmmsg": true, "sendfile": true, "splice": true,
}

// hasDescriptor reports whether the first argument of calls of a kind is a descriptor.
func hasDescriptor(kind string) bool {
	switch kind {
	case forPipe, forFile, forClient, forConnect, forLock:
		return true
	}
	return false
}

// The operations of futex(2) that wait, without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
// (include/uapi/linux/futex.h).
const (
	futexWait   = 0
	futexLockPI = 6
	futexWaitBS = 9
	futexLock2  = 13
	futexCmd    = 0x7f
)
