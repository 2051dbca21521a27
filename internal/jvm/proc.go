package jvm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/cgroupfs"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// procStatus is the part of /proc/PID/status that is needed (fs/proc/array.c, proc_pid_status).
type procStatus struct {
	state    byte
	tgid     int
	tracer   int
	uid, gid int // effective
	groups   []int
	nspid    int // innermost; 0 before Linux 4.1
	caught   uint64
}

// parseStatus skips lines it does not know; a known line with a bad number, or a missing one, is an error.
func parseStatus(text []byte) (procStatus, error) {
	var s procStatus
	seen := 0
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte{':'})
		words := strings.Fields(string(value))
		known, err := s.set(string(key), words)
		if err != nil {
			return procStatus{}, fmt.Errorf("status: line %q: %w", bytes.TrimSpace(line), err)
		}
		if known {
			seen++
		}
	}
	// State, Tgid, TracerPid, Uid, Gid, Groups and SigCgt are in every kernel since 2.6.
	if seen < 7 {
		return procStatus{}, errors.New("status: lines are missing, the text is cut short")
	}
	return s, nil
}

// set takes one line and reports whether it is one that must be there.
func (s *procStatus) set(key string, words []string) (required bool, err error) {
	switch key {
	case "State":
		if len(words) == 0 {
			return true, errors.New("no state")
		}
		s.state = words[0][0]
	case "Tgid":
		s.tgid, err = number(words, 0)
	case "TracerPid":
		s.tracer, err = number(words, 0)
	case "Uid":
		s.uid, err = number(words, 1)
	case "Gid":
		s.gid, err = number(words, 1)
	case "Groups":
		for i := range words {
			n, err := number(words, i)
			if err != nil {
				return true, err
			}
			s.groups = append(s.groups, n)
		}
	case "SigCgt":
		if len(words) == 0 {
			return true, errors.New("no mask")
		}
		s.caught, err = strconv.ParseUint(words[0], 16, 64)
	case "NStgid":
		s.nspid, err = number(words, len(words)-1)
		return false, err
	default:
		return false, nil
	}
	return true, err
}

// number parses one word of a line. Ids are 32 bits without a sign.
func number(words []string, i int) (int, error) {
	if i < 0 || i >= len(words) {
		return 0, errors.New("too few numbers")
	}
	n, err := strconv.ParseUint(words[i], 10, 32)
	return int(n), err
}

func (vm *VM) readStatus() error {
	text, err := os.ReadFile(vm.proc("status"))
	if err != nil {
		return err
	}
	s, err := parseStatus(text)
	if err != nil {
		return fmt.Errorf("%s: %w", vm.proc("status"), err)
	}
	// The pid may be that of a thread of the JVM: its directory is below /proc too, though not listed.
	vm.PID = s.tgid
	vm.State, vm.Tracer = s.state, s.tracer
	vm.UID, vm.GID, vm.Groups = s.uid, s.gid, s.groups
	vm.NSPid = s.nspid
	if vm.NSPid == 0 {
		vm.NSPid = vm.PID
	}
	vm.CatchesQuit = s.caught&(1<<(unix.SIGQUIT-1)) != 0 // bit n-1 is signal n
	return nil
}

