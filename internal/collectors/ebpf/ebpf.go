// Package ebpf uses programs that run in the kernel (package bpf) to measure what counters cannot tell: to whom, how
// long and why.
//
// Each set of programs is a collector of its own, with its own status: a set that this kernel or user may not load
// costs only its own metrics. Nothing is pinned: programs, maps and their links end with the process, even when it is
// killed.
package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/dotnet"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Options are what the user asks for.
type Options struct {
	LeaveJVMs bool          // do not ask a JVM where its compiled methods lie
	DotNet    *dotnet.Names // asks .NET programs for the same; nil to leave them alone
}

// Collectors lists this package's collectors.
func Collectors(l *Loader, o Options) []collect.Collector {
	return []collect.Collector{
		connectionsCollector(l), exchangesCollector(l), dnsCollector(l), bindsCollector(l), softirqCollector(l),
		cpuProfileCollector(l, o),
		schedulerCollector(l), syscallsCollector(l), runQueueCollector(l),
	}
}

// requires lists what the loading of any program needs. CAP_NET_ADMIN is not among them: only bpf-binds needs it.
func requires() []host.Capability {
	return []host.Capability{host.BTF, host.BPF, host.Perfmon, host.Lockdown}
}

// allowed returns an error that says what is missing, for callers that load programs beside a collector that can do
// without them.
func allowed(h *host.Host) error {
	for _, c := range requires() {
		switch p := h.Probe(c); p.Status {
		case host.Unsupported:
			return collect.Unavailable(recording.StatusUnsupported, p.Remedy, "%s", p.Reason)
		case host.Denied:
			return collect.Unavailable(recording.StatusDenied, p.Remedy, "%s", p.Reason)
		}
	}
	return nil
}

// tracepointsWithTypes is the floor of programs that need nothing newer. What each program counts is tested on Linux
// 5.10 and later (internal/lab/kernels).
func tracepointsWithTypes() collect.Floor {
	return collect.Floor{Release: "5.5", Brought: "BPF programs at tracepoints with types (tp_btf)"}
}

// namesOfKernel is the floor of collectors that name kernel functions.
func namesOfKernel() collect.Floor {
	return collect.Floor{Release: "5.8", Brought: "BPF iterators, which name the kernel's functions"}
}

// Costs lists the metrics that every collector with programs provides about its own programs.
func Costs() []metric.Metric {
	return []metric.Metric{metric.BPFRuns, metric.BPFSeconds, metric.BPFMeasured}
}

// Loader holds the kernel's types while programs are loaded: reading them takes 12 ms of CPU and 7 MB, which are freed
// after the last one. The zero value is ready to use, also by many at once.
type Loader struct {
	users atomic.Int32
	mu    sync.Mutex // one loads at a time
	cache *btf.Cache
}

// Keep holds the kernel's types, once they are read, until done is called. It is for a collector that has work to do
// before it loads its programs, or that loads them beside its samples.
func (l *Loader) Keep() (done func()) {
	l.users.Add(1)
	return l.leave
}

func (l *Loader) leave() {
	if l.users.Add(-1) > 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users.Load() == 0 {
		l.cache = nil
	}
}

// A set is the programs of one file, loaded and attached.
type set struct {
	collection *cilium.Collection
	links      map[string]link.Link // by program; a link without a reference is collected as garbage, and detaches
	absent     []string             // tracepoints that this kernel does not have
	meter      meter
}

