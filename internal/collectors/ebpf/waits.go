package ebpf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/symbols"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
	"github.com/perfdoctor/perfdoctor/internal/kernel/syscalls"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// maxWaits bounds the recorded series of waits, and those of wakes. The longest are kept.
const maxWaits = 500

// callKinds says what a system call may wait for, by its name: CALL_READS and those after it in scheduler.bpf.c.
var callKinds = [...][]string{
	1: {
		"read", "readv", "pread64", "preadv", "preadv2", "recvfrom", "recvmsg", "recvmmsg", "accept", "accept4",
		"connect",
		"fsync", "fdatasync", "sync_file_range", "ftruncate", "fallocate", "flock", "fcntl",
	},
	2: {"write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "sendfile"},
	3: {"poll", "ppoll"},
	4: {"futex"},
}

// setCalls tells the programs this machine's system call numbers.
func setCalls(spec *cilium.CollectionSpec) error {
	var kinds [512]uint8 // CALLS in scheduler.bpf.c
	for number := range kinds {
		for kind, names := range callKinds {
			if slices.Contains(names, syscalls.Name(number)) {
				kinds[number] = uint8(kind)
			}
		}
	}
	return spec.Variables[bpf.SchedulerVarCalls].Set(kinds)
}

// registers says where a thread's saved registers are, and where in them the number and arguments of its system call
// are.
type registers struct {
	call      uint32
	arguments [3]uint32
	dumped    [4]uint32 // those of struct dump in cpuprofile.bpf.c
	caller    uint32    // the stack pointer, or the register that a call leaves the return address in
	onStack   bool      // caller is the stack pointer
	byHelper  bool
	fromStack uint32
}

// registersOf looks them up in the kernel's types: struct pt_regs of arch/x86/include/asm/ptrace.h and
// arch/arm64/include/asm/ptrace.h. The latter begins with the registers by number, and keeps the first argument
// separately.
func registersOf(kernel *btf.Spec) (registers, error) {
	var r registers
	var regs *btf.Struct
	var helpers *btf.Enum
	if err := errors.Join(kernel.TypeByName("pt_regs", &regs), kernel.TypeByName("bpf_func_id", &helpers)); err != nil {
		return r, err
	}
	r.byHelper = slices.ContainsFunc(helpers.Values, func(v btf.EnumValue) bool {
		return v.Name == "BPF_FUNC_task_pt_regs"
	})
	r.fromStack = uint32(max(16<<10, os.Getpagesize())) - regs.Size // THREAD_SIZE of both, before Linux 5.15
	names := []string{"orig_ax", "di", "si", "dx"}
	if r.onStack = runtime.GOARCH != "arm64"; !r.onStack {
		names = []string{"syscallno", "orig_x0"}
		r.arguments = [3]uint32{0, 8, 16}
		r.caller = 30 * 8
		r.dumped = [4]uint32{32 * 8, 31 * 8, 29 * 8, 30 * 8} // pc, sp, x29, x30
	}
	for i, name := range names {
		offset, err := memberOffset(regs, name)
		if err != nil {
			return r, err
		}
		if i == 0 {
			r.call = offset
		} else {
			r.arguments[i-1] = offset
		}
	}
	if !r.onStack {
		return r, nil
	}
	for i, name := range []string{"ip", "sp", "bp", "sp"} {
		var err error
		if r.dumped[i], err = memberOffset(regs, name); err != nil {
			return r, err
		}
	}
	r.caller = r.dumped[1]
	return r, nil
}

func memberOffset(of *btf.Struct, name string) (uint32, error) {
	at := slices.IndexFunc(of.Members, func(m btf.Member) bool { return m.Name == name })
	if at < 0 {
		return 0, fmt.Errorf("struct %s of this kernel has no %s", of.Name, name)
	}
	return of.Members[at].Offset.Bytes(), nil
}

func setRegisters(spec *cilium.CollectionSpec, kernel *btf.Spec) error {
	r, err := registersOf(kernel)
	return errors.Join(err,
		spec.Variables[bpf.SchedulerVarRegsCall].Set(r.call), spec.Variables[bpf.SchedulerVarRegsArguments].Set(
			r.arguments),
		spec.Variables[bpf.SchedulerVarRegsCaller].Set(r.caller), spec.Variables[bpf.SchedulerVarCallerOnStack].Set(
			r.onStack),
		spec.Variables[bpf.SchedulerVarRegsByHelper].Set(r.byHelper), spec.Variables[bpf.SchedulerVarRegsFromStack].Set(
			r.fromStack))
}

// listenTimeout bounds the search for listeners. They are in a table of their own in the kernel, and few.
const listenTimeout = 2 * time.Second

// setListeners tells the programs the ports that somebody listens on in the namespace of the process. Without them a
// server's clients would look like destinations, so a failure is an error.
func setListeners(spec *cilium.CollectionSpec, env collect.Env, pid int) error {
	ports := map[uint16]bool{}
	err := eachListener(env, pid, func(s *sockdiag.Socket) error {
		ports[s.Local.Port()] = true
		return nil
	})
	setPorts(spec.Maps[bpf.SchedulerMapListeners], ports)
	return err
}

// setPorts fills a map with ports, and makes it large enough for them.
func setPorts(m *cilium.MapSpec, ports map[uint16]bool) {
	m.MaxEntries = max(m.MaxEntries, uint32(len(ports)))
	for port := range ports {
		m.Contents = append(m.Contents, cilium.MapKV{Key: port, Value: uint8(1)})
	}
}

// eachListener calls fn with the TCP sockets that listen in the namespace of the process.
func eachListener(env collect.Env, pid int, fn func(*sockdiag.Socket) error) error {
	var conn *sockdiag.Conn
	err := env.Host.InNetNS(pid, func() (err error) {
		conn, err = sockdiag.Open(listenTimeout)
		return err
	})
	note := func(s *sockdiag.Socket) error {
		if s.State != sockdiag.Listen {
			return nil
		}
		return fn(s)
	}
	switch {
	case errors.Is(err, sockdiag.ErrUnsupported), errors.Is(err, sockdiag.ErrPermission):
		err = listenersFromProc(env, pid, note)
	case err == nil:
		err = errors.Join(conn.Dump(unix.AF_UNSPEC, sockdiag.StatesOf(sockdiag.Listen), false, note), conn.Close())
	}
	if err != nil && !errors.Is(err, sockdiag.ErrInterrupted) {
		return fmt.Errorf("list the ports that the target's host listens on: %w", err)
	}
	return nil
}

func listenersFromProc(env collect.Env, pid int, note func(*sockdiag.Socket) error) error {
	dir := env.Host.Proc + "/" + strconv.Itoa(pid) + "/net/"
	v4, err := os.Open(dir + "tcp")
	if err != nil {
		return err
	}
	defer v4.Close()
	v6, err := os.Open(dir + "tcp6")
	if errors.Is(err, os.ErrNotExist) { // ipv6.disable=1
		return sockdiag.DumpProc(v4, strings.NewReader(""), note)
	}
	if err != nil {
		return err
	}
	defer v6.Close()
	return sockdiag.DumpProc(v4, v6, note)
}

// reasons are the values of the label "for".
var reasons = map[bpf.SchedulerReason]string{
	bpf.SchedulerReasonFOR_OTHER: "other", bpf.SchedulerReasonFOR_FUTEX: "futex", bpf.SchedulerReasonFOR_MUTEX: "mutex",
	bpf.SchedulerReasonFOR_ANSWER: "answer", bpf.SchedulerReasonFOR_MESSAGE: "message",
	bpf.SchedulerReasonFOR_REQUEST: "request",
	bpf.SchedulerReasonFOR_CONNECT: "connect", bpf.SchedulerReasonFOR_ROOM: "room",
	bpf.SchedulerReasonFOR_CLIENT: "client",
	bpf.SchedulerReasonFOR_SOCKET: "socket", bpf.SchedulerReasonFOR_PIPE: "pipe", bpf.SchedulerReasonFOR_FILE: "file",
}

// callName returns the name of a system call, its number if it is newer than this program, and "" for none.
func callName(number int32) string {
	if number < 0 {
		return ""
	}
	return cmp.Or(syscalls.Name(int(number)), strconv.Itoa(int(number)))
}

// waitedOn returns the address of what a thread waits for: 10.0.0.5:443, :8080 for a port of its own, 0x7f… for a
// futex.
func waitedOn(at *bpf.SchedulerPlace) string {
	switch {
	case at.Object != 0:
		return fmt.Sprintf("%#x", at.Object)
	case at.Port == 0:
		return ""
	}
	var bytes [16]byte
	for i, word := range at.Peer {
		binary.LittleEndian.PutUint32(bytes[4*i:], word) // back to the network's order
	}
	if bytes == [16]byte{} {
		return ":" + strconv.FormatUint(uint64(at.Port), 10)
	}
	addr := netip.AddrFrom16(bytes).Unmap()
	if at.Family == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(bytes[:4]))
	}
	return netip.AddrPortFrom(addr, uint16(at.Port)).String()
}

