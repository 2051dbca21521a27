package scenario

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLacks says for each need what is missing, and nothing if everything is there.
func TestLacks(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    Scenario
		want string // part of the answer; empty: nothing is missing
	}{
		{"nothing", Scenario{}, ""},
		{
			"what is there",
			Scenario{Needs: Needs{Tools: []string{"sh"}, CPUs: 1, Sysctls: []string{"kernel.ostype"}}},
			"",
		},
		{"a tool", Scenario{Needs: Needs{Tools: []string{"sh", "no-such-tool"}}}, "not installed: no-such-tool"},
		{"CPUs", Scenario{Needs: Needs{CPUs: 1 << 20}}, "it needs 1048576 CPUs"},
		{
			"a sysctl",
			Scenario{Needs: Needs{Sysctls: []string{"net.ipv4.no_such_key"}}},
			"no sysctl net.ipv4.no_such_key",
		},
		{
			"a guest",
			Scenario{VM: Guest{Mode: VMRequired, Reason: "it is global"}},
			"in a virtual machine only, with --vm: it is global",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.s.Lacks(t.TempDir())
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLacksInGuest(t *testing.T) {
	for want, s := range map[string]Scenario{
		"": {VM: Guest{Mode: VMRequired, Reason: "it is global"}, Needs: Needs{CPUs: 1 << 20}},
		"it does not run in a virtual machine: clocks":           {VM: Guest{Mode: VMNever, Reason: "clocks"}},
		"a virtual machine has perfdoctor in it, and not sh, wc": {Needs: Needs{Tools: []string{"sh", "wc"}}},
	} {
		if got := s.LacksInGuest(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestSkipped: a scenario that cannot run is skipped with the reason, and nothing is built.
func TestSkipped(t *testing.T) {
	s := Scenario{Name: "x", Needs: Needs{Tools: []string{"no-such-tool"}}}
	r, err := s.Run(t.Context(), Options{})
	if err != nil || r.Status != Skipped || r.Reason == "" || len(r.Phases) != 0 {
		t.Errorf("result %+v, error %v", r, err)
	}
}

// TestUndisturbed: a phase in which the hypervisor had the CPUs does not count, unless it always has them. With a
// planted fault it does.
func TestUndisturbed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		stolen   []bool // of each attempt
		held     bool
		compared bool
		want     int // attempts before the one that counts
	}{
		{"quiet", []bool{false}, false, true, 0},
		{"disturbed once", []bool{true, false}, false, false, 1},
		{"always", []bool{true, true, true}, false, false, 2},
		{"held all the same", []bool{true}, true, false, 0},
		{"held, but others are compared with it", []bool{true, false}, true, true, 1},
	} {
		ran, said := 0, 0
		p, err := undisturbed(func() (*Phase, error) {
			ran++
			return &Phase{stolen: tt.stolen[ran-1], Assertions: []Assertion{{Held: tt.held}}}, nil
		}, tt.compared, func() { said++ })
		if err != nil || p.Disturbed != tt.want || said != tt.want || ran != len(tt.stolen) {
			t.Errorf("%s: disturbed %d, said %d times, ran %d, error %v", tt.name, p.Disturbed, said, ran, err)
		}
	}
	if _, err := undisturbed(func() (*Phase, error) { return nil, ErrLeft }, false, nil); !errors.Is(err, ErrLeft) {
		t.Errorf("error %v", err)
	}
}

func TestPhases(t *testing.T) {
	s := Scenario{Cures: []Trial{{Name: "a"}, {Name: "b"}}, Placebos: []Trial{{Name: "c"}}}
	for _, tt := range []struct{ only, want []string }{
		{nil, []string{PhaseSick, "a", "b", "c"}},
		{[]string{}, []string{PhaseSick}},
		{[]string{"c", "a"}, []string{PhaseSick, "a", "c"}},
	} {
		var got []string
		list, err := s.phases(Options{Only: tt.only})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			got = append(got, p.name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("only %v (-want +got):\n%s", tt.only, diff)
		}
	}
	names, err := s.PhaseNames(Climb{})
	if diff := cmp.Diff([]string{PhaseSick, "a", "b", "c"}, names); diff != "" || err != nil {
		t.Errorf("names (-want +got):\n%s%v", diff, err)
	}
}

func TestLabName(t *testing.T) {
	if got := labName("time-wait-20000-many-destinations"); got != "time_wait_20000_many_destination" {
		t.Errorf("got %q", got)
	}
}
