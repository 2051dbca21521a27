// Package testenv declares what a test needs from its machine.
//
// A test that needs root, a program or a kernel feature names it with [Need]. If it is missing, the test is skipped
// with the reason, so `go test ./...` is useful to anybody. But a skip is also how a test quietly stops testing.
// Continuous integration therefore lists in PERFDOCTOR_REQUIRE what its machine has. If a listed requirement is
// missing, the test fails instead:
//
//	PERFDOCTOR_REQUIRE=root,tool:nginx go test ./...
//	PERFDOCTOR_REQUIRE=all go test ./...
package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RequireVar is the environment variable that turns skips into failures: a comma-separated list of requirements,
// or "all".
const RequireVar = "PERFDOCTOR_REQUIRE"

// A Requirement is something a test needs from its machine, by its name in [RequireVar].
type Requirement string

const (
	// Root is user id 0 with the power to make namespaces, which root in an ordinary container lacks.
	Root Requirement = "root"
	// Unprivileged is a child process without privileges, made by [Drop].
	Unprivileged Requirement = "unprivileged"
	// BPF is permission to load a tracing program, and a kernel 4.17 or newer for its type.
	BPF Requirement = "bpf"
	// Java is a java command that starts.
	Java Requirement = "java"
	// Docker is a docker command whose daemon answers.
	Docker Requirement = "docker"
)

// toolPrefix begins a requirement for a program: "tool:nginx".
const toolPrefix = "tool:"

// Tool is the requirement for the program name in PATH.
func Tool(name string) Requirement { return Requirement(toolPrefix + name) }

// nobody is the user and group id that Debian, Fedora and Alpine give to "nobody", and the kernel's
// default overflow id (/proc/sys/kernel/overflowuid), so it owns nothing anywhere.
const nobody = 65534

// Need skips the test with the reasons if the machine lacks one of needs. It fails the test if [RequireVar] names a
// missing one.
func Need(t testing.TB, needs ...Requirement) {
	t.Helper()
	required, err := parseRequired(os.Getenv(RequireVar))
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	fatal := false
	for _, need := range needs {
		if !known(need) {
			t.Fatalf("testenv: unknown requirement %q", need)
		}
		if err := missing(need); err != nil {
			reasons = append(reasons, fmt.Sprintf("needs %s: %v", need, err))
			fatal = fatal || required.names(need)
		}
	}
	switch {
	case fatal:
		t.Fatalf("%s=%s forbids skipping: %s", RequireVar, os.Getenv(RequireVar), strings.Join(reasons, "; "))
	case len(reasons) > 0:
		t.Skip(strings.Join(reasons, "; "))
	}
}

// Drop makes cmd run without privileges: as nobody if the test is root, otherwise unchanged. The program and every
// directory above it must be readable to others. Files under t.TempDir are not: its parent has mode 0700.
func Drop(cmd *exec.Cmd) {
	if os.Geteuid() != 0 {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
}

// required is the parsed form of [RequireVar].
type required struct {
	all  bool
	list []Requirement
}

func (r required) names(need Requirement) bool { return r.all || slices.Contains(r.list, need) }

// parseRequired refuses an unknown name: a misspelt one would allow the very skip that it should forbid.
func parseRequired(text string) (required, error) {
	var r required
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case name == "all":
			r.all = true
		case known(Requirement(name)):
			r.list = append(r.list, Requirement(name))
		default:
			return required{}, fmt.Errorf("testenv: %s: unknown requirement %q", RequireVar, name)
		}
	}
	return r, nil
}

func known(need Requirement) bool {
	switch need {
	case Root, Unprivileged, BPF, Java, Docker:
		return true
	}
	name, isTool := strings.CutPrefix(string(need), toolPrefix)
	return isTool && name != ""
}

// missing returns nil if the machine has what is needed, otherwise the reason.
func missing(need Requirement) error {
	switch need {
	case Root:
		return missingRoot()
	case Unprivileged:
		return missingUnprivileged()
	case BPF:
		return missingBPF()
	case Java:
		return run("java -version", asIs)
	case Docker:
		return run("docker version", asIs)
	}
	_, err := exec.LookPath(strings.TrimPrefix(string(need), toolPrefix))
	return err
}

func missingRoot() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("user id is %d, not 0", uid)
	}
	err := run("true", func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	})
	if err != nil {
		return fmt.Errorf("root without CAP_SYS_ADMIN cannot make namespaces: %w", err)
	}
	return nil
}

func missingUnprivileged() error {
	if err := run("true", Drop); err != nil {
		return fmt.Errorf("cannot become user %d: %w", nobody, err)
	}
	return nil
}

// answerTime bounds a program's answer, because a docker client waits forever for a hung daemon. In an emulated guest
// on a busy machine, starting a program has taken more than 20 s.
const answerTime = 2 * time.Minute

// run runs a program that only answers a question. change adjusts its command first.
func run(command string, change func(*exec.Cmd)) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	words := strings.Fields(command)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	change(cmd)
	out, err := cmd.CombinedOutput()
	if err == nil || errors.Is(err, exec.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
}

func asIs(*exec.Cmd) {}

// progLoad is the head of union bpf_attr for BPF_PROG_LOAD (include/uapi/linux/bpf.h); the kernel treats everything
// after the given size as zero.
type progLoad struct {
	progType, insnCount uint32
	insns, license      uint64
	logLevel, logSize   uint32
	logBuf              uint64
	kernVersion, flags  uint32
}

// missingBPF loads "return 0" as a raw tracepoint program and closes it. Unlike a socket filter, that type is never
// allowed to unprivileged users.
func missingBPF() error {
	insns := [2]uint64{0xb7, 0x95} // BPF_ALU64|BPF_MOV|BPF_K r0 = 0; BPF_JMP|BPF_EXIT, as little-endian words
	license := [...]byte{'G', 'P', 'L', 0}
	attr := progLoad{
		progType:  unix.BPF_PROG_TYPE_RAW_TRACEPOINT,
		insnCount: uint32(len(insns)),
		insns:     uint64(uintptr(unsafe.Pointer(&insns))),
		license:   uint64(uintptr(unsafe.Pointer(&license))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	// The kernel saw two of the addresses as plain numbers, which do not keep the arrays alive.
	runtime.KeepAlive(&insns)
	runtime.KeepAlive(&license)
	if errno != 0 {
		return fmt.Errorf("bpf(BPF_PROG_LOAD): %w", errno)
	}
	return unix.Close(int(fd))
}
