package ebpf

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// TestCallers: functions without a frame of their own, in the program and in the C library, appear below their callers,
// however they are linked. The callers appear below their own callers, once each.
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
