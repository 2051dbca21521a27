package host

import (
	"os"
	"testing"
	"time"
)

// TestLateMembers: a listing that was kept serves again while it is young. One of few threads is not kept.
func TestLateMembers(t *testing.T) {
	h := Local()
	st, _, err := h.ReadStat(os.Getpid(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	target := Target{Kind: KindProcess, PIDs: []int{os.Getpid()}, StartTime: st.StartTime}
	list, err := h.LateMembers(t.Context(), target)
	if err != nil || len(list) == 0 || h.last.list != nil {
		t.Errorf("%v, %v, kept %v", list, err, h.last.list)
	}
	for age, again := range map[time.Duration]bool{0: true, time.Second: false} {
		h.last.of, h.last.at = [2]uint64{uint64(os.Getpid()), st.StartTime}, time.Now().Add(-age)
		h.last.list = []Process{{Stat{PID: 1 << 30}}}
		list, err := h.LateMembers(t.Context(), target)
		if err != nil || len(list) == 0 || (list[0].PID == 1<<30) != again {
			t.Errorf("after %v: %v, %v", age, list, err)
		}
	}
	if list, err := (&Host{Proc: "/proc"}).LateMembers(t.Context(), target); err != nil || len(list) == 0 {
		t.Errorf("a host that shares nothing: %v, %v", list, err)
	}
	target.StartTime++
	if _, err := h.LateMembers(t.Context(), target); err == nil {
		t.Error("another process was listed")
	}
}
