package exporter

import (
	"slices"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// unbounded are the names of labels whose values come and go with what runs on the host.
func unbounded() []string {
	return []string{
		"pid", "tid", "comm", "endpoint", "destination", "source", "listener", "peer", "cgroup", "name", "pool", "lock",
		"class", "holder",
		"holder_at", "holder_in", "waiter_at", "at", "on", "for", "waker_pid", "waker", "waker_comm", "device",
		"container", "user", "dir",
		"level", "irq", "cycle", "thread", "vantage", "syscall",
	}
}

// A new metric with an unbounded label must have a policy. Otherwise each process of a host would leave a series
// behind.
func TestPolicies(t *testing.T) {
	all := policies()
	for _, m := range metric.All() {
		d := m.Describe()
		without := func(l string) bool { return slices.Contains(unbounded(), l) }
		p, ok := all[d.Name]
		if !ok {
			if i := slices.IndexFunc(d.Labels, without); i >= 0 {
				t.Errorf("%s has the label %s, whose values have no bound, and no policy", d.Name, d.Labels[i])
			}
			continue
		}
		delete(all, d.Name)
		for _, l := range p.keep {
			if !slices.Contains(d.Labels, l) {
				t.Errorf("%s: the policy keeps the label %s, which it does not have", d.Name, l)
			}
			if without(l) && !slices.Contains(p.each, l) {
				t.Errorf("%s: the policy keeps the label %s without a bound", d.Name, l)
			}
		}
		for _, l := range p.each {
			if !slices.Contains(p.keep, l) {
				t.Errorf("%s: the policy bounds the label %s and does not keep it", d.Name, l)
			}
		}
		if p.leave == "" && p.own != slices.Contains(d.Labels, "level") {
			t.Errorf("%s: labels %v, but own is %v", d.Name, d.Labels, p.own)
		}
	}
	for name := range all {
		t.Errorf("there is a policy for %s, which is no metric", name)
	}
}
