package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

const (
	// maxThreads and maxFloodRate keep a wrong option from stopping the machine.
	maxThreads   = 256
	maxFloodRate = 200_000
	// maxDatagram is the payload of an Ethernet frame without IPv6 and UDP headers: no fragments.
	maxDatagram = 1500 - 40 - 8
	// maxFDs is the kernel's default fs.nr_open (fs/file.c).
	maxFDs = 1 << 20
)

// SpinOptions use CPU time on separate threads. A unit is a burst on one thread. Its latency is the wall time from
// when it was due until its CPU time was used, so that throttling shows.
type SpinOptions struct {
	Threads int           // 0: 1
	Burst   time.Duration // CPU time of a burst on each thread; 0: busy all the time, in units of 10 ms
	Every   time.Duration // from the start of a burst to the start of the next; 0: at once
}

// steadyBurst is the unit of a spin without a pattern: the tick of CPU accounting at HZ=100.
const steadyBurst = 10 * time.Millisecond

func newSpin(o SpinOptions, rec *recorder) (func(context.Context), error) {
	if o.Threads < 0 || o.Threads > maxThreads {
		return nil, fmt.Errorf("spin: %d threads: want 1 to %d", o.Threads, maxThreads)
	}
	if o.Burst <= 0 {
		o.Burst = steadyBurst
	}
	o.Threads = max(o.Threads, 1)
	return func(ctx context.Context) {
		// The runtime sizes itself to the CPUs and, since Go 1.25, to the quota, but the load must exceed both. One
		// more thread makes the reports.
		runtime.GOMAXPROCS(o.Threads + 1)
		rec.ready("")
		start := time.Now()
		var threads sync.WaitGroup
		for range o.Threads {
			threads.Go(func() { spin(ctx, start, o, rec) })
		}
		threads.Wait()
	}, nil
}

func spin(ctx context.Context, due time.Time, o SpinOptions, rec *recorder) {
	runtime.LockOSThread() // because the thread's CPU clock is read; the thread ends with the goroutine
	for ctx.Err() == nil {
		if err := load.Burn(ctx, o.Burst); err != nil {
			rec.fail(err)
			return
		}
		if ctx.Err() != nil {
			return
		}
		rec.unit(due)
		due = due.Add(o.Every)
		if o.Every == 0 {
			due = time.Now()
		}
		_ = clock.Sleep(ctx, time.Until(due))
	}
}

// FDOptions open files and keep them. A unit is a file opened.
type FDOptions struct {
	Count     int     // files to open
	PerSecond float64 // 0: all at once
	Limit     uint64  // RLIMIT_NOFILE to set first; 0: unchanged
}

func newOpener(o FDOptions, rec *recorder) (func(context.Context), error) {
	if o.Count < 0 || o.Count > maxFDs {
		return nil, fmt.Errorf("openfds: %d files: want 0 to %d", o.Count, maxFDs)
	}
	if o.Limit > 0 {
		if err := setFDLimit(o.Limit); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) {
		if o.PerSecond > 0 {
			rec.ready("") // otherwise ready says that all are open
		}
		files := openFiles(ctx, o, rec)
		rec.ready("")
		<-ctx.Done()
		for _, file := range files {
			_ = file.Close()
		}
	}, nil
}

func openFiles(ctx context.Context, o FDOptions, rec *recorder) []*os.File {
	var files []*os.File
	start := time.Now()
	for n := range o.Count {
		due := time.Now()
		if o.PerSecond > 0 {
			due = start.Add(time.Duration(float64(n) / o.PerSecond * float64(time.Second)))
		}
		if clock.Sleep(ctx, time.Until(due)) != nil {
			break
		}
		file, err := os.Open(os.DevNull)
		if err != nil {
			rec.fail(err)
			_ = clock.Sleep(ctx, errorPause)
			continue
		}
		files = append(files, file)
		rec.unit(due)
	}
	return files
}

// FloodOptions send UDP datagrams at a rate. A unit is a datagram that the kernel accepted.
type FloodOptions struct {
	PPS     int // datagrams a second over all sockets, at most 200,000
	Sockets int // each has its own source port, so that flows differ; 0: 1
	Size    int // bytes of payload, 0 to 1452
}

func newFlood(addr string, o FloodOptions, rec *recorder) (func(context.Context), error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("udpflood: %w", err)
	}
	if o.PPS < 1 || o.PPS > maxFloodRate || o.Size < 0 || o.Size > maxDatagram || o.Sockets > maxThreads {
		return nil, fmt.Errorf("udpflood: %+v: want 1 to %d packets a second, up to %d bytes, up to %d sockets",
			o, maxFloodRate, maxDatagram, maxThreads)
	}
	var fds []int
	for range max(o.Sockets, 1) {
		fd, err := dialUDP(to)
		if err != nil {
			return nil, fmt.Errorf("udpflood to %s: %w", to, err)
		}
		fds = append(fds, fd)
	}
	return func(ctx context.Context) { flood(ctx, fds, o, rec) }, nil
}

func dialUDP(to netip.AddrPort) (int, error) {
	sa, family := load.Sockaddr(to)
	fd, err := ownSocket(family, unix.SOCK_DGRAM)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, sa); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// floodTick is how often due datagrams are sent: 300 at 60,000 a second, less than a socket buffer holds.
const floodTick = 5 * time.Millisecond

// flood sends datagrams at the rate. It does not catch up after a pause of more than a second: that would be a burst,
// not a rate.
func flood(ctx context.Context, fds []int, o FloodOptions, rec *recorder) {
	payload := make([]byte, o.Size)
	rec.ready("")
	start := time.Now()
	for sent := 0; clock.Sleep(ctx, floodTick) == nil; {
		due := int(time.Since(start).Seconds() * float64(o.PPS))
		sent = max(sent, due-o.PPS)
		for ; sent < due; sent++ {
			if _, err := unix.Write(fds[sent%len(fds)], payload); err != nil {
				rec.fail(err)
				continue
			}
			rec.unit(time.Now())
		}
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
