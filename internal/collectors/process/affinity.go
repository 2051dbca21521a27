package process

import (
	"maps"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// maxLists bounds the lists of CPUs that are read: a program that pins its threads has one list per CPU, and a host
// has a few hundred CPUs.
const maxLists = 1024

// allowed holds the CPUs that the target's threads may run on, from all lists of the window together. taskset, a
// cpuset or the program itself may have set them.
type allowed struct {
	online  []int
	lists   map[string]bool // seen
	cpus    map[int]bool    // those of online that the lists have
	trouble error
}

func newAllowed(h *host.Host) allowed {
	online, err := h.OnlineCPUs()
	return allowed{online: online, lists: map[string]bool{}, cpus: map[int]bool{}, trouble: err}
}

// add adds the CPUs of one thread.
func (l *allowed) add(list string) {
	if list == "" || l.lists[list] || len(l.lists) >= maxLists {
		return
	}
	l.lists[list] = true
	cpus, err := host.ParseCPUList(list)
	if err != nil {
		l.trouble = err
	}
	for _, cpu := range cpus {
		if _, ok := slices.BinarySearch(l.online, cpu); ok {
			l.cpus[cpu] = true
		}
	}
}

func (l *allowed) append(a *recording.Appender) {
	switch {
	case l.trouble != nil:
		a.Missing(metric.TargetCPUs, status(l.trouble), l.trouble.Error(), asRoot)
	case len(l.cpus) == len(l.online):
		a.Gauge(metric.TargetCPUs, float64(len(l.online)), "all")
	default:
		for _, cpu := range slices.Sorted(maps.Keys(l.cpus)) {
			a.Gauge(metric.TargetCPUs, 1, strconv.Itoa(cpu))
		}
	}
}
