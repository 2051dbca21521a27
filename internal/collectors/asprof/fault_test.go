package asprof

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/jfr"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// TestJFRFault: a reader that fails on a recording of async-profiler's costs the profiles of that JVM. The run's
// recording says so and keeps the file.
func TestJFRFault(t *testing.T) {
	f, err := os.Open("../../jvm/jfr/testdata/sample.jfr")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &source{vm: &jvm.VM{PID: 7}, parse: func(r io.ReaderAt, size int64, _ jfr.Options) ([]*stacks.Profile, error) {
		_, err := r.ReadAt(make([]byte, 4)[:size], 0) // it believes a length
		return nil, err
	}}
	b := recording.NewBuilder()
	a := b.Appender()
	if err := s.read(f, a); err != nil {
		t.Fatal(err)
	}
	_, missing := a.Commit()
	if len(missing) != len(events) {
		t.Errorf("%d metrics are missing, want %d", len(missing), len(events))
	}
	for _, m := range missing {
		if m.Status != recording.StatusFailed || !strings.HasPrefix(m.Reason,
			"what async-profiler recorded of pid 7: perfdoctor failed on it") {
			t.Errorf("%+v", m)
		}
	}
	dir := filepath.Join(t.TempDir(), "saved")
	if err := b.Done(recording.Meta{}).Save(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "profiles", rawName)); err != nil {
		t.Error(err)
	}
}
