package metric

import "strings"

// PoolOf returns the pool of a thread, which is its name without the number: it strips all digits, blanks and
// -_#.:/[]() from the end, so "GC Thread#3" is in "GC Thread" and "pool-1-thread-7" in "pool-1-thread". It strips all
// at once, because the kernel cuts names at 15 bytes, wherever in the number that is: "qtp1873653341-1" and
// "qtp1873653341-" are both in "qtp". "http-nio-8080-e" and "nioEventLoopGro" have lost their number to that cut and
// stay. A name without anything else stays too.
func PoolOf(comm string) string {
	pool := strings.TrimRight(comm, "0123456789 -_#.:/[]()")
	if pool == "" {
		return comm
	}
	return pool
}

// HeldBy separates a mutex from its owner in the label on of [ThreadStateTime]: "0x5581 held by thread 12".
const HeldBy = " held by thread "
