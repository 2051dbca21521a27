package ebpf

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// TestCallers: functions without a frame of their own, of the program and of the C library, are under those that call
// them, however they are linked; and those are under their own callers, once each.
func TestCallers(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Tool("gcc"))
	for name, flags := range map[string][]string{
		"table": {"-Wl,-z,lazy"}, "bound": {"-Wl,-z,now", "-fcf-protection=full"}, "pointer": {"-fno-plt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := filepath.Join(t.TempDir(), "callers")
			args := append([]string{"-O2", "-fno-omit-frame-pointer", "-o", bin, "testdata/c/callers.c"}, flags...)
			if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			p := start(t, bin)
			own, _ := p.profiled(2 * time.Second)
			p.end()
			for leaf, caller := range map[string]string{"leaf": "counting", "mem": "copier"} {
				all, right := int64(0), int64(0)
				for _, s := range own.Samples {
					if len(s.Stack) < 3 || !isLeaf(own.Frames[s.Stack[0]].Name, leaf) {
						continue
					}
					all += s.Count
					if own.Frames[s.Stack[1]].Name == caller && own.Frames[s.Stack[2]].Name == "middle" {
						right += s.Count
					}
				}
				t.Logf("%d of %d samples in %s are under %s ← middle", right, all, leaf, caller)
				if all < 3 || float64(right) < 0.97*float64(all) {
					t.Errorf("%d of %d samples in %s are under %s ← middle", right, all, leaf, caller)
				}
			}
		})
	}
}

func isLeaf(name, leaf string) bool {
	return name == leaf || leaf == "mem" && (strings.Contains(name, "memcpy") || strings.Contains(name, "memmove"))
}

// TestGoCallers: Go's memmove has no frame.
func TestGoCallers(t *testing.T) {
	done := make(chan struct{})
	o := openNamed(t, cpuProfileName, targetOf(t, os.Getpid()))
	go func() {
		defer close(done)
		for began := time.Now(); time.Since(began) < time.Second; {
			copyMuch()
		}
	}()
	<-done
	p, ok := o.done().Profile(stacks.HostCPU)
	if !ok {
		t.Fatal("no profile")
	}
	all, right := int64(0), int64(0)
	for _, s := range p.Samples {
		if p.ThreadOf(s).ID != os.Getpid() || len(s.Stack) < 2 || p.Frames[s.Stack[0]].Name != "runtime.memmove" {
			continue
		}
		all += s.Count
		if strings.HasSuffix(p.Frames[s.Stack[1]].Name, ".copyMuch") {
			right += s.Count
		}
	}
	t.Logf("%d of %d samples in memmove are under copyMuch", right, all)
	if all < 20 || float64(right) < 0.9*float64(all) {
		t.Errorf("%d of %d samples in memmove are under copyMuch", right, all)
	}
}

var copyFrom, copyTo [1 << 16]byte

//go:noinline
func copyMuch() {
	for range 100 {
		copy(copyTo[:], copyFrom[:len(copyFrom)-int(copyTo[0])])
	}
}

// TestCallees: the instruction before an address, by hand.
func TestCallees(t *testing.T) {
	const at, function = 0x100, 0x1000
	for _, c := range []struct {
		name, code string // of code, what ends at the address
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
		{name: "no call", code: "909090909090", pointer: function},
		{name: "BL", arm: true, code: "0000c1030094", want: true}, // 0xfc + 0x3c1*4 = 0x1000
		{name: "BL to another", arm: true, code: "0000c2030094"},
		{
			name: "BL of a stub", arm: true, code: "000041000094", stub: "10000090" + "118241f9" + "10020c91" +
				"20021fd6",
			pointer: function, want: true,
		},
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

// FuzzCallee reads a hostile program's code, for both kinds of processors: nothing is believed but what is there.
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
