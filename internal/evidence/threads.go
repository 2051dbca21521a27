package evidence

import (
	"strings"
)

// PoolOf gives the pool a thread belongs to: its name with its number taken off ("http-nio-8080-e", "GC Thread#3" is
// "GC Thread").
func PoolOf(comm string) string {
	name := strings.TrimRight(comm, "0123456789")
	name = strings.TrimRight(name, "-_#:/. ")
	if name == "" {
		return comm
	}
	return name
}