// waitedFor is the class of a wait in the profile.
func waitedFor(at *bpf.SchedulerPlace) string {
	what := reasons[at.Reason]
	if at.Reason == bpf.SchedulerReasonFOR_OTHER {
		what = callName(at.Call)
	}
	return strings.TrimSpace(what + " " + waitedOn(at))
}

// endWaits ends the waits that are still under way, in the tables that were read: their time until now belongs to the
// window.
func endWaits(threads map[uint32]bpf.SchedulerThread, sleeps map[bpf.SchedulerPlace]bpf.SchedulerSlept,
	clock bpf.SchedulerTimes,
) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	for tid, t := range threads {
		// A thread that is stopped waits for long, up to a period of the quota; one that waits for a CPU may as well
		// run by now.
		if t.Runnable != 0 && t.Throttled && now > t.Runnable {
			t.ThrottledNs += now - t.Runnable
			threads[tid] = t
		}
		if t.Asleep == 0 || t.Runnable != 0 || now < t.Asleep {
			continue
		}
		ns := now - t.Asleep
		t.SleepNs += ns
		threads[tid] = t
		if t.Weight > 0 {
			first := noteTimes(&t.At, clock, t.Asleep, now)
			s := sleeps[t.At]
			s.Count += uint64(t.Weight)
			s.Ns += ns * uint64(t.Weight)
			s.FirstNs += first * uint64(t.Weight)
			sleeps[t.At] = s
		}
	}
	return nil
}

