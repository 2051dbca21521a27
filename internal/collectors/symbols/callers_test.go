package symbols

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// TestCallees decodes the instruction before an address; the expectations are by hand.
func TestCallees(t *testing.T) {
	const at, function = 0x100, 0x1000
	for _, c := range []struct {
		name, code string // code; what ends at the address
		stub       string // at 0x200
		pointer    uint64 // at 0x300
		arm, want  bool
	}{
		{name: "direct", code: "90e8fb0e0000", want: false}, // to 0xffb
		{name: "direct", code: "90e8000f0000", want: true},
		{name: "by a pointer", code: "ff1500020000", pointer: function, want: true},
		{name: "by another pointer", code: "ff1500020000", pointer: function + 1},
		{name: "by a stub", code: "90e800010000", stub: "ff25fa000000", pointer: function, want: true},
		{name: "by a stub of IBT", code: "90e800010000", stub: "f30f1efaf2ff25f5000000", pointer: function, want: true},
		{name: "by a stub that pushes", code: "90e800010000", stub: "6800000000", pointer: function},
		{name: "of one that jumps there", code: "90e800010000", stub: "4889c6e9f80d0000", want: true},
		{name: "of one that jumps elsewhere", code: "90e800010000", stub: "4889c6e9f90d0000"},
		{name: "no call", code: "909090909090", pointer: function},
		{name: "BL", arm: true, code: "0000c1030094", want: true}, // 0xfc + 0x3c1*4 = 0x1000
		{name: "BL to another", arm: true, code: "0000c2030094"},
		{
			name: "BL of a stub", arm: true, code: "000041000094", stub: "10000090" + "118241f9" + "10020c91" +
				"20021fd6",
			pointer: function, want: true,
		},
		{name: "BL of one that jumps there", arm: true, code: "000041000094", stub: "1f2003d57f030014", want: true},
		{name: "B", arm: true, code: "0000c1030014"},
	} {
		t.Run(c.name, func(t *testing.T) {
			memory := make([]byte, 0x400)
			copy(memory[at-6:], unhex(t, c.code))
			copy(memory[0x200:], unhex(t, c.stub))
			memory[0x300], memory[0x301] = byte(c.pointer), byte(c.pointer>>8)
			callee := calleeOfX86
			if c.arm {
				callee = calleeOfARM
			}
			if got := callee(bytes.NewReader(memory), at, function); got != c.want {
				t.Errorf("a call of the function: %v, want %v", got, c.want)
			}
		})
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	check(t, err)
	return b
}

// FuzzCallee reads a hostile program's code, for both kinds of processors. It trusts nothing that is not there.
func FuzzCallee(f *testing.F) {
	f.Add([]byte("\xe8\x0b\x00\x00\x00\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\xff\x25\xf2\xff\xff\xff"),
		uint64(5), uint64(16))
	f.Add([]byte("\x04\x00\x00\x94\x00\x00\x00\x00\x00\x00\x00\x90\x11\x02\x40\xf9\x10\x02\x00\x91\x20"),
		uint64(4), uint64(16))
	f.Fuzz(func(t *testing.T, code []byte, to, function uint64) {
		memory := bytes.NewReader(code)
		if to > uint64(len(code)) && (calleeOfX86(memory, to+6, function) || calleeOfARM(memory, to+4, function)) {
			t.Error("a call is told of where no code is")
		}
		calleeOfX86(memory, to, function)
		calleeOfARM(memory, to, function)
	})
}
