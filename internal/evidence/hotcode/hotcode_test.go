package hotcode

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

func TestPattern(t *testing.T) {
	java := func(name string) stacks.Frame { return stacks.Frame{Name: name, Kind: stacks.Compiled} }
	for _, tc := range []struct {
		pattern string
		frame   stacks.Frame
		want    bool
	}{
		{"java.lang.String.concat", java("java.lang.String.concat"), true},
		{"java.lang.String.concat", java("java.lang.String.concats"), false},
		{"ua_parser.*", java("ua_parser.Parser.parse"), true},
		{"ua_parser.*", java("com.ua_parser.Parser.parse"), false},
		{"*arraycopy*", stacks.Frame{Name: "jbyte_disjoint_arraycopy", Kind: stacks.Native}, true},
		{"a*b*a", java("aba"), true},
		{"a*a", java("a"), false},
		{"libz.so*!*", stacks.Frame{Name: "deflate", Module: "libz.so.1.2.13", Kind: stacks.Native}, true},
		{"libz.so*!*", stacks.Frame{Name: "deflate", Module: "libzip.so", Kind: stacks.Native}, false},
		{"ObjectMonitor::enter", stacks.Frame{Name: "ObjectMonitor::enter(JavaThread*)", Kind: stacks.Native}, true},
		{"crypto/tls.(*Conn).Handshake", stacks.Frame{Name: "crypto/tls.(*Conn).Handshake", Kind: stacks.Native}, true},
		{"n::*::Zlib::*", stacks.Frame{Name: "n::(anonymous namespace)::Zlib::Work(int)", Kind: stacks.Native}, true},
		{"crypto/tls.(*Conn).Read", stacks.Frame{Name: "crypto/tls.(*Conn).Handshake", Kind: stacks.Native}, false},
	} {
		if got := ParsePattern(tc.pattern).Frame(tc.frame); got != tc.want {
			t.Errorf("%s matches %s: %t, want %t", tc.pattern, tc.frame.Name, got, tc.want)
		}
	}
}

