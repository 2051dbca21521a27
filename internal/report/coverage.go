package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// highest is how many passed checks show their number: enough to see what comes next, few enough to read.
const highest = 3

// needsTarget is how a remedy begins if its data is read for a target only. The words after it differ by what the
// target must be.
const needsTarget = "name "

// coverage says in one line what passed and what could not run. -v replaces it with the lists.
func (t *text) coverage() {
	if t.verbose || len(t.d.Fine)+len(t.d.NotAssessed)+len(t.d.NoConcern) == 0 {
		return
	}
	text := fmt.Sprintf("%d passed", len(t.d.Fine))
	if top := t.d.highestShares(); len(top) > 0 {
		text += " (highest shares: " + strings.Join(top, ", ") + ")"
	}
	if n := t.d.Verdict.NotAssessed; n > 0 {
		text += fmt.Sprintf(", %d could not run%s", n, t.d.mostly())
	}
	if n := t.d.Verdict.NoConcern; n > 0 {
		text += fmt.Sprintf(", %d %s not apply to this target", n, do(n))
	}
	t.blank()
	t.line(bold, "CHECKS  ", "  ", text+": -v")
}

func do(n int) string {
	if n == 1 {
		return "does"
	}
	return "do"
}

// mostly is " (most need a target: --pid, --comm, --cgroup or --container)".
func (d *Data) mostly() string {
	if len(d.NotAssessed) == 0 {
		return ""
	}
	var parts []string
	if n := d.lackTarget(); 2*n > d.Verdict.NotAssessed {
		parts = append(parts, "most need a target: --pid, --comm, --cgroup or --container")
	} else if n > 0 {
		parts = append(parts, fmt.Sprintf("%d need a target: --pid, --comm, --cgroup or --container", n))
	}
	if n := d.Verdict.Blocked; n > 0 {
		parts = append(parts, fmt.Sprintf("%d lack a right or failed: %s%s", n, d.obstacle(), d.wayOut()))
	}
	if len(parts) == 0 {
		most := slices.MaxFunc(d.NotAssessed, func(a, b Gap) int { return cmp.Compare(len(a.Checks), len(b.Checks)) })
		why := most.Reason
		if n := len(most.Checks); n < d.Verdict.NotAssessed {
			why = fmt.Sprintf("%d: %s", n, why)
		}
		parts = append(parts, why)
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// obstacle returns the most frequent reason of the collectors that were denied or found no free descriptor, with an
// arrow behind it. It is empty if there were none.
func (d *Data) obstacle() (most string) {
	count := map[string]int{}
	for _, c := range d.Cost.Collectors {
		if c.Status == recording.StatusDenied || outOfFiles(c.Reason) {
			count[c.Reason]++
			if n := count[c.Reason]; most == "" || n > count[most] || n == count[most] && c.Reason < most {
				most = c.Reason
			}
		}
	}
	if most == "" {
		return ""
	}
	return most + " -> "
}

// outOfFiles reports whether a collector's reason is that no descriptor was free.
func outOfFiles(reason string) bool { return strings.Contains(reason, unix.EMFILE.Error()) }

// lackTarget counts the checks that would run if the diagnosis were of one process or group.
func (d *Data) lackTarget() (n int) {
	for _, g := range d.NotAssessed {
		if d.wholeHost() && strings.HasPrefix(g.Remedy, needsTarget) {
			n += len(g.Checks)
		}
	}
	return n
}

// highestShares returns the passed checks whose first value is the largest share of something: the next to be
// noticed.
func (d *Data) highestShares() []string {
	var list []Fine
	for _, f := range d.Fine {
		if len(f.Read) > 0 && f.Read[0].Unit() == quantity.Ratio && f.Read[0].Number() > 0 {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b Fine) int { return cmp.Compare(b.Read[0].Number(), a.Read[0].Number()) })
	var out []string
	for _, f := range list[:min(len(list), highest)] {
		out = append(out, f.Check+" "+f.Read[0].Text())
	}
	return out
}

// passed lists with -v every check that found nothing, and what it read.
func (t *text) passed() {
	if len(t.d.Fine) == 0 || !t.verbose {
		return
	}
	t.blank()
	t.line(bold, "FINE  ", "", plural(len(t.d.Fine), "check")+" passed")
	for _, f := range t.d.Fine {
		t.line(plain, "  ", "    ", f.Check)
		for _, v := range f.Read {
			t.line(plain, "    ", "      ", v.String())
		}
	}
}

// notAssessed lists with -v what could not run, by its reason.
func (t *text) notAssessed() {
	if len(t.d.NotAssessed) == 0 || !t.verbose {
		return
	}
	t.blank()
	t.line(bold, "NOT ASSESSED  ", "  ", plural(t.d.Verdict.NotAssessed, "check")+" could not run")
	for _, g := range t.d.NotAssessed {
		t.line(plain, "  ", "    ", strings.Join(g.Checks, ", ")+": "+g.Reason)
		if g.Remedy != "" {
			t.line(plain, "    -> ", "       ", g.Remedy)
		}
	}
}

// noConcern lists with -v the checks that do not apply because the target is of another kind.
func (t *text) noConcern() {
	for _, g := range t.d.NoConcern {
		if !t.verbose {
			return
		}
		t.blank()
		t.line(bold, "DOES NOT APPLY  ", "  ", fmt.Sprintf("%s: %s (%s)", plural(len(g.Checks), "check"), g.Reason,
			strings.Join(g.Checks, ", ")))
	}
}
