package host

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestLateMembers: a listing is reused while it is young, if it is expensive or nothing was born since.
func TestLateMembers(t *testing.T) {
	h := Local()
	st, _, err := h.ReadStat(os.Getpid(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	target := Target{Kind: KindProcess, PIDs: []int{os.Getpid()}, StartTime: st.StartTime}
	tests := []struct {
		name       string
		age        time.Duration
		born       string // the last one then; "now" for the same as now
		dear, used bool
	}{
		{"dear and young", 0, "1", true, true},
		{"dear and old", time.Second, "1", true, false},
		{"something was born", 0, "1", false, false},
		{"nothing was born", 0, "now", false, true},
		{"nothing was born for long", time.Second, "now", false, false},
		{"it is not known what was born", 0, "", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			again := false
			for range 50 { // others on this host are born meanwhile
				born := tt.born
				if born == "now" {
					born = h.LastBorn()
				}
				l := h.last
				l.of, l.at = [2]uint64{uint64(os.Getpid()), st.StartTime}, time.Now().Add(-tt.age)
				l.born, l.dear, l.list = born, tt.dear, []Process{{Stat{PID: 1 << 30}}}
				list, err := h.LateMembers(t.Context(), target)
				if err != nil || len(list) == 0 {
					t.Fatal(list, err)
				}
				if again = list[0].PID == 1<<30; again == tt.used {
					break
				}
			}
			if again != tt.used {
				t.Errorf("used again: %v", again)
			}
		})
	}
	if list, err := (&Host{Proc: "/proc"}).LateMembers(t.Context(), target); err != nil || len(list) == 0 {
		t.Errorf("a host that shares nothing: %v, %v", list, err)
	}
	target.StartTime++
	if _, err := h.LateMembers(t.Context(), target); err == nil {
		t.Error("another process was listed")
	}
}

// TestLastBorn: a child is the last one born. A procfs that is not this one tells nothing.
func TestLastBorn(t *testing.T) {
	h := Local()
	before := h.LastBorn()
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^$")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	if after := h.LastBorn(); before == "" || after == before {
		t.Errorf("before a child %q, after it %q", before, after)
	}
	if got := (&Host{Proc: t.TempDir(), last: &listing{}}).LastBorn(); got != "" {
		t.Errorf("of an empty directory: %q", got)
	}
}