func TestMainOfCommand(t *testing.T) {
	for want, args := range map[string][]string{
		"com.acme.Main": {
			"/usr/bin/java", "-Xmx1g", "-cp", "lib/*:app.jar", "--add-opens",
			"java.base/java.lang=ALL-UNNAMED", "com.acme.Main", "8080",
		},
		"com.acme.mod.Main": {"java", "-p", "mods", "-m", "app/com.acme.mod.Main"},
		"Main":              {"java", "Main", "x.y.Z"},
		"":                  {"java", "-jar", "app.jar"},
	} {
		if got := mainOfCommand(args); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
	if got := mainOfCommand(nil); got != "" {
		t.Errorf("no command line: %q", got)
	}
	for class, want := range map[string]string{
		"com.acme.shop.web.Main": "com.acme.", "acme.Main": "acme.", "Main": "",
		"org.apache.kafka.Kafka":                      "org.apache.kafka.",
		"org.springframework.boot.loader.JarLauncher": "", "org.apache.catalina.startup.Bootstrap": "",
		"jdk.jfr.Main": "",
	} {
		if got := packageOf(class); got != want {
			t.Errorf("package of %s: %q, want %q", class, got, want)
		}
	}
}

// stackOf makes a profile of one stack of compiled frames, the innermost first, and returns it with the stack.
func stackOf(names ...string) (*stacks.Profile, []int) {
	p := &stacks.Profile{Event: stacks.CPU}
	var stack []int
	for i, n := range names {
		p.Frames = append(p.Frames, stacks.Frame{Name: n, Kind: stacks.Compiled})
		stack = append(stack, i)
	}
	p.Samples = []stacks.Sample{{Stack: stack, Thread: -1, Count: 1, Value: 1}}
	return p, stack
}

func TestNearest(t *testing.T) {
	const jdk, lib, spring = "java.util.HashMap.get", "com.fasterxml.jackson.X.y", "org.springframework.web.A.b"
	for _, tc := range []struct {
		name  string
		main  string
		stack []string
		from  int
		skip  []string
		want  Place
	}{
		{
			"own frame behind JDK and library", "",
			[]string{jdk, lib, "com.acme.A.b", spring, "com.acme.C.d"},
			0, nil,
			Place{2, -1, Application},
		},
		{
			"an exception's constructor is no culprit", "",
			[]string{jdk, "com.acme.GoneException.<init>", "com.acme.A.b"},
			0,
			[]string{"*Exception.<init>"},
			Place{2, -1, Application},
		},
		{
			"a lambda is named by its method", "",
			[]string{jdk, "com.acme.A$$Lambda.apply", "com.acme.A.lambda$b$0"},
			0,
			nil,
			Place{2, -1, Application},
		},
		{"library when nothing is own", "", []string{jdk, lib, spring}, 0, nil, Place{1, -1, Library}},
		{"JDK when there is nothing else", "", []string{jdk, "java.lang.Thread.run"}, 0, nil, Place{0, -1, JDK}},
		{
			"the main class's package before one that nobody knows", "com.acme.",
			[]string{jdk, "de.unknown.P.q", "com.acme.A.b"},
			0, nil,
			Place{2, 1, Application},
		},
		{
			"an unknown package when the main class's is not there", "com.acme.",
			[]string{jdk, "de.unknown.P.q", spring},
			0, nil,
			Place{1, -1, Application},
		},
		{
			"a server is an application where it is what runs", "org.apache.kafka.",
			[]string{jdk, "org.apache.kafka.Log.append"},
			0, nil,
			Place{1, -1, Application},
		},
		{
			"a callback is inwards", "",
			[]string{"com.acme.Buffer.finalize", "java.lang.ref.Finalizer.runFinalizer"},
			1,
			nil,
			Place{0, -1, Application},
		},
	} {
		p, stack := stackOf(tc.stack...)
		if got := (Owners{main: tc.main}).Nearest(p, stack, tc.from, ParsePatterns(tc.skip...)); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

const header = "engine: test\ninterval: 10000000\nduration: 10s\nlost: 0\n\n"

// rec is a recording of one process that used 10 s of CPU time in 10 s, with profiles as text.
func rec(t *testing.T, profiles map[string]string) *recording.Recording {
	t.Helper()
	fsys := fstest.MapFS{
		"meta.json": {Data: []byte(`{"schema":1,"duration_seconds":10,"target":{"kind":"process","pid":7}}`)},
		"samples.jsonl": {
			Data: []byte(
				`{"t":0,"m":{"process_cpu_seconds_total":[["7","java","user","target",0],["7","java","system","target",0],["8","x","user","host",0]]}}` + "\n" +
					`{"t":10,"m":{"process_cpu_seconds_total":[["7","java","user","target",8],["7","java","system","target",2],["8","x","user","host",5]],"script_runtime_info":[["7","CPython 3.11",1]]}}` + "\n"),
		},
	}
	for e, lines := range profiles {
		fsys["profiles/"+e+".txt"] = &fstest.MapFile{Data: []byte("event: " + e + "\n" + header + lines)}
	}
	r, err := recording.Read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const cpuLines = `[http-1 tid=1];java.lang.Thread.run_[j];com.acme.Shop.cart:42_[j];com.acme.Shop.price:7_[j];java.util.HashMap.get_[j] 300 3000000000
[http-1 tid=1];java.lang.Thread.run_[j];com.acme.Shop.cart:43_[j];org.postgresql.Driver.query_[j];libc.so.6!write_[n];tcp_sendmsg_[k] 200 2000000000
[http-1 tid=1];java.lang.Thread.run_[j];com.acme.Shop.cart:42_[j] 100 1000000000
[http-1 tid=1];java.lang.Thread.run_[j];java.lang.StringConcatHelper.prepend_[j];jbyte_disjoint_arraycopy_[n] 50 500000000
[GC Thread#0 tid=2];libjvm.so!thread_native_entry_[n];madvise_[k] 100 1000000000
[];libjvm.so!CompileBroker::compiler_thread_loop_[n];libjvm.so!Compile::Optimize_[n] 60 600000000
[VM Thread tid=3];libjvm.so!VMThread::run_[n] 20 200000000
[http-1 tid=1];java.lang.Thread.run_[j];libz.so.1!deflate_[n] 70 700000000
`

// TestPartsAddUp: every second that the kernel counted belongs to exactly one part.
func TestPartsAddUp(t *testing.T) {
	c, ok := CPUOf(rec(t, map[string]string{"cpu": cpuLines}))
	if !ok || c.Total() != 10 || c.System != 2 || math.Abs(c.Sampled()-9) > 1e-9 {
		t.Fatalf("total %v, sampled %v, system %v", c.Total(), c.Sampled(), c.System)
	}
	want := []PartTime{
		{PartApplication, 1},
		{PartJDK, 3.5},
		{PartGC, 1},
		{PartJIT, 0.6},
		{PartJVM, 0.2},
		{PartNative, 0.7},
		{PartKernel, 2},
		{PartUnsampled, 1},
	}
	if diff := cmp.Diff(want, c.Parts(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	sum := 0.0
	for _, p := range c.Parts() {
		sum += p.Seconds
	}
	if math.Abs(sum-c.Total()) > 1e-9 {
		t.Errorf("the parts are %v s, the total is %v s", sum, c.Total())
	}
}

func TestMethods(t *testing.T) {
	c, _ := CPUOf(rec(t, map[string]string{"cpu": cpuLines}))
	want := []MethodTime{
		{Name: "com.acme.Shop.cart", Line: 43, Own: 3, Inclusive: 6, Calls: "org.postgresql.Driver.query"},
		{
			Name: "com.acme.Shop.price", Line: 7, Own: 3, Inclusive: 3, Calls: "java.util.HashMap.get",
			Callers: []string{"com.acme.Shop.cart"},
		},
	}
	if diff := cmp.Diff(want, c.Methods(5), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := c.Methods(1); len(got) != 1 {
		t.Errorf("asked for one method: %d", len(got))
	}
	native,
		_ := CPUOf(
		rec(t,
			map[string]string{"cpu": "[];libc.so.6!memcpy_[n] 3 3000000000\n[];libc.so.6!write_[n];tcp_sendmsg_[k] " +
				"5 5000000000\n"}))
	if got := native.Methods(5); len(got) != 2 || got[0].Name != "tcp_sendmsg" || got[1].Own != 3 {
		t.Errorf("functions: %+v", got)
	}
}

// TestNoKernelCount: without the kernel's count, shares are shares of the samples.
func TestNoKernelCount(t *testing.T) {
	r := rec(t, map[string]string{"cpu": cpuLines})
	r.Meta.Target.PID = 99
	if c, _ := CPUOf(r); c.Kernel != 0 || math.Abs(c.Total()-9) > 1e-9 {
		t.Errorf("kernel %v, total %v", c.Kernel, c.Total())
	}
	if _, ok := CPUOf(rec(t, nil)); ok {
		t.Error("a recording without a profile has CPU time")
	}
}

func TestInterval(t *testing.T) {
	for _, tc := range []struct {
		k, n      int64
		low, high float64 // Wilson's interval, 95 %, by an independent calculator
	}{{0, 0, 0, 1}, {10, 100, 0.0552, 0.1744}, {400, 1000, 0.3701, 0.4307}, {0, 20, 0, 0.1611}, {5, 5, 0.5655, 1}} {
		low, high := Interval(tc.k, tc.n)
		if math.Abs(low-tc.low) > 1e-3 || math.Abs(high-tc.high) > 1e-3 {
			t.Errorf("%d of %d: %.4f to %.4f, want %.4f to %.4f", tc.k, tc.n, low, high, tc.low, tc.high)
		}
	}
}

func TestWaits(t *testing.T) {
	const root = ";java.lang.Thread.run_[j];com.acme.Dao.find:31_[j];"
	for line, want := range map[string]Wait{
		"[a tid=1|running]" + root +
			"java.net.SocketInputStream.read_[j];java.util.HashMap.get_[j]": NotWaiting,
		"[a tid=1|sleeping]" + root +
			"java.net.SocketInputStream.socketRead0_[j];libc.so.6!recv_[n]": ForNetwork,
		"[a tid=1]" + root +
			"java.net.SocketInputStream.socketRead0_[j];libc.so.6!recv_[n]": ForNetwork,
		"[a tid=1]" + root +
			"java.net.SocketInputStream.read_[j];java.util.HashMap.get_[j]": NotWaiting,
		"[a tid=1|sleeping]" + root +
			"com.zaxxer.hikari.util.ConcurrentBag.borrow_[j];java.util.concurrent.SynchronousQueue.poll_[j]": ForPool,
		"[a tid=1|sleeping]" + root +
			"java.util.concurrent.ArrayBlockingQueue.put_[j];jdk.internal.misc.Unsafe.park_[n]": ForQueue,
		"[a tid=1|sleeping];java.lang.Thread.run_[j];java.util.concurrent.LinkedBlockingQueue.take_[j]": Idle,
		"[a tid=1|sleeping]" + root +
			"libjvm.so!ObjectMonitor::enter_[n];libc.so.6!pthread_cond_wait_[n]": ForLock,
		"[a tid=1|sleeping]" + root +
			"java.util.concurrent.locks.ReentrantLock.lock_[j];java.util.concurrent.locks.LockSupport.park_[j]": ForLock,
		"[a tid=1|sleeping]" + root +
			"java.util.concurrent.CompletableFuture.join_[j];java.util.concurrent.locks.LockSupport.park_[j]": ForFuture,
		"[a tid=1|sleeping]" + root +
			"java.lang.Thread.sleep_[j]": ForSleep,
		"[a tid=1|sleeping]" + root +
			"java.io.FileInputStream.readBytes_[j]": ForFile,
		"[a tid=1|sleeping]" + root +
			"java.lang.Object.wait_[j]": ForWakeUp,
		"[a tid=1|sleeping]" + root +
			"com.acme.Native.call_[j];libacme.so!acme_wait_[n]": ForNative,
		"[GC Thread#0 tid=2|sleeping];libjvm.so!thread_native_entry_[n];libc.so.6!futex_wait_[n]":                                           Idle,
		"[x tid=3|sleeping];java.lang.Thread.run_[j];sun.nio.ch.SelectorImpl.select_[j];sun.nio.ch.EPoll.wait_[n];libc.so.6!epoll_wait_[n]": Idle,
	} {
		p, _ := rec(t, map[string]string{"wall": line + " 1 100000000\n"}).Profile(stacks.Wall)
		if got, _ := WaitsOf(p, Owners{}).Of(p.Samples[0]); got != want {
			t.Errorf("%s\nwaits for %q, want %q", line, got, want)
		}
	}
}

func TestWaitTimes(t *testing.T) {
	r := rec(t, map[string]string{"wall": `[a tid=1|sleeping];java.lang.Thread.run_[j];com.acme.Dao.find:31_[j];java.net.SocketInputStream.socketRead0_[n] 150 15000000000
[b tid=2|sleeping];java.lang.Thread.run_[j];java.util.concurrent.LinkedBlockingQueue.take_[j] 100 10000000000
[c tid=3|running];java.lang.Thread.run_[j];com.acme.Shop.cart:42_[j] 100 10000000000
[d tid=4|sleeping];java.lang.Thread.run_[j];com.acme.Shop.load:7_[j];java.lang.Thread.start0_[j];Monitor::wait_[n] 50 5000000000
`})
	p, _ := r.Ranked(stacks.Wall)
	want := []WaitTime{
		{ForNetwork, "com.acme.Dao.find", 31, "", 1.5},
		{ForNative, "com.acme.Shop.load", 7, "java.lang.Thread.start0", 0.5},
	}
	if diff := cmp.Diff(want, WaitTimes(p, OwnersOf(r), 5)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if p.Duration != 10*time.Second {
		t.Errorf("duration %v", p.Duration)
	}
}

// TestEntry: stacks as on Linux 6.18 on x86 and 6.12 on arm64, the outermost call first.
func TestEntry(t *testing.T) {
	kernel := func(names ...string) (*stacks.Profile, stacks.Sample) {
		p, s := &stacks.Profile{}, stacks.Sample{}
		for i, n := range names {
			kind := stacks.Kernel
			if n == "main" {
				kind = stacks.Native
			}
			p.Frames = append(p.Frames, stacks.Frame{Name: n, Kind: kind})
			s.Stack = append([]int{i}, s.Stack...)
		}
		return p, s
	}
	for _, tc := range []struct {
		want  string
		stack []string
	}{
		{"connect()", []string{
			"main", "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_connect",
			"__sys_connect", "inet_stream_connect",
		}},
		{"read()", []string{"main", "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "ksys_read", "vfs_read"}},
		{"epoll_wait()", []string{
			"main", "do_syscall_64", "x64_sys_call", "do_epoll_wait",
			"schedule_hrtimeout_range",
		}},
		{"connect()", []string{
			"main", "el0t_64_sync", "el0_svc", "do_el0_svc", "el0_svc_common.constprop.0",
			"invoke_syscall", "__arm64_sys_connect",
		}},
		{"stat()", []string{"main", "do_syscall_64", "__do_sys_newstat", "vfs_statx"}},
		{"", []string{"main", "entry_SYSCALL_64_after_hwframe", "do_syscall_64"}},
		{"", []string{"main", "do_syscall_64", "syscall_exit_to_user_mode", "do_signal"}},
		{"page fault", []string{"main", "asm_exc_page_fault", "exc_page_fault", "clear_page_erms"}},
		{"page fault", []string{"asm_exc_page_fault", "exc_page_fault"}},
		{"kernel thread", []string{"ret_from_fork_asm", "ret_from_fork", "kthread", "kswapd"}},
		{"", []string{"main"}},
	} {
		p, s := kernel(tc.stack...)
		if got := Entry(p, s); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.stack, got, tc.want)
		}
	}
}

// TestCPUOfAllCPUs: if no runtime's profiler measured the target, its part of the samples of all CPUs serves, the
// kernel included. What those samples cannot show is reported.
func TestCPUOfAllCPUs(t *testing.T) {
	r := rec(t, map[string]string{"host-cpu": `[worker tid=7];app!main_[n];app!work_[n] 500 5000000000
[worker tid=7];app!main_[n];do_syscall_64_[k];__x64_sys_connect_[k];__inet_hash_connect_[k] 200 2000000000
[worker tid=7];[no file]![unknown]_[?] 100 1000000000
[other tid=8];other!main_[n] 900 9000000000
`})
	c, ok := CPUOf(r)
	if !ok {
		t.Fatal("no CPU time")
	}
	want := []PartTime{{PartApplication, 5}, {PartNative, 1}, {PartKernel, 2}, {PartUnsampled, 2}}
	if diff := cmp.Diff(want, c.Parts(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if m := c.Methods(2); len(m) != 2 || m[0].Name != "work" || m[1].Name != "__inet_hash_connect" {
		t.Errorf("functions %+v", m)
	}
	if notes := Notes(r); len(notes) != 1 || !strings.HasPrefix(notes[0],
		"100 % of the stacks of code compiled at run time are one frame deep") {
		t.Errorf("notes %q", notes)
	}
}

// TestCPUOfScripts: if the functions of scripts are most of the target's CPU time, they are its CPU time. Its machine
// code is available on request.
func TestCPUOfScripts(t *testing.T) {
	machine := `[python3 tid=7];python3.11!_PyEval_EvalFrameDefault_[n] 1000 10000000000
`
	r := rec(t, map[string]string{"host-cpu": machine, "script-cpu": `[python3 tid=7];py::<module>:/srv/app.py:9_[0];py::shop:/srv/app.py:4_[0];py::dumps:/usr/lib/python3.11/json/__init__.py:231_[0] 60 6000000000
[python3 tid=7];py::<module>:/srv/app.py:9_[0];py::shop:/srv/app.py:5_[0] 20 2000000000
`})
	c, ok := CPUOf(r)
	if !ok || c.Event != stacks.Script || c.Total() != 10 || c.System != 2 {
		t.Fatalf("%+v, %v", c, ok)
	}
	want := []PartTime{{PartApplication, 2}, {PartLibraries, 6}, {PartUnsampled, 2}}
	if diff := cmp.Diff(want, c.Parts(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if m := c.Methods(1); len(m) != 1 || At(m[0].Name, m[0].Line) != "shop (/srv/app.py:4)" {
		t.Errorf("functions %+v", m)
	}
	h, ok := c.Hottest(5)
	if !ok || h.Name != "shop (/srv/app.py)" || h.Inner != "dumps (/usr/lib/python3.11/json/__init__.py)" ||
		h.InnerTime.Value != 6e9 {
		t.Errorf("hottest %+v", h)
	}
	if c, ok := CodeOf(r); !ok || c.Event != stacks.HostCPU {
		t.Errorf("machine code %+v, %v", c, ok)
	}
	few := rec(t, map[string]string{"host-cpu": machine, "script-cpu": `[python3 tid=7];py::f:/srv/app.py:9_[0] 40 4000000000
`})
	if c, ok := CPUOf(few); !ok || c.Event != stacks.HostCPU { // what machine code does beside them is more
		t.Errorf("scripts of 4 s of 10: %+v, %v", c, ok)
	}
}

// TestAttributedInGo: the standard library and the kernel work for the method that calls them. Names with a slash
// belong to a module.
func TestAttributedInGo(t *testing.T) {
	lines := map[string]string{
		"main.tax":          "shop!runtime.goexit.abi0_[n];shop!main.serve_[n];shop!main.tax_[n]",
		"main.render":       "shop!runtime.goexit.abi0_[n];shop!main.serve_[n];shop!main.render_[n];shop!fmt.Fprintf_[n];shop!memeqbody_[n]",
		"main.sign":         "shop!runtime.goexit.abi0_[n];shop!main.sign_[n];shop!crypto/internal/fips140/sha256.block_[n]",
		"main.write":        "shop!runtime.goexit.abi0_[n];shop!main.write_[n];shop!syscall.write_[n];tcp_sendmsg_[k]",
		"example.org/a.Sum": "shop!runtime.goexit.abi0_[n];shop!main.serve_[n];shop!example.org/a.Sum_[n];shop!sort.Slice_[n]",
		"main.sort.func1":   "shop!runtime.goexit.abi0_[n];shop!main.sort_[n];shop!sort.Slice_[n];shop!main.sort.func1_[n]",
		"[GC]":              "shop!runtime.goexit.abi0_[n];shop!runtime.gcBgMarkWorker_[n];shop!runtime.scanObject_[n]",
		"runtime.schedule":  "shop!runtime.mstart.abi0_[n];shop!runtime.schedule_[n]",
		"inflate":           "libz.so.1!inflate_[n]",
	}
	for want, line := range lines {
		c, ok := CPUOf(rec(t, map[string]string{"cpu": "[];" + line + " 1 10101010\n"}))
		if !ok {
			t.Fatal("no profile")
		}
		if got := attributed(c)[0].Name; got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	c, _ := CPUOf(rec(t, map[string]string{"cpu": "[];server!main.serve_[n];server!fmt.print_[n] 1 10101010\n"}))
	if got := attributed(c)[0].Name; got != "fmt.print" {
		t.Errorf("a program that is not Go's, with a function of such a name: %q", got)
	}
}

func attributed(c *CPU) (out []Attribution) {
	c.Attributed(func(_ stacks.Sample, a Attribution) {
		a.Callers = slices.Clone(a.Callers)
		out = append(out, a)
	})
	return out
}

// TestAttributedInlined: code that is inlined with other code into one compiled method is told apart from code that is
// compiled by itself, or called from there.
func TestAttributedInlined(t *testing.T) {
	c, ok := CPUOf(rec(t, map[string]string{"cpu": "[];com.acme.Shop.order_[j];com.acme.Shop.tax_[i] 1 10101010\n" +
		"[];com.acme.Shop.order_[j] 1 10101010\n" +
		"[];com.acme.Shop.order_[j];com.acme.Shop.price_[j] 1 10101010\n" +
		"[];com.acme.Shop.order_[j];com.acme.Shop.sort_[i];java.util.Arrays.sort_[j] 1 10101010\n"}))
	if !ok {
		t.Fatal("no profile")
	}
	order := Caller{"com.acme.Shop.order", false}
	want := []Attribution{
		{Name: "com.acme.Shop.order", Inlined: true, Callers: []Caller{order}},
		{Name: "com.acme.Shop.price", Callers: []Caller{{"com.acme.Shop.price", false}, order}},
		{Name: "com.acme.Shop.sort", Callers: []Caller{{"com.acme.Shop.sort", false}, order}},
		{Name: "com.acme.Shop.tax", Inlined: true, Callers: []Caller{{"com.acme.Shop.tax", true}, order}},
	}
	got := attributed(c)
	slices.SortFunc(got, func(x, y Attribution) int { return strings.Compare(x.Name, y.Name) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestShaded: a library in a package of another library counts as the library. A name that only contains such a word
// does not.
func TestShaded(t *testing.T) {
	type outcome struct {
		Name  string
		Owner Owner
	}
	o := Owners{main: "org.shop."}
	for name, want := range map[string]outcome{
		"io.grpc.netty.shaded.io.netty.channel.epoll.Native.epollWait0": {
			"io.netty.channel.epoll.Native.epollWait0", Library,
		},
		"org.apache.flink.shaded.netty4.io.netty.channel.nio.NioEventLoop.run": {
			"io.netty.channel.nio.NioEventLoop.run", Library,
		},
		"org.shop.thirdparty.com.google.common.base.Joiner.join": {"com.google.common.base.Joiner.join", Library},
		"org.shop.shaded.Lamp.light":                             {"org.shop.shaded.Lamp.light", Application},
		"org.shop.Order.total":                                   {"org.shop.Order.total", Application},
	} {
		f := stacks.Frame{Name: name, Kind: stacks.Compiled}
		got, _ := unshaded(f)
		if diff := cmp.Diff(want, outcome{got, o.Of(f)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
