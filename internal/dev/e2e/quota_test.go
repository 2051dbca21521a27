package e2e

import (
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

// limited starts a spinning process three groups deep, with 20 % of a CPU allowed to the outermost.
func limited(t *testing.T, o lab.SpinOptions) (outer *lab.Cgroup, child *lab.Child) {
	t.Helper()
	l := labtest.New(t)
	host := newHost(t, l, "host")
	outer, err := l.Cgroup("outer")
	must(t, err)
	must(t, outer.SetQuota(100*time.Millisecond, 20*time.Millisecond))
	inner, err := l.Cgroup("outer", "middle", "inner")
	must(t, err)
	child, err = host.StartChild(inner, lab.ChildOptions{Mode: lab.ModeSpin, Duration: loadTime, Spin: o})
	must(t, err)
	time.Sleep(500 * time.Millisecond) // its start is throttled too
	return outer, child
}

func TestThrottledByAnAncestor(t *testing.T) {
	outer, child := limited(t, lab.SpinOptions{Threads: 1})
	d := expect(t, want{
		verdict: []string{"cpu-throttled"}, severity: []string{"critical"}, subject: outer.Path(),
		text: []string{"0.2 CPUs set 2 levels above"}, forbidden: []string{"cpu-throttled-burst", "cpu-saturated"},
	}.complaints, "--pid", pid(child))
	p, _ := d.principal()
	if p.Subject.Kind != "cgroup" || p.Subject.ID != outer.Path() {
		t.Errorf("subject %+v, want the ancestor %s and no other group", p.Subject, outer.Path())
	}
}

// TestThrottledInBursts uses less than half of its quota on average: four threads of 10 ms, twice a second.
func TestThrottledInBursts(t *testing.T) {
	outer, child := limited(t, lab.SpinOptions{Threads: 4, Burst: 10 * time.Millisecond, Every: 500 * time.Millisecond})
	expect(t, want{
		verdict: []string{"cpu-throttled-burst"}, subject: outer.Path(), forbidden: []string{
			"cpu-throttled",
			"cpu-saturated",
		},
	}.complaints, "--pid", pid(child))
}
