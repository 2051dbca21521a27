package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// Runtime is what executes the target's code.
type Runtime string

// The runtimes that perfdoctor distinguishes.
const (
	RuntimeJVM     Runtime = "jvm"
	RuntimeGo      Runtime = "go"
	RuntimePython  Runtime = "python"
	RuntimeNode    Runtime = "node"
	RuntimeRuby    Runtime = "ruby"
	RuntimePHP     Runtime = "php"
	RuntimeDotNet  Runtime = "dotnet"
	RuntimeErlang  Runtime = "erlang"
	RuntimeNative  Runtime = "native" // machine code without one of the above
	RuntimeKernel  Runtime = "kernel" // a kernel thread
	RuntimeUnknown Runtime = "unknown"
)

// runtimeRule recognises a runtime by the name of its program or of a library it maps.
type runtimeRule struct {
	runtime Runtime
	pattern *regexp.Regexp
	// with matches what is also mapped once the runtime runs something; it is nil for a library without another use.
	with *regexp.Regexp
}

// of returns the library that shows that the rule's runtime executes the code, and "" if none does.
func (r runtimeRule) of(libs []string) string {
	i := slices.IndexFunc(libs, r.pattern.MatchString)
	if i < 0 || r.with != nil && !slices.ContainsFunc(libs, r.with.MatchString) {
		return ""
	}
	return libs[i]
}

// programRules returns the rules that recognise interpreters by their executable. They leave out the JVM: a launcher
// named java is one only once it has mapped libjvm.so, and many launchers have other names.
func programRules() []runtimeRule {
	return []runtimeRule{
		{runtime: RuntimePython, pattern: regexp.MustCompile(`^(python|pypy)[0-9.]*$`)},
		{runtime: RuntimeNode, pattern: regexp.MustCompile(`^(node|nodejs)[0-9]*$`)},
		{runtime: RuntimeRuby, pattern: regexp.MustCompile(`^ruby[0-9.]*$`)},
		{runtime: RuntimePHP, pattern: regexp.MustCompile(`^php(-fpm|-cgi)?[0-9.]*$`)},
		{runtime: RuntimeErlang, pattern: regexp.MustCompile(`^beam(\.smp)?$`)},
	}
}

// libraryRules returns the rules that recognise a runtime by a mapped library, in this order: a JVM that embeds
// Python is a JVM.
func libraryRules() []runtimeRule {
	return []runtimeRule{
		{runtime: RuntimeJVM, pattern: regexp.MustCompile(`^libjvm\.so$`)},
		{runtime: RuntimeDotNet, pattern: regexp.MustCompile(`^libcoreclr\.so$`)},
		{runtime: RuntimeNode, pattern: regexp.MustCompile(`^libnode\.so`)},
		{
			runtime: RuntimePython, pattern: regexp.MustCompile(`^libpython[0-9.]*[a-z]*\.so`),
			// unbound and gdb are linked with libpython and hardly ever start it; a program that imports maps C
			// modules
			with: regexp.MustCompile(`\.(cpython-[-a-z0-9_]+|abi3)\.so$`),
		},
		{runtime: RuntimeRuby, pattern: regexp.MustCompile(`^libruby[-0-9.]*\.so`)},
		{runtime: RuntimePHP, pattern: regexp.MustCompile(`^libphp[0-9.]*\.so`)},
	}
}

// RuntimeOf returns what executes a process' code. It takes a millisecond, most of it for the list of mappings.
func (h *Host) RuntimeOf(p Process) Runtime {
	r, _ := h.runtimeOf(p.PID, p.Stat)
	return r
}

// runtimeOf returns what executes the process' code, and the sign that shows it, or why that is not known.
func (h *Host) runtimeOf(pid int, stat Stat) (Runtime, string) {
	if stat.Flags&FlagKernelThread != 0 {
		return RuntimeKernel, "kernel thread"
	}
	exe, err := os.Readlink(h.pidPath(pid, "exe"))
	if err != nil {
		return RuntimeUnknown, unreadable(err)
	}
	name := strings.TrimSuffix(path.Base(exe), " (deleted)")
	libs, mapsErr := h.mappedLibraries(pid)
	for _, rule := range libraryRules() {
		if lib := rule.of(libs); lib != "" {
			return rule.runtime, "maps " + lib
		}
	}
	for _, rule := range programRules() {
		if rule.pattern.MatchString(name) {
			return rule.runtime, "runs " + exe
		}
	}
	if mapsErr != nil {
		return RuntimeUnknown, unreadable(mapsErr)
	}
	return goOrNative(h.pidPath(pid, "exe"))
}

func unreadable(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return err.Error() + "; run as root, as its user, or with CAP_SYS_PTRACE"
	}
	return err.Error()
}

// goOrNative looks for the sections that the Go linker writes and strip keeps. It follows the link in procfs, which
// opens the very file that runs, even if it was replaced or lies in another mount namespace.
func goOrNative(exe string) (Runtime, string) {
	file, err := door.OpenMagic(path.Dir(exe), path.Base(exe))
	if err != nil {
		return RuntimeUnknown, unreadable(err)
	}
	defer file.Close()
	f, err := door.ELF(file)
	if err != nil {
		return RuntimeUnknown, unreadable(err)
	}
	for _, section := range []string{".go.buildinfo", ".note.go.buildid"} {
		if f.Section(section) != nil {
			return RuntimeGo, "has an ELF section " + section
		}
	}
	return RuntimeNative, "no sign of a managed runtime"
}

func (h *Host) mappedLibraries(pid int) ([]string, error) {
	f, err := door.Maps(h.pidPath(pid, ""))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMapNames(f)
}

// parseMapNames lists the base names of the shared objects in /proc/PID/maps, each once.
func parseMapNames(r io.Reader) ([]string, error) {
	seen := map[string]bool{}
	var names []string
	for m, err := range door.ParseMaps(r) {
		if err != nil {
			return nil, fmt.Errorf("maps: %w", err)
		}
		name := path.Base(m.Path)
		if strings.HasPrefix(m.Path, "/") && strings.Contains(name, ".so") && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names, nil
}
