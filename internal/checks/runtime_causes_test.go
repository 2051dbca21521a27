package checks

import (
	"os"
	"regexp"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
)

// TestCompilersLengthenPauses: if pauses are long because the collector's threads wait for a CPU, they are a
// consequence of the compilers that take it. Pauses of the same length in which the threads ran are a fault of their
// own.
func TestCompilersLengthenPauses(t *testing.T) {
	data, err := os.ReadFile(checktest.Find(t, "jit-warm-up/firing-lengthens-pauses")[0])
	if err != nil {
		t.Fatal(err)
	}
	waits := regexp.MustCompile(`("GC Thread#\d+",)[\d.]+\]`)
	for _, tc := range []struct {
		name string
		text []byte
		by   string
	}{
		{"they waited", data, "jit-warm-up pid 16322 (java)"},
		{"they ran", waits.ReplaceAll(data, []byte("${1}0.1]")), ""},
	} {
		res := check.Run(parseCase(t, tc.text), []*check.Check{named("jit-warm-up"), named("gc-overhead")},
			check.Options{Causes: Causes()})
		if len(res.Findings) != 2 {
			t.Fatalf("%s: %d findings, want those of both checks", tc.name, len(res.Findings))
		}
		if by := explainedBy(res, named("gc-overhead").Name); by != tc.by {
			t.Errorf("%s: gc-overhead is explained by %q, want %q", tc.name, by, tc.by)
		}
	}
}

// TestCompilersFillTheCPUs: if a fifth of the CPUs would be idle without the compilers, the queue for the CPUs is a
// consequence of the compilers.
func TestCompilersFillTheCPUs(t *testing.T) {
	res := check.Run(checktest.Open(t, "causes/cold-jvm"), Suite(), check.Options{Causes: Causes()})
	if p := res.Principal(); p == nil || p.Check != named("jit-warm-up").Name {
		t.Fatalf("the principal finding is %v", p)
	}
	if by := explainedBy(res, named("cpu-saturated").Name); by != res.Principal().ID() {
		t.Errorf("cpu-saturated is explained by %q, want %q", by, res.Principal().ID())
	}
}