// startTime reads field 22 of /proc/PID/stat.
func startTime(file string) (uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	start, err := parseStartTime(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return start, nil
}

func parseStartTime(text []byte) (uint64, error) {
	// The second field is the name in parentheses, which may hold spaces and parentheses itself.
	words := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	// Field 3 is words[0] (proc_pid_stat in fs/proc/array.c).
	if len(words) < 20 {
		return 0, errors.New("stat: fields are missing")
	}
	start, err := strconv.ParseUint(string(words[19]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stat: bad start time: %w", err)
	}
	return start, nil
}

// mappedFiles lists the files in /proc/PID/maps, each once, with " (deleted)" where it was replaced.
func mappedFiles(dir string) ([]string, error) {
	f, err := door.Maps(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	files, err := parseMaps(f)
	if err != nil {
		return nil, fmt.Errorf("maps in %s: %w", dir, err)
	}
	return files, nil
}

func parseMaps(r io.Reader) ([]string, error) {
	seen := map[string]bool{}
	var files []string
	for m, err := range door.ParseMaps(r) {
		if err != nil {
			return nil, err
		}
		name := m.Path
		if m.Deleted {
			name += deletedMark
		}
		if !strings.HasPrefix(name, "/") || seen[name] {
			continue
		}
		seen[name] = true
		files = append(files, name)
	}
	return files, nil
}

const deletedMark = " (deleted)"

// baseName is the name of a mapped file without its directory, or the mark of a replaced one.
func baseName(file string) string { return path.Base(strings.TrimSuffix(file, deletedMark)) }

// recognise finds out which virtual machine the process is, by what it maps and by its program.
func (vm *VM) recognise(files []string) error {
	for _, file := range files {
		switch name := baseName(file); {
		case name == "libjvm.so" && vm.Kind == "":
			vm.Kind, vm.Library = HotSpot, file
		// The name goes on with the level of the VM: libj9vm29.so. OpenJ9 also has a small libjvm.so, which only
		// redirects to it.
		case strings.HasPrefix(name, "libj9vm"):
			vm.Kind, vm.Library = OpenJ9, file
		}
	}
	if vm.Kind != "" {
		vm.Sign = "maps " + vm.Library
		return nil
	}
	sign, err := nativeImageSign(vm.proc("exe"))
	if err != nil {
		return vm.unreadable(err)
	}
	if sign != "" {
		vm.Kind, vm.Sign = NativeImage, sign
		return nil
	}
	return vm.notJVM()
}

// notJVM distinguishes a launcher that has not yet loaded its virtual machine from any other program.
func (vm *VM) notJVM() error {
	comm, _ := os.ReadFile(vm.proc("comm"))
	if strings.TrimSpace(string(comm)) == "java" && vm.age() < youngest {
		return vm.refuse(Starting, "java has not yet loaded its virtual machine (libjvm.so is not mapped)",
			"try again when it has started")
	}
	return vm.refuse(NotJVM, "the process is not a JVM: neither libjvm.so nor libj9vm is mapped, and its program has "+
		"no sign "+
		"of a native image", "")
}

// age returns how long ago the process began; 0 when that is not known.
func (vm *VM) age() time.Duration {
	start, err := startTime(vm.proc("stat"))
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	// USER_HZ is 100 on amd64 and arm64 (include/asm-generic/param.h).
	return time.Duration(now.Nano()) - time.Duration(start)*10*time.Millisecond
}

// maxNames bounds the names of a program's dynamic symbols, in bytes: as many as package door reads of any table.
const maxNames = 64 << 20

// nativeImageSign looks for what GraalVM's native-image leaves in an executable: the section that holds the image
// heap, or the exported entry points of its C interface (graal_isolate.h), whichever the build kept.
func nativeImageSign(exe string) (string, error) {
	file, err := door.OpenMagic(path.Dir(exe), path.Base(exe))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil // a kernel thread has no program
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	f, err := door.ELF(file)
	if err != nil {
		var bad *elf.FormatError
		if errors.As(err, &bad) || errors.Is(err, io.EOF) {
			return "", nil
		}
		return "", err
	}
	if f.Section(".svm_heap") != nil {
		return "its program has an ELF section .svm_heap", nil
	}
	// Only the names of the dynamic symbols: looking at each symbol would take longer, for each process of a host.
	table := f.SectionByType(elf.SHT_DYNSYM)
	if table == nil || uint64(table.Link) >= uint64(len(f.Sections)) {
		return "", nil
	}
	text, err := door.Section(f.Sections[table.Link], maxNames)
	if err != nil {
		return "", nil // no native image has tables that cannot be read
	}
	for _, name := range []string{"graal_create_isolate", "__svm_version_info"} {
		if bytes.Contains(text, []byte("\x00"+name+"\x00")) {
			return "its program has a symbol " + name, nil
		}
	}
	return "", nil
}

func libcOf(files []string) Libc {
	for _, file := range files {
		switch name := baseName(file); {
		case strings.HasPrefix(name, "ld-musl-"), strings.HasPrefix(name, "libc.musl-"):
			return Musl
		// libc-2.28.so before glibc 2.34.
		case name == "libc.so.6", strings.HasPrefix(name, "libc-2."):
			return Glibc
		}
	}
	return ""
}

// compareNamespaces finds the namespaces that the target does not share with perfdoctor.
func (vm *VM) compareNamespaces() {
	for _, ns := range []struct {
		name  string
		other *bool
	}{{"mnt", &vm.OtherMount}, {"pid", &vm.OtherPID}, {"user", &vm.OtherUser}} {
		theirs, err := os.Readlink(vm.proc("ns/" + ns.name))
		if err != nil {
			vm.Notes = append(vm.Notes, fmt.Sprintf("%s namespace: %v", ns.name, err))
			continue
		}
		ours, err := os.Readlink("/proc/thread-self/ns/" + ns.name)
		if err != nil {
			vm.Notes = append(vm.Notes, fmt.Sprintf("own %s namespace: %v", ns.name, err))
			continue
		}
		*ns.other = theirs != ours
	}
}

// isFrozen asks the cgroup freezer. A kernel stack does not show it: many sleeps can be frozen where they are
// (TASK_FREEZABLE, Linux 6.1). If the control groups are mounted elsewhere, or not visible from perfdoctor's
// container, a frozen process looks like one that does not answer.
func (vm *VM) isFrozen() bool {
	text, err := os.ReadFile(vm.proc("cgroup"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if cgroupfs.Frozen("/sys/fs/cgroup", strings.TrimSuffix(line, "\n")) {
			return true
		}
	}
	return false
}
