package firewall

import (
	"errors"
	"strings"
	"testing"
)

func third(list []int) (int, error) { return list[2], nil }

var unmade map[string]int

func TestRun(t *testing.T) {
	plain := errors.New("cut short")
	tests := map[string]struct {
		f     func() error
		want  string
		fault bool
	}{
		"no error": {func() error { return nil }, "", false},
		"an error": {func() error { return plain }, "cut short", false},
		"a mistake": {
			func() error { _, err := third(nil); return err },
			"the counters of pid 7: perfdoctor failed on it (index out of range [2] with length 0; firewall.third, " +
				"firewall_test.go:9), which is a bug to report", true,
		},
		"a nil map": {func() error { unmade["a"] = 1; return nil }, "assignment to entry in nil map", true},
		"of our own": {
			func() error { panic("comparing seconds with bytes") },
			"(comparing seconds with bytes; firewall.TestRun", true,
		},
		// strings.Repeat panics with its own words. Here it stands for a panic that quotes its input.
		"of a library": {
			func() error { _ = strings.Repeat("x", -1); return nil },
			"(a panic with a string; strings.Repeat", true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := Run("the counters of pid 7", tt.f)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if tt.want == "" && err != nil || !strings.Contains(text, tt.want) {
				t.Errorf("error %q, want %q", text, tt.want)
			}
			if IsFault(err) != tt.fault {
				t.Errorf("IsFault(%v) is %v", err, !tt.fault)
			}
		})
	}
}

func TestParse(t *testing.T) {
	if n, err := Parse("a list", func() (int, error) { return third([]int{1, 2, 3}) }); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := Parse("a list", func() (int, error) { return third(nil) }); !IsFault(err) {
		t.Errorf("%v is no fault", err)
	}
}

// The firewall is around each event of a profile. There are millions of events.
func TestNoAllocation(t *testing.T) {
	list := []int{1, 2, 3}
	sum := 0
	if n := testing.AllocsPerRun(100, func() {
		_ = Run("an event", func() error { sum += list[2]; return nil })
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
