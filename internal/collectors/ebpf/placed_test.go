package ebpf

import (
	"debug/elf"
	"math"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// TestPlaced: in a stripped program, a function without a symbol is named by its start and by the exported function
// beside it.
func TestPlaced(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Tool("gcc"), testenv.Tool("strip"))
	bin := filepath.Join(t.TempDir(), "shares")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	run("gcc", "-O1", "-Wl,--export-dynamic-symbol=thirty", "-o", bin, "testdata/c/shares.c")
	hidden := symbolOf(t, bin, "seventy")
	run("strip", bin)
	p := start(t, bin)
	own, _ := p.profiled(time.Second)
	p.end()
	want, all, right := stacks.Placed(hidden, "thirty"), int64(0), int64(0)
	for _, s := range own.Samples {
		all += s.Count
		if len(s.Stack) > 0 && own.Frames[s.Stack[0]].Name == want {
			right += s.Count
		}
	}
	if share := float64(right) / float64(max(all, 1)); math.Abs(share-0.7) > 0.15 {
		t.Errorf("%.2f of %d samples are at %s, want 0.7: %v", share, all, want, own.Frames)
	}
}

// symbolOf returns where a function of a program begins, according to its symbol.
func symbolOf(t *testing.T, program, function string) uint64 {
	t.Helper()
	f, err := elf.Open(program)
	check(t, err)
	defer f.Close()
	list, err := f.Symbols()
	check(t, err)
	for _, s := range list {
		if s.Name == function {
			return s.Value
		}
	}
	t.Fatalf("%s has no symbol of %s to begin with", program, function)
	return 0
}