// open loads the programs of a file, after change has adapted them, and attaches them. It leaves out optional programs
// whose tracepoint this kernel lacks. The error says what is missing, and names a remedy.
func (l *Loader) open(ctx context.Context, load func() (*cilium.CollectionSpec, error),
	change func(*cilium.CollectionSpec, *btf.Spec) error, optional ...string,
) (*set, error) {
	defer l.Keep()()
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("read the compiled programs: %w", err)
	}
	// Before Linux 5.11 a map's memory counts against RLIMIT_MEMLOCK, which is 64 KB; on later kernels this does
	// nothing.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, collect.Unavailable(recording.StatusDenied, "run perfdoctor as root or with CAP_SYS_RESOURCE, or "+
			"raise ulimit -l",
			"the kernel charges maps to RLIMIT_MEMLOCK, which could not be raised: %v", err)
	}
	s := &set{links: map[string]link.Link{}}
	if s.collection, s.absent, err = l.load(ctx, spec, change, optional); err != nil {
		return nil, unavailable(withLimit(err, spec))
	}
	if err := s.attach(spec); err != nil {
		err = withLimit(err, spec) // while what was loaded is still open
		return nil, unavailable(errors.Join(err, s.Close()))
	}
	if err := s.startMeter(spec); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// load does the part that needs the kernel's types, one collector at a time.
func (l *Loader) load(ctx context.Context, spec *cilium.CollectionSpec, change func(*cilium.CollectionSpec,
	*btf.Spec) error,
	optional []string,
) (*cilium.Collection, []string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if l.cache == nil {
		l.cache = btf.NewCache()
	}
	kernel, err := l.cache.Kernel()
	if err != nil {
		return nil, nil, fmt.Errorf("read the kernel's types: %w", err)
	}
	if err := change(spec, kernel); err != nil {
		return nil, nil, fmt.Errorf("set the programs' constants: %w", err)
	}
	var absent []string
	for name, p := range spec.Programs {
		// A BTF tracepoint is a typedef in the kernel's types (include/trace/bpf_probe.h).
		_, err := kernel.AnyTypeByName("btf_trace_" + p.AttachTo)
		if p.AttachType == cilium.AttachTraceRawTp && errors.Is(err, btf.ErrNotFound) &&
			slices.Contains(optional, name) {
			absent = append(absent, p.AttachTo)
			delete(spec.Programs, name)
		}
	}
	slices.Sort(absent)
	c, err := cilium.NewCollectionWithOptions(spec, cilium.CollectionOptions{Cache: l.cache})
	return c, absent, err
}

// attach attaches all programs but the iterators: whoever runs one attaches it.
func (s *set) attach(spec *cilium.CollectionSpec) error {
	for name, p := range s.collection.Programs {
		if p.Type() != cilium.Tracing || spec.Programs[name].AttachType == cilium.AttachTraceIter {
			continue
		}
		if err := s.attachProgram(name); err != nil {
			return err
		}
	}
	return nil
}

func (s *set) attachProgram(name string) error {
	l, err := link.AttachTracing(link.TracingOptions{Program: s.collection.Programs[name]})
	if err != nil {
		return fmt.Errorf("attach program %s: %w", name, err)
	}
	s.links[name] = l
	return nil
}

func (s *set) detachProgram(name string) error {
	if err := s.links[name].Close(); err != nil {
		return fmt.Errorf("detach program %s: %w", name, err)
	}
	delete(s.links, name)
	return nil
}

// run runs an iterator over all its objects, and passes what it writes to read.
func (s *set) run(name string, read func(io.Reader) error) error {
	l, err := link.AttachIter(link.IterOptions{Program: s.collection.Programs[name]})
	if err != nil {
		return fmt.Errorf("attach iterator %s: %w", name, err)
	}
	defer l.Close()
	r, err := l.Open()
	if err != nil {
		return fmt.Errorf("open iterator %s: %w", name, err)
	}
	defer r.Close()
	if err := read(r); err != nil {
		return fmt.Errorf("run iterator %s: %w", name, err)
	}
	return nil
}

