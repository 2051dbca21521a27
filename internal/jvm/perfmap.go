package jvm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm/perfmap"
)

// PerfMap asks the JVM where its compiled code lies at this moment. The map lacks code that is compiled later, and
// recompiled code lies elsewhere.
//
// It uses the diagnostic command Compiler.perfmap where the JVM has it (JDK 17 and later), which names the outermost
// method only. With inlined, and for older JVMs, it loads perfdoctor's own agent (5 kB, once; for what the JVM says
// about that see [VM.Load]), which names the inlined methods too. Its errors are a *Refusal, or say what did not
// parse.
func (vm *VM) PerfMap(ctx context.Context, inlined bool) (*perfmap.Map, error) {
	if !inlined {
		m, err := vm.commandMap(ctx)
		if !errors.Is(err, errNoCommand) {
			return m, err
		}
	}
	return vm.agentMap(ctx)
}

// CommandMap is [VM.PerfMap] for callers that must not leave an agent in the JVM: ok is false where an agent would be
// needed.
func (vm *VM) CommandMap(ctx context.Context) (m *perfmap.Map, ok bool, err error) {
	m, err = vm.commandMap(ctx)
	if errors.Is(err, errNoCommand) {
		return nil, false, nil
	}
	return m, true, err
}

// errNoCommand says that the JVM lacks Compiler.perfmap, or that it cannot be used.
var errNoCommand = errors.New("no Compiler.perfmap")

// commandMap makes the JVM write its map by itself. From JDK 23 on the path can be given; older JVMs write
// /tmp/perf-<pid>.map.
func (vm *VM) commandMap(ctx context.Context) (*perfmap.Map, error) {
	help, err := vm.Jcmd(ctx, "help Compiler.perfmap")
	if err != nil {
		return nil, err
	}
	// For a command that it does not have, the JVM says "Help unavailable" and succeeds (HelpDCmd::execute in
	// src/hotspot/share/services/diagnosticCommand.cpp).
	if !strings.HasPrefix(help, "Compiler.perfmap\n") {
		return nil, errNoCommand
	}
	place, command := vm.placeDefaultMap, "Compiler.perfmap"
	if strings.Contains(help, "filename") {
		place = func() (*File, error) { return vm.Place("perf.map", nil, 0o600) }
	}
	file, err := place()
	if err != nil {
		return nil, err
	}
	if strings.Contains(help, "filename") {
		command += " " + file.Path
	}
	if _, err := vm.Jcmd(ctx, command); err != nil {
		return nil, errors.Join(err, file.Remove())
	}
	return file.takeMap()
}

// markMode is the mode of a map with the JVM's own file name. The sticky bit means nothing on a regular file on Linux
// (inode(7)); it distinguishes our leftover file from one that the user had the JVM write.
const markMode = unix.S_ISVTX | 0o600

func (vm *VM) defaultMapName() string { return "perf-" + strconv.Itoa(vm.NSPid) + ".map" }

// placeDefaultMap creates the file that the JVM is going to write, so that the JVM does not follow a link that
// somebody put there, and does not complain on its standard output that it may not write the file. A map that is
// there already is the user's and stays: the error is then errNoCommand.
func (vm *VM) placeDefaultMap() (*File, error) {
	t, err := vm.enter()
	if err != nil {
		return nil, err
	}
	defer t.close()
	var file *File
	err = t.as.do(func() error {
		dir, err := t.directory("/tmp")
		if err != nil {
			return err
		}
		file, err = createNamed(dir, vm.defaultMapName(), nil, 0o600)
		if err != nil {
			closeQuietly(dir)
			return err
		}
		return unix.Fchmod(int(file.held.Fd()), markMode)
	})
	if err != nil && file == nil {
		return nil, fmt.Errorf("%w that can be used: /tmp/%s: %w", errNoCommand, vm.defaultMapName(), err)
	}
	file.as, file.Path = t.as, "/tmp/"+vm.defaultMapName()
	if err != nil {
		return nil, errors.Join(err, file.Remove())
	}
	return file, nil
}

