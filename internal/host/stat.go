package host

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// FlagKernelThread is PF_KTHREAD of include/linux/sched.h in Stat.Flags.
const FlagKernelThread = 0x00200000

// Stat is one line of /proc/PID/stat or /proc/PID/task/TID/stat (fs/proc/array.c, do_task_stat). Times are in ticks
// of USER_HZ (Facts.UserHZ, 100 on every architecture perfdoctor runs on). For a process the CPU times and faults are
// the sum of its threads, ended ones too; for a thread they are its own.
type Stat struct {
	PID       int
	Comm      string // at most 15 bytes of any kind for user threads, up to 63 for kernel workers
	State     byte   // R running, S sleeping, D uninterruptible, T stopped, t traced, Z zombie, X dead, I idle kernel
	PPID      int
	Flags     uint32 // PF_* of include/linux/sched.h
	MinFlt    uint64 // faults served without reading from a disk
	MajFlt    uint64 // faults that waited for a disk
	UTime     uint64 // ticks in user mode, guest time included
	STime     uint64 // ticks in kernel mode
	CUTime    uint64 // UTime of ended children that it waited for, and of theirs; a thread has its process's
	CSTime    uint64 // STime of the same
	Threads   int
	StartTime uint64 // ticks after boot
	VSize     uint64 // bytes
	RSS       int64  // pages; the kernel's own per-CPU batching makes it inexact since Linux 6.2
	Processor int    // the CPU it last ran on
	// BlkIODelay is ticks of waiting for block I/O. It stays 0 when delay accounting is off, the default since
	// Linux 5.14: probe DelayAccounting before reading a meaning into it.
	BlkIODelay uint64
	GuestTime  uint64 // ticks of running a virtual CPU, also counted in UTime
}

// A TaskID identifies a process or thread for good: the kernel may reuse its id after it has ended.
type TaskID struct {
	ID    int    // of the process or thread
	Start uint64 // ticks after boot
}

// Task returns the identity of the process or thread that the line is about.
func (s *Stat) Task() TaskID { return TaskID{s.PID, s.StartTime} }

// minStatFields is the number of fields that every kernel since 2.6.24 prints after the command name: fields 3
// (state) to 44 of proc(5).
const minStatFields = 42

// ParseStat parses one stat line. The command name may hold parentheses, spaces and line breaks; whatever follows the
// last ')' is the kernel's. Its one allocation is the command name.
//
// prometheus/procfs is too slow for a call per thread and second: its Proc.Stat opens an os.File, reads into a fresh
// buffer and scans with fmt.Fscan. That took 17 µs and 30 allocations (1320 B) a thread, where ReadStat took 8 µs and
// 3 allocations (80 B), nearly all of it in the kernel (BenchmarkReadStat, BenchmarkReadStatProcfs; Linux 6.18).
func ParseStat(b []byte) (Stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Stat{}, errors.New("stat: no command name in parentheses")
	}
	f := fields{rest: b[end+1:]}
	var s Stat
	s.PID = int((&fields{rest: b[:open]}).signed("pid", 32))
	if s.PID < 1 {
		return Stat{}, fmt.Errorf("stat: bad pid %q", clip(b[:open]))
	}
	s.Comm = string(b[open+1 : end])
	state := f.next()
	if len(state) != 1 {
		return Stat{}, fmt.Errorf("stat: bad state %q", clip(state))
	}
	s.State = state[0]
	s.PPID = int(f.signed("ppid", 32))
	f.skip(4) // pgrp session tty_nr tpgid
	s.Flags = uint32(f.unsigned("flags", 32))
	s.MinFlt = f.unsigned("minflt", 64)
	f.skip(1) // cminflt
	s.MajFlt = f.unsigned("majflt", 64)
	f.skip(1) // cmajflt
	s.UTime = f.unsigned("utime", 64)
	s.STime = f.unsigned("stime", 64)
	// Linux prints these two with a sign.
	s.CUTime = uint64(max(0, f.signed("cutime", 64)))
	s.CSTime = uint64(max(0, f.signed("cstime", 64)))
	f.skip(2) // priority nice
	s.Threads = int(f.signed("num_threads", 32))
	f.skip(1) // itrealvalue
	s.StartTime = f.unsigned("starttime", 64)
	s.VSize = f.unsigned("vsize", 64)
	s.RSS = f.signed("rss", 64)
	f.skip(14) // rsslim to exit_signal
	s.Processor = int(f.signed("processor", 32))
	f.skip(2) // rt_priority policy
	s.BlkIODelay = f.unsigned("delayacct_blkio_ticks", 64)
	s.GuestTime = f.unsigned("guest_time", 64)
	f.skip(1) // cguest_time
	if f.err != nil {
		return Stat{}, fmt.Errorf("stat: %w", f.err)
	}
	if f.n < minStatFields {
		return Stat{}, fmt.Errorf("stat: %d fields after the command name, want %d or more", f.n, minStatFields)
	}
	return s, nil
}

// fields walks numbers separated by blanks and keeps the first error.
type fields struct {
	rest []byte
	n    int // fields seen
	err  error
}

// next returns the next field, empty at the end.
func (f *fields) next() []byte {
	i := 0
	for i < len(f.rest) && isBlank(f.rest[i]) {
		i++
	}
	start := i
	for i < len(f.rest) && !isBlank(f.rest[i]) {
		i++
	}
	field := f.rest[start:i]
	f.rest = f.rest[i:]
	if len(field) > 0 {
		f.n++
	}
	return field
}

func (f *fields) skip(n int) {
	for range n {
		f.next()
	}
}

func (f *fields) unsigned(name string, bits int) uint64 {
	field := f.next()
	if f.err != nil {
		return 0
	}
	// The compiler does not copy the bytes here: ParseUint's argument does not outlive the call on success.
	v, err := strconv.ParseUint(string(field), 10, bits)
	if err != nil {
		f.err = fmt.Errorf("bad %s %q", name, clip(field))
	}
	return v
}

func (f *fields) signed(name string, bits int) int64 {
	field := f.next()
	if f.err != nil {
		return 0
	}
	v, err := strconv.ParseInt(string(field), 10, bits)
	if err != nil {
		f.err = fmt.Errorf("bad %s %q", name, clip(field))
	}
	return v
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// clip keeps foreign bytes in an error message short.
func clip(b []byte) []byte { return b[:min(len(b), 40)] }
