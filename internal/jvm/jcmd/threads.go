// Package jcmd reads what HotSpot's diagnostic commands print.
//
// The texts are meant for people and differ between releases: those of JDK 11, 17, 21 and 25 are known, each with a
// recording under testdata. They come from the target and are not trusted: an unknown form is an error that quotes
// the text, never a zero.
package jcmd

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Dump is the output of `Thread.print -e` (src/hotspot/share/runtime/threads.cpp, Threads::print_on).
type Dump struct {
	Threads   []Thread
	Deadlocks []Deadlock
}

// Thread is one platform thread; virtual threads are not in a dump.
type Thread struct {
	Name      string
	Java      bool          // it runs Java code; else it is the virtual machine's own, such as "GC Thread#0"
	Daemon    bool          //
	ID        int           // of the kernel, in the target's innermost pid namespace
	CPU       time.Duration // used since it started; below 0 when the JVM did not say
	Allocated int64         // bytes of Java objects since it started; below 0 when the JVM did not say
	State     string        // RUNNABLE, BLOCKED, WAITING or TIMED_WAITING; "" for threads that are not Java's
	Frames    []Frame       // the innermost call first
	Locks     []Lock        // that it holds or waits for, the innermost call's first
}

// Frame is one call.
type Frame struct {
	Method string // java.lang.Thread.sleep
	Source string // Thread.java:509, "Native Method" or "Unknown Source"
}

// String returns "Work.main(Work.java:19)".
func (f Frame) String() string { return f.Method + "(" + f.Source + ")" }

// Lock is a monitor or synchronizer of a thread.
type Lock struct {
	Use     LockUse
	Address string // 0x00000000fef08268: only good to compare within one dump
	Class   string // java.lang.Object
	Frame   int    // index of the call, in Thread.Frames
}

// LockUse is what a thread does with a lock.
type LockUse string

// The uses, as HotSpot prints them (javaVFrame::print_lock_info_on in src/hotspot/share/runtime/vframe.cpp).
const (
	Entering   LockUse = "waiting to lock"              // blocked at a synchronized block or method
	Held       LockUse = "locked"                       // owned, unless the thread also waits on it
	WaitingOn  LockUse = "waiting on"                   // Object.wait: given up until notified
	Reentering LockUse = "waiting to re-lock in wait()" // notified, and blocked
	Parking    LockUse = "parking to wait for"          // LockSupport.park, with the blocker
)

// Deadlock is a cycle of threads, each waiting for the next one's lock.
type Deadlock struct{ Waits []Wait }

// Wait is one thread of a deadlock.
type Wait struct {
	Thread string
	Class  string // of the lock that it waits for
	Holder string // the thread that has it
}

// ParseThreads reads a thread dump.
func ParseThreads(text string) (Dump, error) {
	var d Dump
	if !strings.Contains(text, "Full thread dump") {
		return d, fmt.Errorf("no thread dump: it begins with %.60q", text)
	}
	body, deadlocks, found := strings.Cut(text, "\nFound one Java-level deadlock:")
	for line := range strings.Lines(body) {
		if err := d.line(strings.TrimRight(line, "\n")); err != nil {
			return Dump{}, err
		}
	}
	if len(d.Threads) == 0 {
		return Dump{}, fmt.Errorf("a thread dump without threads: it begins with %.60q", text)
	}
	if found {
		d.Deadlocks = parseDeadlocks(deadlocks)
	}
	return d, nil
}

func (d *Dump) line(line string) error {
	if strings.HasPrefix(line, `"`) {
		t, err := parseThread(line)
		if err != nil {
			return err
		}
		// JDK 11 and 17 print some of the virtual machine's own threads twice.
		if n := len(d.Threads); n == 0 || t.Java || !d.has(t.ID) {
			d.Threads = append(d.Threads, t)
		}
		return nil
	}
	if len(d.Threads) == 0 {
		return nil // the head
	}
	t := &d.Threads[len(d.Threads)-1]
	if state, ok := strings.CutPrefix(line, "   java.lang.Thread.State: "); ok {
		t.State, _, _ = strings.Cut(state, " ")
		t.Java = true
	}
	if call, ok := strings.CutPrefix(line, "\tat "); ok {
		t.Frames = append(t.Frames, parseFrame(call))
	}
	if use, ok := strings.CutPrefix(line, "\t- "); ok {
		t.addLock(use)
	}
	return nil
}

func (d *Dump) has(id int) bool {
	for i := range d.Threads {
		if d.Threads[i].ID == id {
			return true
		}
	}
	return false
}