// discard reads the output of an iterator that reports its results in maps.
func discard(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// appendLost appends what the programs could not keep, by kind (LOST in bpf/kernel.h), and returns how many of each.
func (s *set) appendLost(a *recording.Appender, kinds ...string) ([]int64, error) {
	m := s.collection.Maps[bpf.ConnectionsMapLost] // it has the same name in every file
	if int(m.MaxEntries()) != len(kinds) {
		return nil, fmt.Errorf("%d kinds of lost events have %d names", m.MaxEntries(), len(kinds))
	}
	counts := make([]int64, len(kinds))
	for kind, what := range kinds {
		if err := m.Lookup(uint32(kind), &counts[kind]); err != nil {
			return nil, fmt.Errorf("read the number of lost events: %w", err)
		}
		a.Lost(int(counts[kind]), what)
	}
	return counts, nil
}

// Close detaches and unloads the programs.
func (s *set) Close() error {
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	errs = append(errs, s.meter.close())
	s.collection.Close()
	return errors.Join(errs...)
}

// spareFiles is how many descriptors a load may need in addition to its own: for the kernel's types, the library's
// probes of features, and the samples that other collectors take meanwhile.
const spareFiles = 24

// withLimit adds EMFILE to the error of a load that had too few descriptors for the set. The library's probes of
// features hide it: a missing feature or the verifier then seems to be the cause.
func withLimit(err error, spec *cilium.CollectionSpec) error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return err
	}
	need := len(spec.Maps) + 2*len(spec.Programs) + spareFiles // a program has a link too
	if free(limit.Cur, need) >= need {
		return err
	}
	return fmt.Errorf("%w: raise ulimit -n (now %d)", unix.EMFILE, limit.Cur)
}

// free counts the unused descriptors below the limit, up to enough. Unlike reading /proc/self/fd, it needs none
// itself.
func free(limit uint64, enough int) int {
	n := 0
	for fd := uintptr(0); uint64(fd) < limit && n < enough; fd++ {
		if _, err := unix.FcntlInt(fd, unix.F_GETFD, 0); errors.Is(err, unix.EBADF) {
			n++
		}
	}
	return n
}

// unavailable says why programs cannot be loaded here. The rights were probed before, so a refusal now comes from
// something else: a seccomp profile, a security module, or the verifier of an older kernel.
func unavailable(err error) error {
	var verifier *cilium.VerifierError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		// before all others, since probes of features fail with it too
		return collect.Unavailable(recording.StatusFailed, "raise ulimit -n", "%v", err)
	case errors.As(err, &verifier):
		return collect.Unavailable(recording.StatusUnsupported, "report it with the kernel's version",
			"this kernel's verifier refuses a program: %v", verifier)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return collect.Unavailable(recording.StatusDenied,
			"in a container, allow bpf() in the seccomp profile; look for a security module that forbids it", "%v", err)
	case errors.Is(err, cilium.ErrNotSupported), errors.Is(err, btf.ErrNotFound), errors.Is(err, unix.ENOENT):
		return collect.Unavailable(recording.StatusUnsupported, "a newer Linux, with CONFIG_DEBUG_INFO_BTF", "%v", err)
	}
	return err
}

// readHash reads a whole hash map, in batches where the kernel has them (Linux 5.6).
func readHash[K comparable, V any](m *cilium.Map, each func(K, *V)) error {
	const batch = 256 // a few pages of keys and values a system call
	keys, values := make([]K, batch), make([]V, batch)
	var cursor cilium.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			each(keys[i], &values[i])
		}
		switch {
		case errors.Is(err, cilium.ErrKeyNotExist):
			return nil
		case errors.Is(err, cilium.ErrNotSupported), errors.Is(err, unix.ENOSPC): // a chain longer than a batch
			return readSlowly(m, each)
		case err != nil:
			return fmt.Errorf("read map %s: %w", m, err)
		}
	}
}

func readSlowly[K comparable, V any](m *cilium.Map, each func(K, *V)) error {
	var k K
	var v V
	it := m.Iterate()
	for it.Next(&k, &v) {
		each(k, &v)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read map %s: %w", m, err)
	}
	return nil
}
