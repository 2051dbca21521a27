package host

import (
	"os"
	"testing"
	"time"
)

// TestLateMembers: a listing that was dear serves again while it is young, and a cheap one does not.
func TestLateMembers(t *testing.T) {
	h := Local()
	st, _, err := h.ReadStat(os.Getpid(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	target := Target{Kind: KindProcess, PIDs: []int{os.Getpid()}, StartTime: st.StartTime}
	other := []Process{{Stat{PID: 1 << 30}}}
	for name, tc := range map[string]struct {
		age, took time.Duration
		again     bool
	}{
		"dear":              {10 * time.Millisecond, 5 * time.Millisecond, true},
		"cheap":             {0, time.Millisecond, false},
		"old":               {time.Second, time.Second, false},
		"old for its share": {200 * time.Millisecond, 5 * time.Millisecond, false},
	} {
		h.last = &listing{
			of: [2]uint64{uint64(os.Getpid()), st.StartTime}, at: time.Now().Add(-tc.age), took: tc.took, list: other,
		}
		list, err := h.LateMembers(t.Context(), target)
		if err != nil || len(list) == 0 || (list[0].PID == 1<<30) != tc.again {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
	if list, err := (&Host{Proc: "/proc"}).LateMembers(t.Context(), target); err != nil || len(list) == 0 {
		t.Errorf("a host that shares nothing: %v, %v", list, err)
	}
	target.StartTime++
	if _, err := Local().LateMembers(t.Context(), target); err == nil {
		t.Error("another process was listed")
	}
}