// noteTimes is note_times of scheduler.bpf.c.
func noteTimes(at *bpf.SchedulerPlace, clock bpf.SchedulerTimes, from, until uint64) (first uint64) {
	at.First, at.Last = 0, 0
	if clock.BucketNs == 0 || until <= clock.Began {
		return until - from
	}
	if from > clock.Began {
		at.First = uint32((from - clock.Began) / clock.BucketNs)
	}
	at.Last = uint32((until - clock.Began) / clock.BucketNs)
	return min(until, clock.Began+(uint64(at.First)+1)*clock.BucketNs) - from
}

// A part is the time that waits at one place took in one time bucket. A wait is counted in the bucket in which it
// ended.
type part struct{ bucket, count, ns uint64 }

// maxParts bounds what the times add to a profile: half of what it may hold.
const maxParts = 50_000

// spread divides waits among the time buckets that they span, by their place without times. Where that would make too
// many samples, it merges buckets. It returns how long a bucket lasts then, 0 where waits have no times.
func spread(sleeps map[bpf.SchedulerPlace]bpf.SchedulerSlept, bucketNs uint64) (map[bpf.SchedulerPlace][]part,
	time.Duration,
) {
	out := map[bpf.SchedulerPlace][]part{}
	all := 0
	for at, slept := range sleeps {
		parts := partsOf(at, slept, bucketNs)
		at.First, at.Last = 0, 0
		out[at] = append(out[at], parts...)
		all += len(parts)
	}
	together := uint64(1)
	for ; all > maxParts && together < 64; all /= 2 {
		together *= 2
	}
	for _, parts := range out {
		for i := range parts {
			parts[i].bucket /= together
		}
	}
	return out, time.Duration(bucketNs * together)
}

func partsOf(at bpf.SchedulerPlace, slept bpf.SchedulerSlept, bucketNs uint64) []part {
	if at.First >= at.Last {
		return []part{{uint64(at.Last), slept.Count, slept.Ns}}
	}
	rest := slept.Ns - min(slept.Ns, slept.FirstNs)
	out := []part{{bucket: uint64(at.First), ns: slept.Ns - rest}}
	for b := uint64(at.First) + 1; b < uint64(at.Last); b++ {
		inner := min(rest, slept.Count*bucketNs)
		out = append(out, part{bucket: b, ns: inner})
		rest -= inner
	}
	return append(out, part{uint64(at.Last), slept.Count, rest})
}

// monotonic returns the time of the clock that programs in the kernel read. A time namespace shifts perfdoctor's
// clock, not theirs (bpf_ktime_get_ns).
func monotonic() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if errors.Is(err, fs.ErrNotExist) { // before Linux 5.6, or without CONFIG_TIME_NS
		return uint64(now.Nano()), nil
	}
	if err != nil {
		return 0, err
	}
	shift, err := monotonicShift(string(text))
	return uint64(now.Nano() - shift), err
}

