package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// The roles of this program when a contest starts it: a measured command, or a load.
const (
	asPass    = "pass"    // COLLECTOR PID: one sample of a collector; PID 0: the host
	asBare    = "bare"    // the kernel's cost to iterate over sockets and descriptors
	asThreads = "threads" // COUNT sleeping threads
)

// part does what the arguments say. The parent waits for its output or checks it.
func part(ctx context.Context, args []string) error {
	number := 0
	if last := args[len(args)-1]; len(args) > 1 {
		var err error
		if number, err = strconv.Atoi(last); err != nil {
			return fmt.Errorf("%q: not a number", last)
		}
	}
	switch {
	case args[0] == asPass && len(args) == 3:
		return pass(ctx, args[1], number)
	case args[0] == asBare:
		return bare()
	case args[0] == asThreads && len(args) == 2:
		return threads(ctx, number)
	}
	return fmt.Errorf("%q: not a part of a contest", args)
}

// say prints a line for the parent.
func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format, args...) }

// settle is how long a pass waits before its sample, so that collectors that load programs concurrently have them
// loaded: four times as long as loading takes on a busy machine. It is subtracted from the wall time.
const settle = 300 * time.Millisecond

// lostMark begins a line in which a pass says what its sample left out, such as what would have taken too long.
const lostMark = "lost:"

// pass opens a collector as a diagnosis does, takes one sample, and prints how much it found and what it left out.
func pass(ctx context.Context, name string, pid int) error {
	all := collectors.All(collectors.Options{})
	i := slices.IndexFunc(all, func(c collect.Collector) bool { return c.Name == name })
	if i < 0 {
		return fmt.Errorf("no collector %q", name)
	}
	h := host.Local()
	target, err := h.Resolve(ctx, host.Selector{PID: pid})
	if err != nil {
		return err
	}
	src, err := all[i].Open(ctx, collect.Env{Host: h, Target: target, Duration: 10 * time.Second})
	if err != nil {
		return err
	}
	time.Sleep(settle)
	b := recording.NewBuilder()
	a := b.Appender()
	if err := errors.Join(src.Sample(ctx, a), src.Close()); err != nil {
		return err
	}
	lost, _ := a.Commit()
	say("%v\n", found(b.Done(recording.Meta{})))
	for _, l := range lost {
		say("%s %s\n", lostMark, l.What)
	}
	return nil
}

// found returns the number of sockets, rules or groups in a sample.
func found(rec *recording.Recording) (n float64) {
	for _, m := range []*metric.Gauge{metric.Sockets, metric.NATRules} {
		for _, s := range rec.Gauge(m) {
			n += s.Last()
		}
	}
	return n + float64(len(rec.Counter(metric.CgroupCPU)))
}

// bare runs iterators over TCP sockets and over the descriptors of all processes. The iterators only write eight
// bytes for each object, and bare reads them: no program that reports anything about either can be cheaper.
func bare() error {
	n := 0
	for _, of := range []string{"tcp", "task_file"} {
		got, err := iterate(of)
		if err != nil {
			return fmt.Errorf("iterator over %s: %w", of, err)
		}
		n += got
	}
	say("%d\n", n)
	return nil
}

// iterate returns how many objects an iterator visited.
func iterate(of string) (n int, err error) {
	const put = 8 // bytes
	const end = "end"
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: of, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 8, asm.DWord), // the socket in struct bpf_iter__tcp, the task in the other
			asm.JEq.Imm(asm.R2, 0, end),               // the call after the last one
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord), // meta
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord), // its seq
			asm.Mov.Imm(asm.R2, 1), asm.StoreMem(asm.RFP, -put, asm.R2, asm.DWord),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -put),
			asm.Mov.Imm(asm.R3, put), asm.FnSeqWrite.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol(end), asm.Return(),
		},
	})
	if err != nil {
		return 0, err
	}
	defer program.Close()
	it, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	buf := make([]byte, 64<<10) // an iterator's own buffer has 8 pages (kernel/bpf/bpf_iter.c)
	for {
		got, err := r.Read(buf)
		n += got / put
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// mostThreads is the largest size of a contest, plus what Go's runtime needs.
const mostThreads = 20_000

// threads starts n threads, says "ready", and runs until it is stopped.
func threads(ctx context.Context, n int) error {
	if n > mostThreads {
		return fmt.Errorf("%d threads: at most %d", n, mostThreads)
	}
	debug.SetMaxThreads(2 * mostThreads)
	started := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			started <- struct{}{}
			_ = unix.Pause() // a signal of the runtime may end it
			<-ctx.Done()
		}()
		<-started
	}
	say("ready\n")
	<-ctx.Done()
	return nil
}
