package symbols

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/collectors/dotnet"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/perfmap"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const (
	// maxMapFile bounds the map of a runtime: 30,000 methods are 3 MB.
	maxMapFile = 16 << 20
	// maxMaps bounds the memory that all maps of a run take: that is 16 maps of 30,000 methods, and a fifth of what
	// the packaged unit grants.
	maxMaps = 48 << 20
	// mapEntry is what an entry takes besides its name: address, size and the name's address and length, held twice
	// while parsed.
	mapEntry = 64
)

// MadeAtRunTime reports whether an address lies in executable memory without a file.
func (s *Symbolizer) MadeAtRunTime(pid uint32, ip uint64) bool {
	m, ok := s.mappingOf(pid, ip)
	// .NET 7 and later map compiled code twice, through a file in memory
	// (src/coreclr/minipal/Unix/doublemapping.cpp).
	return ok && (m.Path == "" || strings.HasPrefix(m.Path, "/memfd:doublemapper"))
}

// ReadMap gets the map of the code that a process's runtime compiled: it asks a JVM if askJVM is set, and .NET
// through names if there are any; otherwise it takes the map that the runtime keeps by itself. If there is none, it
// does nothing. The error says why a map that exists, or that a runtime should provide, was not read.
func (s *Symbolizer) ReadMap(ctx context.Context, pid uint32, askJVM bool, names *dotnet.Names) error {
	if askJVM {
		if asked, err := s.askJVM(ctx, pid); asked {
			return err
		}
	}
	m, err := names.Map(ctx, s.pidPath(pid, ""))
	switch {
	case err == nil:
		s.compiled[pid] = m
		return nil
	case errors.Is(err, dotnet.ErrNone):
		err = nil
	}
	return errors.Join(err, s.readOwnMap(ctx, pid))
}

// askJVM gets the map of a JVM by its own command. asked is false for another program, and for a JVM that lacks the
// command (before JDK 17): no agent is loaded for a profile that async-profiler takes better.
func (s *Symbolizer) askJVM(ctx context.Context, pid uint32) (asked bool, err error) {
	vm, err := jvm.Inspect(int(pid))
	if err != nil {
		if r, refused := errors.AsType[*jvm.Refusal](err); refused && r.Cause == jvm.NotJVM {
			return false, nil
		}
		return true, err
	}
	m, asked, err := vm.CommandMap(ctx)
	if m != nil {
		s.compiled[pid] = m
	}
	return asked, err
}

// readOwnMap takes the map that a runtime keeps by itself where perf looks for it, as node --perf-basic-prof does
// (tools/perf/Documentation/jit-interface.txt). Without one it does nothing.
func (s *Symbolizer) readOwnMap(ctx context.Context, pid uint32) error {
	if ctx.Err() != nil {
		return nil
	}
	inner, err := s.innermostPID(pid)
	if err != nil {
		return nil // it has ended
	}
	root, err := door.Enter(s.pidPath(pid, ""))
	if err != nil {
		return nil // it has ended
	}
	defer root.Close()
	f, err := root.OpenOwn(fmt.Sprintf("/tmp/perf-%d.map", inner))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return s.takeMap(pid, f)
}

// takeMap reads a map if there is room for it.
func (s *Symbolizer) takeMap(pid uint32, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size > maxMapFile {
		return fmt.Errorf("%s in the target: its %d MiB are more than the %d that are read of one map", f.Name(),
			size>>20, maxMapFile>>20)
	}
	if s.mapRoom+size > maxMaps {
		return fmt.Errorf("%s in the target: with the maps of other processes it takes more than %d MiB", f.Name(),
			maxMaps>>20)
	}
	m, err := firewall.Parse("the perf map", func() (*perfmap.Map, error) { return s.perfMap(io.LimitReader(f, size)) })
	if err != nil {
		return fmt.Errorf("%s in the target: %w", f.Name(), err)
	}
	s.mapRoom += size + int64(len(m.Entries))*mapEntry
	s.compiled[pid] = m
	return nil
}

// innermostPID returns the pid of the process in its own namespace.
func (s *Symbolizer) innermostPID(pid uint32) (int, error) {
	b, err := os.ReadFile(s.pidPath(pid, "status"))
	if err != nil {
		return 0, err
	}
	st, err := host.ParseStatus(b)
	if err != nil {
		return 0, err
	}
	return st.InnermostPID(int(pid)), nil
}

// compiledFrames returns the frames of an entry. It tells methods from the stubs and the interpreter that a runtime
// makes too: only a method's name has a class before it.
func compiledFrames(e perfmap.Entry) []stacks.Frame {
	var out []stacks.Frame
	names := e.Frames()
	for i, name := range names {
		f := stacks.Frame{Name: name, Kind: stacks.Native}
		if strings.Contains(name, ".") && !strings.Contains(name, " ") {
			f.Kind = stacks.Inlined
			if i == len(names)-1 {
				f.Kind = stacks.Compiled
			}
		}
		out = append(out, f)
	}
	return out
}