// maxMap bounds a map. A large application server has 30,000 compiled methods; with inlined ones, some 500,000 lines of
// 150 bytes.
const maxMap = 256 << 20

// takeMap reads the map and removes its file.
func (f *File) takeMap() (m *perfmap.Map, err error) {
	defer func() { err = errors.Join(err, f.Remove()) }()
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	info, err := r.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.Size() > maxMap:
		return nil, fmt.Errorf("%s in the target is larger than %d bytes", f.Path, maxMap)
	case info.Size() == 0:
		return nil, fmt.Errorf("the JVM wrote nothing to %s", f.Path)
	}
	m, err = firewall.Parse("the perf map", func() (*perfmap.Map, error) { return perfmap.Parse(r) })
	if err != nil {
		return nil, fmt.Errorf("%s in the target: %w", f.Path, err)
	}
	return m, nil
}

// agentMap makes perfdoctor's agent write the map.
func (vm *VM) agentMap(ctx context.Context) (*perfmap.Map, error) {
	if r := vm.Loadable(); r != nil {
		return nil, r
	}
	out, err := vm.Place("perf.map", nil, 0o600)
	if err != nil {
		return nil, err
	}
	if err := vm.loadAgent(ctx, out.Path); err != nil {
		return nil, errors.Join(err, out.Remove())
	}
	return out.takeMap()
}

// loadAgent loads the agent, or calls the one that an earlier run loaded. A JVM that is still starting listens before
// it gives agents their interface (JVMTI_PHASE_LIVE): loadAgent asks it again.
func (vm *VM) loadAgent(ctx context.Context, options string) error {
	for {
		err := vm.loadAgentOnce(ctx, options)
		r, refused := errors.AsType[*Refusal](err)
		if !refused || r.Code != noInterface || vm.age() > youngest {
			return err
		}
		if pause(ctx) != nil {
			r.Cause, r.Remedy = Starting, "try again when it has started"
			return r
		}
	}
}

func (vm *VM) loadAgentOnce(ctx context.Context, options string) error {
	name := "perfmap-" + perfmap.AgentID() + ".so"
	if path, ok := vm.OwnLibrary(name); ok {
		err := vm.Load(ctx, path, options)
		if r, refused := errors.AsType[*Refusal](err); !refused || r.Code != -1 {
			return explainAgent(err)
		}
	}
	library, err := vm.Place(name, perfmap.Agent(), 0o500)
	if err != nil {
		return err
	}
	err = explainAgent(vm.Load(ctx, library.Path, options))
	if removeErr := library.Remove(); removeErr != nil {
		return errors.Join(err, removeErr)
	}
	return err
}

// OwnLibrary finds a library that an earlier run placed under this name, as given to [VM.Place], and that is still
// mapped. Its file is gone, but loading it by the same path uses the mapped one again: glibc compares paths before it
// opens files (_dl_map_object in elf/dl-load.c). Under musl that fails, and it has to be placed anew.
func (vm *VM) OwnLibrary(name string) (path string, ok bool) {
	for _, a := range vm.Agents {
		if a.Own && a.Name == name {
			return a.Path, true
		}
	}
	return "", false
}

// noInterface is NO_JVMTI of perfmap/agent/agent.c.
const noInterface = 1

// agentReasons are what the results of Agent_OnAttach in perfmap/agent/agent.c mean.
var agentReasons = map[int]string{
	noInterface: "the JVM does not give it an interface (JVMTI 1.1)",
	2:           "the JVM does not tell agents about compiled methods",
	3:           "it could not open its output file",
	4:           "the JVM did not generate the events",
	5:           "it could not write all of its output: is the file system full?",
	6:           "another run is asking the JVM for its map at this moment",
}

func explainAgent(err error) error {
	r, refused := errors.AsType[*Refusal](err)
	if refused && agentReasons[r.Code] != "" {
		r.Reason += ": " + agentReasons[r.Code]
	}
	return err
}

// isMarkedMap reports whether the mode is that of a map of ours, left by a killed run.
func isMarkedMap(mode uint32) bool { return mode&^unix.S_IFMT == markMode }
