package cgroup

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestProgramOnHost: with the BPF program, the host's groups have the same values as in their files, also new and
// removed groups.
func TestProgramOnHost(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	_, top := nested(t) // throttled all the time, so that the two are compared while nothing else changes
	byFiles, err := openHost(t.Context(), host.Local())
	if err != nil {
		t.Fatal(err)
	}
	if byFiles.cpu.version != 1 {
		t.Skip("the groups of this test are of v1")
	}
	byProgram, err := openHost(t.Context(), host.Local())
	if err != nil {
		t.Fatal(err)
	}
	byProgram.program = ebpf.Load(&ebpf.Loader{}, func(ctx context.Context) (*ebpf.Bandwidth, error) {
		return ebpf.OpenBandwidth(ctx, &ebpf.Loader{}, host.Local(), byProgram.cpu.dir)
	})
	t.Cleanup(func() {
		if err := byProgram.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := byProgram.program.Wait(); err != nil {
		t.Fatal(err)
	}
	const quiet = "/perfdoctor-test-quiet"
	sampled := func(s *hostSource) (quota []string, periods float64) {
		b := recording.NewBuilder()
		a := b.Appender()
		if err := s.Sample(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.Commit()
		rec := b.Done(recording.Meta{})
		for _, m := range cpuMetrics() {
			for _, line := range describe(rec, m) {
				if strings.Contains(line, quiet) {
					quota = append(quota, line)
				}
			}
		}
		for _, c := range rec.Counter(metric.CgroupPeriods, "cgroup", top) {
			periods = c.Points[0].Value
		}
		return quota, periods
	}
	sampled(byProgram)
	dir := byFiles.cpu.dir + quiet
	cpuGroup(t, dir)
	for file, value := range map[string]string{
		"cpu.cfs_period_us": "50000", "cpu.cfs_quota_us": "35000",
		"cpu.shares": "512",
	} {
		if err := os.WriteFile(dir+"/"+file, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(300 * time.Millisecond) // some periods of the other group
	before, least := sampled(byFiles)
	got, periods := sampled(byProgram)
	_, most := sampled(byFiles)
	if diff := cmp.Diff(before, got); diff != "" || len(got) == 0 {
		t.Errorf("a group that does nothing (-files +program):\n%s", diff)
	}
	if periods < least || periods > most || least == 0 {
		t.Errorf("%v periods, the files say %v before and %v after", periods, least, most)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if gone, _ := sampled(byProgram); len(gone) != 0 {
		t.Errorf("a group that was removed: %v", gone)
	}
}
