package process

import (
	"bytes"
	"context"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const (
	// maxWriters is how many of the target's processes are checked for what they write to: workers of one program
	// write to the same file systems.
	maxWriters = 32
	// maxWritten is how many descriptors of a process are looked at, 5 µs each: a server's sockets come after its logs.
	maxWritten = 256
	// maxFileSystems bounds the file systems that one process writes to: 100 µs each if the list of mounts is long.
	maxFileSystems = 8
	// maxFDInfo holds the first three lines of /proc/PID/fdinfo/FD: pos, flags and mnt_id (fs/proc/fd.c, seq_show).
	maxFDInfo = 256
)

func spaceMetrics() []metric.Metric {
	return []metric.Metric{
		metric.FileSystemSize, metric.FileSystemFree, metric.FileSystemInodes, metric.FileSystemUnused,
	}
}

func spaceCollector() collect.Collector {
	return collect.Collector{
		Name:     "file-systems",
		Doc:      "Room on the file systems that the target has files open for writing on; of a host on its root.",
		Overhead: "5 µs a descriptor of the first 256 of 32 processes, twice",
		Provides: spaceMetrics(),
		Pace:     collect.FirstAndLast,
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			return collect.SourceFunc(func(ctx context.Context, a *recording.Appender) error {
				if env.Target.Kind == host.KindHost {
					sampleRoot(env, a)
					return nil
				}
				return sampleSpace(ctx, env, a)
			}), nil
		},
	}
}

func sampleSpace(ctx context.Context, env collect.Env, a *recording.Appender) error {
	list, err := members(ctx, env)
	if err != nil {
		return err
	}
	seen := map[uint64]bool{}
	var denied error
	for _, p := range list[:min(len(list), maxWriters)] {
		if ctx.Err() != nil {
			break
		}
		systems, err := writtenTo(env.Host.Proc + "/" + strconv.Itoa(p.PID))
		if err != nil && !gone(err) {
			denied = err
		}
		for _, at := range systems {
			if !seen[at.Device] {
				seen[at.Device] = true
				appendSpace(a, at, env.Target.UID == 0, strconv.Itoa(p.PID), p.Comm, at.dir)
			}
		}
	}
	for _, m := range spaceMetrics() {
		if denied != nil && len(seen) == 0 {
			a.Missing(m, status(denied), denied.Error(), asRoot+" (or with CAP_SYS_PTRACE)")
		} else {
			a.None(m)
		}
	}
	return nil
}

// sampleRoot samples the root file system of the host's first process or, if this user may not read that,
// perfdoctor's own.
func sampleRoot(env collect.Env, a *recording.Appender) {
	space, err := door.SpaceOf(env.Host.Proc+"/1", "root")
	if err != nil {
		space, err = door.SpaceOf(env.Host.Proc+"/self", "root")
	}
	for _, m := range spaceMetrics() {
		if err != nil {
			a.Missing(m, status(err), err.Error(), asRoot)
		} else {
			a.None(m)
		}
	}
	if err == nil {
		appendSpace(a, written{space, "/"}, false, "1", "init", "/")
	}
}

func appendSpace(a *recording.Appender, at written, superuser bool, labels ...string) {
	free := at.FreeUser
	if superuser {
		free = at.Free
	}
	a.Gauge(metric.FileSystemSize, float64(at.Size), labels...)
	a.Gauge(metric.FileSystemFree, float64(free), labels...)
	if at.Inodes > 0 {
		a.Gauge(metric.FileSystemInodes, float64(at.Inodes), labels...)
		a.Gauge(metric.FileSystemUnused, float64(at.Unused), labels...)
	}
}

// A written is a file system and a directory on it that a process writes to.
type written struct {
	door.Space
	dir string
}

// writtenTo returns the file systems on which a process has files open for writing, each once. The error comes from
// listing its descriptors; files that are closed meanwhile, or served by another program, are left out.
func writtenTo(proc string) (out []written, err error) {
	names, err := door.Descriptors(proc, maxWritten)
	if err != nil {
		return nil, err
	}
	mounts := map[string]bool{}
	for _, name := range names {
		text, err := door.Descriptor(proc, name)
		if err != nil || !path.IsAbs(text) || isDevice(text) {
			continue
		}
		mount, writes := openForWriting(proc, name)
		if !writes || mounts[mount] || len(mounts) == maxFileSystems {
			continue
		}
		mounts[mount] = true
		if space, err := door.SpaceOf(proc, "fd/"+name); err == nil && space.Size > 0 {
			out = append(out, written{space, path.Dir(text)})
		}
	}
	return out, nil
}

// isDevice reports whether a path is a device, such as a terminal or /dev/null. /dev/shm is a file system.
func isDevice(text string) bool {
	return strings.HasPrefix(text, "/dev/") && !strings.HasPrefix(text, "/dev/shm/")
}

// openForWriting returns the mount that a descriptor is on, and whether it may be written to.
func openForWriting(proc, name string) (mount string, writes bool) {
	text, _, err := door.Read(proc+"/fdinfo/"+name, maxFDInfo)
	if err != nil {
		return "", false
	}
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		switch value = strings.TrimSpace(value); key {
		case "flags": // octal
			flags, err := strconv.ParseUint(value, 8, 32)
			writes = err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY
		case "mnt_id":
			return value, writes
		}
	}
	return "", false
}
