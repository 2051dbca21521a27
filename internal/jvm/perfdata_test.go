package jvm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm/hsperf"
)

// A parser that fails on the counters of one JVM gives an error that names their file.
func TestCountersFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hsperfdata")
	if err := os.WriteFile(path, make([]byte, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	p := newPerfData(f, 0, 64)
	defer p.Close()
	p.parse = func(b []byte) (hsperf.Snapshot, error) { return hsperf.Snapshot{}, beyond(b) }
	p.locate = func(b []byte, _ map[string]bool) (hsperf.Part, error) { return hsperf.Part{}, beyond(b) }
	_, readErr := p.Read()
	_, partErr := p.Part(nil)
	for what, err := range map[string]error{"Read": readErr, "Part": partErr} {
		if !firewall.IsFault(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(),
			"jvm.beyond") {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

// beyond fails like a parser that trusts a length.
func beyond(b []byte) error { return fmt.Errorf("byte %d", b[len(b):][0]) }
