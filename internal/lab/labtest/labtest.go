// Package labtest makes labs for tests. It is separate from lab so that the program, whose scenarios use labs, does
// not contain the testing package.
package labtest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// New makes a lab for one test, closed when the test ends. It skips the test without root.
func New(t testing.TB) *lab.Lab {
	t.Helper()
	testenv.Need(t, testenv.Root)
	l, err := lab.New(fmt.Sprintf("t%08x", rand.Uint32())) // tests of one process may overlap
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close lab: %v", err)
		}
	})
	return l
}