// parseThread reads the line that a thread begins with:
//
//	"main" #3 [30716] prio=5 os_prio=0 cpu=45.27ms elapsed=4.26s allocated=762K defined_classes=47 tid=0x00007f nid=30716 …
//
// A name may hold anything, even quotes; the fields after it do not.
func parseThread(line string) (Thread, error) {
	end := strings.LastIndexByte(line, '"')
	if end == 0 {
		return Thread{}, fmt.Errorf("thread without the end of its name in %.80q", line)
	}
	t := Thread{Name: line[1:end], CPU: -1, Allocated: -1}
	for word := range strings.FieldsSeq(line[end+1:]) {
		if err := t.property(word); err != nil {
			return Thread{}, fmt.Errorf("%w in %.200q", err, line)
		}
		if t.ID > 0 {
			return t, nil // what follows is prose
		}
	}
	return Thread{}, fmt.Errorf("thread without nid in %.200q", line)
}

func (t *Thread) property(word string) (err error) {
	key, value, ok := strings.Cut(word, "=")
	switch {
	case word == "daemon":
		t.Daemon = true
	case strings.HasPrefix(word, "#"):
		t.Java = true
	case !ok:
	case key == "cpu":
		t.CPU, err = time.ParseDuration(value)
	case key == "allocated":
		t.Allocated, err = parseBytes(value)
	case key == "nid":
		t.ID, err = parseID(value)
	}
	return err
}

// parseID reads a thread id: hexadecimal up to JDK 20, decimal since (JDK-8297309).
func parseID(s string) (int, error) {
	n, err := strconv.ParseUint(s, 0, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("bad thread id %.20q", s)
	}
	return int(n), nil
}

// parseBytes reads 64B, 9737K, 32746M or 5G (byte_size_in_proper_unit and proper_unit_for_byte_size).
func parseBytes(s string) (int64, error) {
	digits := strings.TrimRight(s, "BKMG")
	n, err := strconv.ParseInt(digits, 10, 63)
	shift, known := map[string]uint{"": 0, "B": 0, "K": 10, "M": 20, "G": 30}[s[len(digits):]]
	if err != nil || n < 0 || !known || n > 1<<62>>shift {
		return 0, fmt.Errorf("bad size %.20q", s)
	}
	return n << shift, nil
}

// parseFrame reads "java.lang.Thread.sleep(java.base@17.0.15/Native Method)".
func parseFrame(call string) Frame {
	open := strings.LastIndexByte(call, '(')
	if open < 0 {
		return Frame{Method: call}
	}
	source := strings.TrimSuffix(call[open+1:], ")")
	source = source[strings.LastIndexByte(source, '/')+1:]
	return Frame{Method: call[:open], Source: source}
}

// addLock reads "waiting to lock <0x00000000fef08268> (a java.lang.Object)".
func (t *Thread) addLock(s string) {
	use, rest, ok := strings.Cut(s, " <")
	address, class, ok2 := strings.Cut(rest, "> (a ")
	if !ok || !ok2 || !strings.HasPrefix(address, "0x") {
		return // "eliminated", "no object reference available": nothing to compare with
	}
	t.Locks = append(t.Locks, Lock{
		Use: LockUse(strings.TrimSpace(use)), Address: address, Class: strings.TrimSuffix(class, ")"),
		Frame: max(0, len(t.Frames)-1),
	})
}

// parseDeadlocks reads what DeadlockCycle::print_on_with prints (src/hotspot/share/services/threadService.cpp).
func parseDeadlocks(text string) []Deadlock {
	var all []Deadlock
	for part := range strings.SplitSeq(text, "Found one Java-level deadlock:") {
		part, _, _ = strings.Cut(part, "Java stack information for the threads")
		if d := parseDeadlock(part); len(d.Waits) > 0 {
			all = append(all, d)
		}
	}
	return all
}

func parseDeadlock(text string) Deadlock {
	var d Deadlock
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if name, ok := strings.CutPrefix(line, `"`); ok {
			d.Waits = append(d.Waits, Wait{Thread: strings.TrimSuffix(name, `":`)})
			continue
		}
		if len(d.Waits) == 0 {
			continue
		}
		w := &d.Waits[len(d.Waits)-1]
		if _, class, ok := strings.Cut(line, ", "); ok && strings.HasPrefix(line, "  waiting ") {
			class = strings.TrimPrefix(strings.TrimPrefix(class, "("), "a ")
			w.Class = strings.TrimRight(class, "),")
		}
		if _, holder, ok := strings.Cut(line, `held by "`); ok {
			w.Holder = strings.TrimSuffix(holder, `"`)
		}
	}
	return d
}
