package flight

import (
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
)

// An entry is a window in memory. The ring and recordings in progress share it.
type entry struct {
	exporter.Window
	size   int64
	owners int
}

// A ring keeps all targets' windows of the last minutes, in the order in which they came.
type ring struct {
	entries []*entry
	held    int64 // bytes of all entries with an owner, be it the ring or a recording in progress
}

func (r *ring) retain(e *entry) {
	if e.owners == 0 {
		r.held += e.size
	}
	e.owners++
}

func (r *ring) release(e *entry) {
	if e.owners--; e.owners == 0 {
		r.held -= e.size
	}
}

// add takes another window. It drops windows that ended longer ago than keep, or that exceed the memory, the oldest
// first.
func (r *ring) add(w exporter.Window, keep time.Duration, memory int64) *entry {
	e := &entry{Window: w, size: w.Recording.Size()}
	r.retain(e)
	r.entries = append(r.entries, e)
	drop := 0
	for drop < len(r.entries)-1 && (w.End.Sub(r.entries[drop].End) > keep || r.held > memory) {
		r.release(r.entries[drop])
		drop++
	}
	r.entries = slices.Delete(r.entries, 0, drop) // Delete clears the dropped places, so that they hold nothing
	return e
}

// of returns the windows of a target that ended after since.
func (r *ring) of(target string, since time.Time) []*entry {
	var out []*entry
	for _, e := range r.entries {
		if e.Name == target && e.End.After(since) {
			out = append(out, e)
		}
	}
	return out
}
