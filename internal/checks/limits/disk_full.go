package limits

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramDiskUsed = &check.Param{
		Name: "used", Default: 0.995, Unit: quantity.Ratio,
		Why: "a file system that fills at the rate of a log fills its last half percent in minutes",
	}
	paramDiskLeft = &check.Param{
		Name: "left", Default: 256 << 20, Unit: quantity.Bytes,
		Why: "half of a percent of a large disk is room for days: a quarter of a GiB is none for a database",
	}
	paramDiskNone = &check.Param{
		Name: "none", Default: 16 << 10, Unit: quantity.Bytes,
		Why: "four blocks of 4 KiB: the next write that needs a block fails, and a file system keeps some for itself",
	}
)

var diskFull = &check.Check{
	Name:  "disk-full",
	Stage: check.Limits,
	Doc: `A file system that the target writes to is full

Without room a write fails with ENOSPC. Programs differ in what follows: a
database refuses all writes, a queue stops, a log is lost, a cache starts anew
at each request. No counter of the CPU, the disk or the network shows it.

Measured: statfs of the file systems on which the target's processes have files
open for writing (for a whole host, of its root): the bytes and files left for
the target's user, or for any user but the superuser. It is critical when
hardly a block or no file is left, a warning when little is. File systems that
another program serves (FUSE, NFS) are left out.

Fix: remove what fills it, or make it larger. A file that was removed and is
still open keeps its room until it is closed. Won't help: a restart of the
program. Disproof: df shows room.`,
	URL:   "https://man7.org/linux/man-pages/man2/write.2.html",
	Needs: []metric.Metric{metric.FileSystemFree, metric.FileSystemSize},
	Uses:  []metric.Metric{metric.FileSystemInodes, metric.FileSystemUnused},
	Params: []*check.Param{
		paramDiskUsed, paramDiskLeft, paramDiskNone,
	},
	Run: runDiskFull,
}

// A room is what is left on a file system, in bytes or in files.
type room struct {
	recording.GaugeSeries
	left, all, used quantity.Value
	files           bool
}

func runDiskFull(p *check.Pass) error {
	list := rooms(p)
	if len(list) == 0 {
		p.Read(quantity.Of("file systems that the target writes to", 0, "file systems"))
		return nil
	}
	p.Read(slices.MaxFunc(list, func(a, b room) int { return cmp.Compare(a.used.Number(), b.used.Number()) }).used)
	for _, r := range list {
		if r.used.Below(p.Param(paramDiskUsed)) || !r.files && r.left.AtLeast(p.Param(paramDiskLeft)) {
			continue
		}
		none := r.files && r.left.Number() == 0 || !r.files && r.left.Below(p.Param(paramDiskNone))
		p.Report(diskFinding(r, none, p.Meta.Target.Kind == "host"))
	}
	return nil
}

// rooms returns the last readings of each file system, of its bytes and its files.
func rooms(p *check.Pass) (out []room) {
	for _, kind := range []struct {
		left, all *metric.Gauge
		files     bool
	}{
		{metric.FileSystemFree, metric.FileSystemSize, false},
		{metric.FileSystemUnused, metric.FileSystemInodes, true},
	} {
		for _, s := range p.Gauge(kind.left) {
			all := p.Gauge(kind.all, "pid", s.Label("pid"), "dir", s.Label("dir"))
			if len(all) == 0 || all[0].Last() <= 0 {
				continue
			}
			unit := s.Metric.Describe().Unit
			size := quantity.Of("all", all[0].Last(), unit)
			used := quantity.Of("used", size.Number()-s.Last(), unit).Per(size).
				Named("used of the file system of %s", s.Label("dir"))
			out = append(out, room{s, quantity.Of("left", s.Last(), unit), size, used, kind.files})
		}
	}
	return out
}

func diskFinding(r room, none, host bool) check.Finding {
	dir, pid := r.Label("dir"), r.Label("pid")
	inTarget := "/proc/" + pid + "/root" + dir
	count := check.Commandf("du -xhd1 %s | sort -h | tail", inTarget)
	if r.files {
		count = check.Commandf("du -xd1 --inodes %s | sort -n | tail", inTarget)
	}
	severity, when := check.Warning, "once there is none, writes"
	if none {
		severity, when = check.Critical, "writes"
	}
	subject, whose := evidence.PIDSubject(pid, r.Label("comm")), ", which it writes to,"
	if host {
		subject, whose = check.Host, ""
	}
	return check.Finding{
		Subject:  subject,
		Severity: severity,
		Weight:   1,
		Summary: fmt.Sprintf("the file system of %s%s has %s left of %s: %s fail with \"No space left on device\" "+
			"(ENOSPC)", dir, whose, r.left.Text(), r.all.Text(), when),
		Evidence: []quantity.Value{r.used},
		Remedies: []check.Remedy{{
			Action:  "Find what fills it, and remove it or move it elsewhere; or make the file system larger.",
			Command: count,
			Risk:    "none in looking; what is removed is gone",
			Effect:  "writes succeed again as soon as there is room",
		}},
		Placebos: []string{
			"A restart of the program: it meets the same file system. (It helps where the program holds removed " +
				"files open: lsof +L1.)",
		},
		Disproof: "df and df -i show room for the target's user.",
	}
}
