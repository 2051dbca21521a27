// Package find looks for the Java virtual machines among the processes of a target.
package find

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
)

const (
	// MaxVMs bounds the JVMs that are looked into: a target mostly has one, and a build a few.
	MaxVMs = 4
	// maxInspected bounds the processes that are inspected: each costs 1 ms, most of it for the list of its mappings.
	maxInspected = 100
)

// Found is one JVM of the target.
type Found struct {
	VM   *jvm.VM
	Comm string
}

// JVMs are the JVMs of a target: the process that the target is named after first, then those with the most CPU time.
type JVMs struct {
	List []Found // at most MaxVMs
	More int     // how many there are beyond these
}

// A Look finds the JVMs of one target once, for all who ask. The zero value is ready, and safe for use by several at
// once.
type Look struct {
	mu    sync.Mutex
	done  bool
	found JVMs
	err   error
}

// JVMs looks, or returns what was found when it was first asked; each caller gets copies of its own. It is not an
// error that there is none, unless a process that may be a JVM could not be looked into, or is still starting: that is
// a *[jvm.Refusal]. Other errors are those of [host.Host.Members].
func (l *Look) JVMs(ctx context.Context, h *host.Host, t host.Target) (JVMs, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done {
		l.found, l.err = look(ctx, h, t)
		l.done = ctx.Err() == nil // a look that was given up found nothing out
	}
	out := JVMs{List: slices.Clone(l.found.List), More: l.found.More}
	for i := range out.List {
		own := *out.List[i].VM
		out.List[i].VM = &own
	}
	return out, l.err
}

func look(ctx context.Context, h *host.Host, t host.Target) (JVMs, error) {
	members, err := h.Members(ctx, t)
	if err != nil {
		return JVMs{}, err
	}
	named := 0
	if t.Kind == host.KindProcess && len(t.PIDs) > 0 {
		named = t.PIDs[0]
	}
	slices.SortStableFunc(members, func(x, y host.Process) int {
		if x.PID == named || y.PID == named {
			return cmp.Compare(rank(x.PID == named), rank(y.PID == named))
		}
		return cmp.Compare(y.UTime+y.STime, x.UTime+x.STime)
	})
	return inspect(ctx, members[:min(len(members), maxInspected)], named)
}

func inspect(ctx context.Context, processes []host.Process, named int) (found JVMs, err error) {
	var unknown error // why the first process that may be a JVM could not be looked into
	for _, p := range processes {
		if err := ctx.Err(); err != nil {
			return JVMs{}, err
		}
		vm, err := firewall.Parse(fmt.Sprintf("process %d", p.PID),
			func() (*jvm.VM, error) { return jvm.Inspect(p.PID) })
		var r *jvm.Refusal
		switch {
		case err == nil:
			found.List = append(found.List, Found{vm, p.Comm})
		case firewall.IsFault(err), errors.As(err, &r) && (r.Cause == jvm.Denied || r.Cause == jvm.Starting):
			unknown = cmp.Or(unknown, err)
		case r == nil && (p.PID == named || p.Comm == "java"): // other programs need not be known
			return JVMs{}, err
		}
	}
	if len(found.List) == 0 && unknown != nil {
		return JVMs{}, unknown
	}
	found.More = max(0, len(found.List)-MaxVMs)
	found.List = found.List[:len(found.List)-found.More]
	return found, nil
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}