// monotonicShift returns by how many nanoseconds a time namespace shifts the monotonic clock. It reads lines such as
// "monotonic 86400 0": the clock, seconds and nanoseconds (proc_timens_show_offsets in kernel/time/namespace.c). Linux
// 5.6 has the clock's number, 1.
func monotonicShift(text string) (int64, error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 3 || words[0] != "monotonic" && words[0] != "1" {
			continue
		}
		seconds, err1 := strconv.ParseInt(words[1], 10, 34) // the kernel allows 146 years (KTIME_SEC_MAX / 2)
		nanos, err2 := strconv.ParseInt(words[2], 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return 0, fmt.Errorf("/proc/self/timens_offsets: %w", err)
		}
		return seconds*1e9 + nanos, nil
	}
	return 0, errors.New("/proc/self/timens_offsets has no monotonic clock")
}

// appendWaits adds up the waits by thread, system call and what they were for.
func (s *scheduler) appendWaits(a *recording.Appender, sleeps map[bpf.SchedulerPlace]bpf.SchedulerSlept) {
	sums := map[[6]string]bpf.SchedulerSlept{}
	for at, slept := range sleeps {
		key := [6]string{
			strconv.FormatUint(uint64(at.Tgid), 10), strconv.FormatUint(uint64(at.Tid), 10),
			s.threadName(at.Tgid, at.Tid),
			callName(at.Call), reasons[at.Reason], waitedOn(&at),
		}
		sum := sums[key]
		sum.Count += slept.Count
		sum.Ns += slept.Ns
		sums[key] = sum
	}
	for _, key := range largest(a, sums, "waits of threads beyond the "+strconv.Itoa(maxWaits)+" that took longest") {
		a.Gauge(metric.ThreadWaitTime, float64(sums[key].Ns)*1e-9, key[:]...)
		a.Gauge(metric.ThreadWaits, float64(sums[key].Count), key[:]...)
	}
	a.None(metric.ThreadWaitTime, metric.ThreadWaits)
}

// largest orders sums by their time, the longest first, and counts those past the bound as lost.
func largest(a *recording.Appender, sums map[[6]string]bpf.SchedulerSlept, what string) [][6]string {
	var keys [][6]string
	for key := range sums {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(x, y [6]string) int {
		return cmp.Or(cmp.Compare(sums[y].Ns, sums[x].Ns), slices.Compare(x[:], y[:]))
	})
	for _, key := range keys[min(len(keys), maxWaits):] {
		a.Lost(int(sums[key].Count), what)
	}
	return keys[:min(len(keys), maxWaits)]
}

// wakerFrames bounds the innermost functions that are recorded of a waker.
const wakerFrames = 6

func (s *scheduler) appendWakes(a *recording.Appender, names *symbols.Symbolizer) error {
	sums := map[[6]string]bpf.SchedulerSlept{}
	var failed error
	err := readHash(s.set.collection.Maps[bpf.SchedulerMapWakes], func(w bpf.SchedulerWake, slept *bpf.SchedulerSlept) {
		at, err := s.wakerAt(w, names)
		if err != nil {
			failed = err
			return
		}
		key := [6]string{
			strconv.FormatUint(uint64(w.Tgid), 10), fmt.Sprintf("%#x", w.Object),
			strconv.FormatUint(uint64(w.WakerTgid), 10),
			strconv.FormatUint(uint64(w.Waker), 10), s.threadName(w.WakerTgid, w.Waker), at,
		}
		sum := sums[key]
		sum.Count += slept.Count
		sum.Ns += slept.Ns
		sums[key] = sum
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	for _, key := range largest(a, sums, "wakes beyond the "+strconv.Itoa(maxWaits)+" of the longest waits") {
		a.Gauge(metric.FutexWakes, float64(sums[key].Count), key[:]...)
	}
	a.None(metric.FutexWakes)
	return nil
}

// wakerAt returns the innermost functions of a waker's program.
func (s *scheduler) wakerAt(w bpf.SchedulerWake, names *symbols.Symbolizer) (string, error) {
	addresses, err := s.addresses(w.WakerStack)
	if err != nil {
		return "", err
	}
	var out []string
	for _, f := range names.UserStack(w.WakerTgid, addresses) {
		if len(out) < wakerFrames {
			out = append(out, f.Name)
		}
	}
	return strings.Join(out, " ← "), nil
}
