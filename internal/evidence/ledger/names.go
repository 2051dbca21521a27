package ledger

import (
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A threadID is a thread of a process. Without a tid it stands for many threads that were summed up.
type threadID struct{ pid, tid string }

func threadOf(s *recording.Series) threadID { return threadID{s.Label("pid"), s.Label("tid")} }

// A shortPool is the threads of a process whose names fall into one pool as far as the kernel keeps them, 15 bytes.
type shortPool struct{ pid, name string }

// fullNames holds the pools of threads with known full names: the threads that a JVM lists.
type fullNames struct {
	ofThread map[threadID]string
	ofAll    map[shortPool]string // if all threads of the short name are in one pool
}

// A fullName says which pool a thread is in: by its name without the number at the end, and in the form of the JVM's
// collector, with * for each number.
type fullName struct{ pool, pattern string }

// fullNamesOf reads the full names of a recording. A short name that many pools share ("data-plane-kafk") is split,
// unless some of its threads were summed up: their pool is unknown.
func fullNamesOf(rec *recording.Recording) fullNames {
	names := fullNames{map[threadID]string{}, map[shortPool]string{}}
	listed := map[threadID]fullName{}
	for _, s := range rec.Info(metric.JVMThread) {
		listed[threadOf(s)] = fullName{metric.PoolOf(s.Label("name")), s.Label("pool")}
	}
	if len(listed) == 0 {
		return names
	}
	members, summed := map[shortPool]map[threadID]bool{}, map[shortPool]bool{}
	for _, s := range rec.Gauge(metric.ThreadStateTime) {
		id := threadOf(s.Series)
		short := shortPool{id.pid, metric.PoolOf(s.Label("comm"))}
		summed[short] = summed[short] || id.tid == ""
		if _, ok := listed[id]; !ok {
			continue
		}
		if members[short] == nil {
			members[short] = map[threadID]bool{}
		}
		members[short][id] = true
	}
	for short, ids := range members {
		names.add(short, ids, listed, summed[short])
	}
	return names
}

func (f fullNames) add(short shortPool, ids map[threadID]bool, listed map[threadID]fullName, summed bool) {
	pools, numbered := map[string]int{}, map[string]map[string]bool{}
	for id := range ids {
		of := listed[id]
		pools[of.pool]++
		if numbered[of.pattern] == nil {
			numbered[of.pattern] = map[string]bool{}
		}
		numbered[of.pattern][of.pool] = true
	}
	if len(pools) == 1 {
		for pool := range pools {
			f.ofAll[short] = pool
		}
		return
	}
	if summed {
		return
	}
	for id := range ids {
		of := listed[id]
		if len(numbered[of.pattern]) > 1 && pools[of.pool] == 1 {
			of.pool = metric.PoolOf(of.pattern) // "reader-4-of-db" has a different number for each thread
		}
		f.ofThread[id] = of.pool
	}
}

// of returns the pool of a thread that the kernel calls comm.
func (f fullNames) of(id threadID, comm string) string {
	short := metric.PoolOf(comm)
	if pool, ok := f.ofAll[shortPool{id.pid, short}]; ok {
		return pool
	}
	if pool, ok := f.ofThread[id]; ok {
		return pool
	}
	return short
}
