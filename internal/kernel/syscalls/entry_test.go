package syscalls

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Entry{
		"running\n":                  {Running: true},
		"-1 0x7ffc0000 0x7f000000\n": {SP: 0x7ffc0000, PC: 0x7f000000},
		"0 0x3 0x7ffd 0x1 0x0 0x0 0xff 0x7ffc 0x7f00\n": {
			Name: "read", Args: [6]uint64{3, 0x7ffd, 1, 0, 0, 255}, SP: 0x7ffc, PC: 0x7f00,
		},
		"9999 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n": {Name: "9999"},
	} {
		got, err := Parse([]byte(text))
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "0 0x1", "x 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0", "0 0x3 y 0x1 0x0 0x0 0xff 0x7ffc 0x7f00", "0 0x1 0x2",
	} {
		if e, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, e)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("0 0x3 0x7ffd 0x1 0x0 0x0 0xff 0x7ffc 0x7f00\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b)
		if err == nil && e.Running && e.Name != "" {
			t.Error("running in a system call")
		}
	})
}
