package ebpf

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// TestUnwinder: a program without frame pointers has its whole chain of callers, in its own code and in the kernel.
func TestUnwinder(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Tool("gcc"))
	bin := filepath.Join(t.TempDir(), "nested")
	if out, err := exec.Command("gcc", "-O2", "-fomit-frame-pointer", "-o", bin, "testdata/c/nested.c").
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := start(t, bin)
	own, used := p.profiled(3 * time.Second)
	p.end()
	checkSum(t, own, used)
	var all, whole, inKernel, lent int64
	for _, s := range own.Samples {
		var names []string
		kernel := false
		for _, i := range s.Stack {
			kernel = kernel || own.Frames[i].Kind == stacks.Kernel
			if slices.Contains([]string{"spin", "c", "b", "less", "a", "main"}, own.Frames[i].Name) {
				names = append(names, own.Frames[i].Name)
			}
		}
		if !slices.Contains(names, "spin") {
			continue
		}
		all += s.Count
		if cmp.Equal(names, []string{"spin", "c", "b", "a", "main"}) ||
			cmp.Equal(names, []string{"spin", "c", "b", "less", "a", "main"}) {
			whole += s.Count
			if kernel {
				inKernel += s.Count
			}
			if own.Frames[s.Stack[0]].Name == "[vdso]" {
				lent += s.Count
			}
		}
	}
	t.Logf("%d of %d samples in spin have all its callers, %d in the kernel, %d in its code for programs", whole, all,
		inKernel, lent)
	if all < 100 || float64(whole) < 0.95*float64(all) || inKernel == 0 || lent == 0 {
		t.Errorf("%d of %d samples in spin have all its callers", whole, all)
	}
}

// TestEnded: processes that come and go between two readings of the target belong to it, and their code has names,
// though none of their files can be opened by the end.
func TestEnded(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), burnVar+"="+burnChildren)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p := &program{t: t, cmd: cmd}
	began := time.Now()
	own, used := p.profiledBy(2*time.Second, func() time.Duration { return time.Since(began) })
	brief := own.Inclusive(own.Set(named("briefly")))
	t.Logf("%d samples, %d of them in briefly; the parent itself used %v", own.Total().Count, brief.Count, used)
	if brief.Count < 10 || 4*brief.Count < own.Total().Count {
		t.Errorf("%d of %d samples are in the children's function, want most", brief.Count, own.Total().Count)
	}
}
