package jvm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm/hsperf"
	"github.com/perfdoctor/perfdoctor/internal/jvm/jcmd"
	"github.com/perfdoctor/perfdoctor/internal/jvm/typecheck"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// beyond fails like a parser that trusts a length.
func beyond(text string) byte { return text[len(text):][0] }

// A parser that fails on one answer gives an error that names the JVM and the command, and quotes no word of the
// answer.
func TestAnswerFault(t *testing.T) {
	_, err := parsed("7", "Thread.print", "hunter2", func(text string) (jcmd.Dump, error) {
		return jcmd.Dump{Threads: make([]jcmd.Thread, beyond(text))}, nil
	})
	if !firewall.IsFault(err) || !strings.HasPrefix(err.Error(),
		"pid 7: Thread.print: the answer: perfdoctor failed on it") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
}

// A panic of the goroutine that looks at the causes of collections does not end the run: the next sample says that it
// has failed.
func TestCausesFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		c := countCauses(func() (hsperf.Snapshot, error) {
			if looks++; looks == 3 {
				return hsperf.Snapshot{}, fmt.Errorf("byte %d", beyond(""))
			}
			return hsperf.Snapshot{}, nil
		})
		time.Sleep(10 * lookPeriod)
		err := c.append(recording.NewBuilder().Appender(), "7")
		if !firewall.IsFault(err) || !strings.HasPrefix(err.Error(),
			"pid 7: the causes of its collections: perfdoctor failed on it") {
			t.Errorf("error %v", err)
		}
		if looks != 3 {
			t.Errorf("%d looks", looks)
		}
		c.close()
	})
}

// If the search fails at a place in the code, that JVM loses its sample, and the error names the process.
func TestCodeFault(t *testing.T) {
	c := &checked{counts: map[typecheck.Place]float64{}, user: map[uint64]int{0x1000: 1}}
	code := typecheck.Code{Memory: failingMemory{}, Regions: []typecheck.Region{{Start: 0, End: 1 << 20}}}
	err := c.countSafely(context.Background(), 7, map[uint64]int{0x1000: 1}, code, recording.NewBuilder().Appender())
	if !firewall.IsFault(err) || !strings.HasPrefix(err.Error(), "the code of process 7: perfdoctor failed on it") {
		t.Errorf("error %v", err)
	}
}

// failingMemory is memory at which a reader fails.
type failingMemory struct{}

func (failingMemory) ReadAt(p []byte, _ int64) (int, error) { return int(beyond(string(p[:0]))), nil }
