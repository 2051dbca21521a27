package collectors_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestReopened opens, reads and closes all collectors that observe a host all the time, with their real programs in the
// kernel. It does so as often as an exporter in two hours, which reopens each every ten minutes. In the end, open files
// and memory are what they were after the third time.
func TestReopened(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	const times, settled = 12, 3
	h := host.Local()
	target, err := h.Resolve(t.Context(), host.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	list := collectors.Standing(true)
	files, heap, opened := 0, uint64(0), 0
	for i := range times {
		opened = 0
		for _, c := range list {
			src, err := collect.Open(t.Context(), c, collect.Env{
				Host: h, Target: target, Deep: true,
				Duration: time.Second,
			})
			if err != nil {
				continue // this machine does not have it
			}
			a := recording.NewBuilder().Appender()
			if err := src.Sample(t.Context(), a); err != nil {
				t.Errorf("%s, opened %d times: %v", c.Name, i+1, err)
			}
			if err := src.Close(); err != nil {
				t.Errorf("%s, opened %d times: %v", c.Name, i+1, err)
			}
			opened++
		}
		if i == settled-1 {
			files, heap = openFiles(t), heapInUse()
		}
	}
	nowFiles, nowHeap := openFiles(t), heapInUse()
	t.Logf("%d of %d collectors opened %d times: %d open files, then %d; %d KiB of heap, then %d", opened, len(list),
		times, files, nowFiles,
		heap>>10, nowHeap>>10)
	if opened < len(list)/2 {
		t.Errorf("only %d of %d collectors work here: this test says nothing", opened, len(list))
	}
	if nowFiles > files {
		t.Errorf("open files: %d after %d times, %d after %d", files, settled, nowFiles, times)
	}
	if nowHeap > heap+1<<20 { // anything that one of them keeps each time would be more
		t.Errorf("heap: %d bytes after %d times, %d after %d", heap, settled, nowHeap, times)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// heapInUse collects twice: objects with a finalizer go the second time.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
