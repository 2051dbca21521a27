package hostile_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// objects are what the kernel keeps for a process beyond its own memory, by the lines of /proc/PID/fdinfo that name
// them: programs and maps of BPF, and links (bpf_prog_show_fdinfo, bpf_map_show_fdinfo and bpf_link_show_fdinfo in
// kernel/bpf/syscall.c).
type objects map[object]bool

type object struct {
	kind string
	id   uint32
}

// The commands of bpf(2) that open an object by its id.
var byID = map[string]int{
	"prog_id": unix.BPF_PROG_GET_FD_BY_ID, "map_id": unix.BPF_MAP_GET_FD_BY_ID, "link_id": unix.BPF_LINK_GET_FD_BY_ID,
}

// add adds what a process holds now.
func (o objects) add(pid int) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return // of the pattern, which is right
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it was closed meanwhile
		}
		for line := range strings.Lines(string(text)) {
			var id uint32
			name, rest, _ := strings.Cut(line, ":")
			if _, known := byID[name]; !known {
				continue
			}
			if _, err := fmt.Sscan(rest, &id); err == nil && id > 0 {
				o[object{name, id}] = true
			}
		}
	}
}

// exists asks the kernel for an object. The kernel gives ids in turn, and reuses one only after 2^31
// (bpf_prog_alloc_id).
func (o object) exists() bool {
	attr := struct{ id, next, flags uint32 }{id: o.id}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(byID[o.kind]), uintptr(unsafe.Pointer(&attr)),
		unsafe.Sizeof(attr))
	if errno != 0 {
		return false
	}
	_ = unix.Close(int(fd))
	return true
}

// gone checks that nothing of an ended run is left: no process that it started, and no object that it held. The kernel
// frees these after a grace period of RCU. A process that another end of a pipe keeps is reaped a moment later.
func gone(t *testing.T, args []string, pid int, held objects) {
	t.Helper()
	var rest []string
	for deadline := time.Now().Add(grace); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		rest = nil
		if err := syscall.Kill(-pid, 0); !errors.Is(err, syscall.ESRCH) {
			rest = append(rest, "a process of its group")
		}
		for o := range held {
			if o.exists() {
				rest = append(rest, fmt.Sprintf("%s %d", o.kind, o.id))
			}
		}
		if len(rest) == 0 {
			return
		}
	}
	t.Errorf("%q has left %v", args, rest)
}

// state is what perfdoctor could have changed of the host and not restored, as lines.
type state []string

// settings are the settings that programs turn on to measure. kernel.perf_event_max_sample_rate is not among them,
// because the kernel lowers it itself.
var settings = []string{
	"kernel/bpf_stats_enabled", "kernel/sched_schedstats", "kernel/task_delayacct", "kernel/perf_event_paranoid",
	"kernel/kptr_restrict",
	"kernel/unprivileged_bpf_disabled", "net/core/bpf_jit_enable", "net/core/bpf_jit_kallsyms", "kernel/ftrace_enabled",
}

// ours takes the state now. It ignores what other users of the machine have: of mounts, probes and pinned objects it
// takes those with perfdoctor's name. A network namespace lives as long as a process, a descriptor or a mount, and so
// does a perf event.
func ours(t *testing.T) state {
	t.Helper()
	var s state
	for _, name := range settings {
		if text, err := os.ReadFile("/proc/sys/" + name); err == nil {
			s = append(s, name+" = "+strings.TrimSpace(string(text)))
		}
	}
	for _, file := range []string{
		"/proc/self/mountinfo", "/sys/kernel/tracing/kprobe_events", "/sys/kernel/tracing/uprobe_events",
		"/sys/kernel/debug/tracing/kprobe_events", "/sys/kernel/debug/tracing/uprobe_events",
	} {
		s = append(s, linesWith(file, "perfdoctor")...)
	}
	pinned, err := filepath.Glob("/sys/fs/bpf/*perfdoctor*")
	if err != nil {
		t.Fatal(err)
	}
	return append(s, pinned...)
}

func linesWith(file, word string) (out []string) {
	f, err := os.Open(file)
	if err != nil {
		return nil // this kernel lacks it
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.Contains(lines.Text(), word) {
			out = append(out, file+": "+lines.Text())
		}
	}
	return out
}

// changed says what is in one state and not in the other.
func (s state) changed(now state) string {
	var diff []string
	for _, line := range s {
		if !slices.Contains(now, line) {
			diff = append(diff, "-"+line)
		}
	}
	for _, line := range now {
		if !slices.Contains(s, line) {
			diff = append(diff, "+"+line)
		}
	}
	return strings.Join(diff, "\n")
}

// perfEventsOf counts the perf events that a process has open.
func perfEventsOf(pid string) (n int) {
	files, err := filepath.Glob("/proc/" + pid + "/fd/*")
	if err != nil {
		return 0 // of the pattern, which is right
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && to == "anon_inode:[perf_event]" {
			n++
		}
	}
	return n
}

// The differ sees what it should see: a kernel program that lives on, and one that is gone.
func TestDiffer(t *testing.T) {
	before := state{"kernel/bpf_stats_enabled = 0", "a"}
	if diff := before.changed(state{"kernel/bpf_stats_enabled = 1", "a"}); diff !=
		"-kernel/bpf_stats_enabled = 0\n+kernel/bpf_stats_enabled = 1" {
		t.Errorf("diff %q", diff)
	}
	if (object{"prog_id", 1<<31 - 1}).exists() {
		t.Error("a program that never was exists")
	}
}
