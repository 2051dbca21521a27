package stacks

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

const (
	preamble = "event: cpu\nengine: async-profiler 4.6 perf_events\ninterval: 10000000\nduration: 10.003s\nlost: 2\n"
	header   = preamble + "\n"
	timed    = preamble + "bucket: 1s\n\n"
)

// shop is a small program: half of its time goes to a pattern that is compiled per call.
const shop = timed + `[http-1 tid=11];java.lang.Thread.run:829_[j];com.example.Shop.cart:42_[j];java.util.regex.Pattern.compile:5_[i];java.util.regex.Pattern.expr_[i] 40 400
[http-1 tid=11];java.lang.Thread.run:829_[j];com.example.Shop.cart:43_[0];java.util.regex.Pattern.compile:5_[j] 10 100
[http-1 tid=11];java.lang.Thread.run:829_[j];com.example.Shop.cart:43_[0];libc.so.6!memcpy_[n];asm_sysvec_apic_timer_interrupt_[k];handle_softirqs_[k];net_rx_action_[k] 20 200
[http-2 tid=12|@1s];java.lang.Thread.run:829_[j];com.example.Shop.pay:7_[j];java.lang.String.split_[j];java.util.regex.Pattern.compile:9_[j];java.util.regex.Pattern.expr_[0];java.util.regex.Pattern.expr_[0] 10 100
[];GangWorker::loop_[n] 20 200
`

func parse(t testing.TB, text string) *Profile {
	t.Helper()
	p, err := ParseText([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func text(t testing.TB, p *Profile) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func pprofOf(t testing.TB, p *Profile) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.WritePprof(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// awkward has everything that is hard to store.
func awkward() *Profile {
	b := NewBuilder(Wall)
	names := []string{
		"a;b", "a!b", `a\`, "a:12", "a:12:0", "a_[j]", "operator|(int, char)", "\x00\x1b[31m\n", "-- x --",
		"# no comment", "é ", " ", ":1",
		"std::map<int, foo>::operator()(int) const", strings.Repeat("x", maxName), strings.Repeat("é", maxName),
		"bad \xff",
	}
	var stack []int
	for i, n := range names {
		stack = append(stack, b.Frame(Frame{Name: n, Kind: Kind(i % len(marks))}),
			b.Frame(Frame{Name: n, Module: n, Line: i * math.MaxInt32 / 20}))
	}
	for i, n := range names {
		th := b.Thread(Thread{Name: n, ID: i % 3})
		b.Add(Sample{
			Stack: stack[i:], Thread: th, Class: n, State: State(i % 3), At: time.Duration(i) * 333_333_333,
			Count: 1, Value: 1 << 50,
		})
	}
	b.Add(Sample{Thread: -1, Count: 1, Value: 0})
	b.Add(Sample{Thread: b.Thread(Thread{Name: "x tid=7"}), Count: 0, Value: 1})
	b.Add(Sample{Thread: b.Thread(Thread{ID: math.MaxInt32}), Stack: []int{b.Frame(Frame{})}, Count: 3, Value: 9})
	p := b.Profile()
	p.Engine, p.Interval, p.Duration, p.Bucket, p.Lost = "e\n; x", 100_000_000, 10_003_000_001, 333_333_333, 7
	return p
}

func TestRoundTrips(t *testing.T) {
	empty := &Profile{Event: Alloc}
	for _, p := range []*Profile{awkward(), parse(t, shop), empty} {
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, parse(t, text(t, p))); diff != "" {
			t.Errorf("text: -want +got:\n%s", diff)
		}
		q, err := ParsePprof(bytes.NewReader(pprofOf(t, p)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, q); diff != "" {
			t.Errorf("pprof: -want +got:\n%s", diff)
		}
		if !bytes.Equal(pprofOf(t, p), pprofOf(t, q)) {
			t.Error("the same profile gives two different files")
		}
		m, err := Merge(p)
		if diff := cmp.Diff(p, m); err != nil || diff != "" {
			t.Errorf("merge of one: %v, -want +got:\n%s", err, diff)
		}
	}
}

// TestTextIsReadable pins the form that people edit.
func TestTextIsReadable(t *testing.T) {
	want := timed + `[];GangWorker::loop_[n] 20 200
[http-1 tid=11];java.lang.Thread.run:829_[j];com.example.Shop.cart:43_[0];java.util.regex.Pattern.compile:5_[j] 10 100
[http-1 tid=11];java.lang.Thread.run:829_[j];com.example.Shop.cart:42_[j];java.util.regex.Pattern.compile:5_[i];java.util.regex.Pattern.expr_[i] 40 400
[http-1 tid=11];java.lang.Thread.run:829_[j];com.example.Shop.cart:43_[0];libc.so.6!memcpy_[n];asm_sysvec_apic_timer_interrupt_[k];handle_softirqs_[k];net_rx_action_[k] 20 200
[http-2 tid=12|@1s];java.lang.Thread.run:829_[j];com.example.Shop.pay:7_[j];java.lang.String.split_[j];java.util.regex.Pattern.compile:9_[j];java.util.regex.Pattern.expr_[0];java.util.regex.Pattern.expr_[0] 10 100
`
	lines := func(s string) map[string]int {
		out := map[string]int{}
		for line := range strings.Lines(s) {
			out[line]++
		}
		return out
	}
	got := text(t, parse(t, "# a comment\n"+strings.ReplaceAll(shop, "\n[", "\n\n# another\n[")))
	if diff := cmp.Diff(lines(want), lines(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseTextRefuses(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"", `line 1: the profile ends before its "event"`},
		{"event: cpu\n", `line 2: the profile ends before its "engine"`},
		{"engine: x\n", `line 1: "engine: x", want "event: ..."`},
		{strings.Replace(header, "cpu", "gpu", 1), `there is no event "gpu"`},
		{strings.Replace(header, "10000000", "-1", 1), `line 3: "-1" is no number`},
		{strings.Replace(header, "10.003s", "10", 1), `line 4: "10" is no duration`},
		{header + "java.lang.Thread.run_[j] 1 1\n", "line 7: \"java.lang.Thread.run_[j]\" is no [thread tid=N"},
		{header + "[a tid=1];f_[j] 1\n", "is no"},
		{header + "[a tid=1]\n", "line 7: \"[a tid=1]\" does not end in a count and a value"},
		{header + "[a tid=1];f_[j] 1 x\n", `"x" is no number`},
		{header + "[a tid=1];f_[j] -1 1\n", `"-1" is no number`},
		{header + "[a tid=1];f_[j] 9223372036854775808 1\n", "is no number"},
		{header + "[a tid=1];f_[j] 9223372036854775807 1\n[b tid=1];f_[j] 1 1\n", "their sum overflows"},
		{header + "[a];f_[j] 1 1\n", "has no tid="},
		{header + "[ tid=0];f_[j] 1 1\n", "neither name nor tid"},
		{header + "[a tid=x];f_[j] 1 1\n", "its tid is no number"},
		{header + "[a tid=1|tired];f_[j] 1 1\n", `"tired" is no @time, state or class`},
		{header + "[a tid=1|@x];f_[j] 1 1\n", "is no duration"},
		{header + "[a tid=1];f 1 1\n", "does not end in its kind"},
		{header + "[a tid=1];f_[x] 1 1\n", "does not end in its kind"},
		{header + "[a tid=1];f_[j 1 1\n", "does not end in its kind"},
		{header + "[a tid=1];_[j] 1 1\n", "has no name"},
		{header + "[a tid=1];a!b!c_[j] 1 1\n", "more than one ! in it"},
		{header + "[a tid=1];f:99999999999_[j] 1 1\n", "too large"},
		{header + "[a tid=1];f\\q_[j] 1 1\n", `has \q`},
		{header + "[a tid=1];f\\xzz_[j] 1 1\n", "without two hexadecimal digits"},
		{header + "[a tid=1];f\xff_[j] 1 1\n", "not UTF-8"},
		{header + "[a tid=1];" + strings.Repeat("f", maxName+1) + "_[j] 1 1\n", "longer than"},
		{header + strings.Repeat("x", maxText+1), "line 7: bufio.Scanner: token too long"},
	} {
		p, err := ParseText([]byte(tc.text))
		if p != nil && err == nil || err == nil || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 300 {
			t.Errorf("%.200q: error %v, want %s", tc.text, err, tc.want)
		}
	}
}

// TestBucketOfOlderProfiles: a profile that does not say how long its time buckets last has the longest that its times
// allow.
func TestBucketOfOlderProfiles(t *testing.T) {
	const head = "event: cpu\nengine: e\ninterval: 1\nduration: 9s\nlost: 0\n"
	for text, want := range map[string]time.Duration{
		"[] 1 1\n":                           0,
		"[] 1 1\n[|@2s] 1 1\n[|@5s] 1 1\n":   time.Second,
		"[|@4s] 1 1\n[|@6s] 1 1\n":           2 * time.Second,
		"bucket: 1s\n[] 1 1\n[|@4s] 1 1\n":   time.Second,
		"bucket: 500ms\n[] 1 1\n# none else": 500 * time.Millisecond,
	} {
		p, err := ParseText([]byte(head + text))
		if err != nil || p.Bucket != want {
			t.Errorf("%q: buckets of %v, %v, want %v", text, p.Bucket, err, want)
		}
	}
}

func TestQueries(t *testing.T) {
	p := parse(t, shop)
	named := func(prefix string) Set {
		return p.Set(func(f Frame) bool { return strings.HasPrefix(f.Name, prefix) })
	}
	compile, expr, app := named("java.util.regex.Pattern.compile"), named("java.util.regex.Pattern.expr"),
		named("com.example.")
	split := named("java.lang.String.split")
	for _, tc := range []struct {
		name      string
		got, want Weight
	}{
		{"total", p.Total(), Weight{100, 1000}},
		{"inclusive", p.Inclusive(compile), Weight{60, 600}},
		{"recursive calls count once", p.Inclusive(expr), Weight{50, 500}},
		{"self", p.Self(compile), Weight{10, 100}},
		{"excluded", p.Without(split).Inclusive(compile), Weight{50, 500}},
		{"below", p.Below(split).Inclusive(compile), Weight{10, 100}},
		{"below keeps no caller", p.Below(split).Inclusive(app), Weight{}},
		{"below self", p.Below(compile).Self(expr), Weight{50, 500}},
		{"unknown thread", p.Filter(func(s Sample) bool { return p.ThreadOf(s) == Thread{} }).Total(), Weight{20, 200}},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, tc.got, tc.want)
		}
	}
	if got := p.Total(); got != (Weight{100, 1000}) {
		t.Errorf("queries changed the profile: %v", got)
	}
	wantCallers := []Row{
		{Frame{Name: "com.example.Shop.cart", Line: 42}, Weight{40, 400}, Weight{40, 400}},
		{Frame{Name: "com.example.Shop.cart", Line: 43}, Weight{10, 100}, Weight{10, 100}},
		{Frame{Name: "com.example.Shop.pay", Line: 7}, Weight{10, 100}, Weight{10, 100}},
	}
	if diff := cmp.Diff(wantCallers, p.Callers(compile, app, line)); diff != "" {
		t.Errorf("callers: -want +got:\n%s", diff)
	}
	wantNone := []Row{{Frame{}, Weight{20, 200}, Weight{20, 200}}}
	if diff := cmp.Diff(wantNone, p.Callers(named("GangWorker"), app, Method)); diff != "" {
		t.Errorf("no caller: -want +got:\n%s", diff)
	}
	wantTop := []Row{
		{Frame{Name: "java.lang.Thread.run"}, Weight{}, Weight{80, 800}},
		{Frame{Name: "com.example.Shop.cart"}, Weight{}, Weight{70, 700}},
		{Frame{Name: "java.util.regex.Pattern.compile"}, Weight{10, 100}, Weight{60, 600}},
		{Frame{Name: "java.util.regex.Pattern.expr"}, Weight{50, 500}, Weight{50, 500}},
	}
	if diff := cmp.Diff(wantTop, p.Top(Method)[:4]); diff != "" {
		t.Errorf("top: -want +got:\n%s", diff)
	}
	wantThreads := []Share[Thread]{
		{Thread{11, "http-1"}, Weight{70, 700}},
		{Thread{}, Weight{20, 200}},
		{Thread{12, "http-2"}, Weight{10, 100}},
	}
	if diff := cmp.Diff(wantThreads, Group(p, p.ThreadOf)); diff != "" {
		t.Errorf("threads: -want +got:\n%s", diff)
	}
}

// line removes the kind from a frame, because the same source line may be interpreted first and compiled later.
func line(f Frame) Frame { return Frame{Name: f.Name, Module: f.Module, Line: f.Line} }

func TestClean(t *testing.T) {
	for _, tc := range []struct{ name, stack, want string }{
		{
			"a timer that ran softirqs",
			"a.A.b_[j];asm_sysvec_apic_timer_interrupt_[k];irq_exit_rcu_[k];handle_softirqs_[k]", "a.A.b_[j]",
		},
		{
			"in a system call",
			"a.A.b_[j];read_[n];do_syscall_64_[k];ksys_read_[k];asm_common_interrupt_[k];nvme_irq_[k]",
			"a.A.b_[j];read_[n];do_syscall_64_[k];ksys_read_[k]",
		},
		{
			"softirqs alone", "a.A.b_[j];do_softirq_own_stack_[k];__do_softirq_[k];net_rx_action_[k]",
			"a.A.b_[j];do_softirq_own_stack_[k]",
		},
		{"arm64", "a.A.b_[j];el0t_64_irq_[k];gic_handle_irq_[k]", "a.A.b_[j]"},
		{
			"the thread's own packets",
			"a.A.b_[j];tcp_sendmsg_[k];__local_bh_enable_ip_[k];do_softirq_[k];handle_softirqs_[k];tcp_v4_rcv_[k]",
			"a.A.b_[j];tcp_sendmsg_[k];__local_bh_enable_ip_[k];do_softirq_[k];handle_softirqs_[k];tcp_v4_rcv_[k]",
		},
		{
			"its own page fault", "a.A.b_[j];asm_exc_page_fault_[k];clear_page_erms_[k]",
			"a.A.b_[j];asm_exc_page_fault_[k];clear_page_erms_[k]",
		},
		{"a program's function of that name", "sysvec_table_[n];f_[n]", "sysvec_table_[n];f_[n]"},
		{"only an interrupt", "asm_sysvec_call_function_[k];x_[k]", ""},
		{"lambda of 17", "a.A$$Lambda$14/0x0000000800c03000.run_[j]", "a.A$$Lambda.run_[j]"},
		{"lambda of 17, dotted", "a.A$$Lambda$14.0x0000000800c03000.run_[j]", "a.A$$Lambda.run_[j]"},
		{"lambda of 25", "a.A$$Lambda+0x00007f0c0c000a00.123456.run_[j]", "a.A$$Lambda.123456.run_[j]"},
		{"lambda in source", "a.A.lambda$main$0_[j]", "a.A.lambda$main$0_[j]"},
		{
			"method handle", "java.lang.invoke.LambdaForm$DMH.0x0000000800c03000.invokeStatic_[j]",
			"java.lang.invoke.LambdaForm$DMH.invokeStatic_[j]",
		},
		{
			"method handle of 11", "java.lang.invoke.LambdaForm$MH$17.invoke_[j]",
			"java.lang.invoke.LambdaForm$MH.invoke_[j]",
		},
		{
			"accessor", "jdk.internal.reflect.GeneratedMethodAccessor12.invoke_[j]",
			"jdk.internal.reflect.GeneratedMethodAccessor.invoke_[j]",
		},
		{"proxy", "com.sun.proxy.$Proxy23.get_[j]", "com.sun.proxy.$Proxy.get_[j]"},
	} {
		line := func(stack string) string { return header + strings.TrimSuffix("[a tid=1];"+stack, ";") + " 1 10\n" }
		if diff := cmp.Diff(line(tc.want), text(t, parse(t, line(tc.stack)).Clean())); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.name, diff)
		}
	}
	p := parse(t, shop)
	if c := p.Clean(); c.Total() != p.Total() ||
		c.Self(c.Set(func(f Frame) bool { return f.Name == "memcpy" })) != (Weight{20, 200}) {
		t.Error("the time of an interrupt must stay with the interrupted code")
	}
}

func TestMerge(t *testing.T) {
	p := parse(t, shop)
	got, err := Merge(p, p, p)
	if err != nil {
		t.Fatal(err)
	}
	if got.Total() != (Weight{300, 3000}) || len(got.Samples) != len(p.Samples) || got.Lost != 6 ||
		got.Duration != p.Duration {
		t.Errorf("%+v", got)
	}
	other := *p
	other.Engine = "another"
	if _, err := Merge(p, &other); err == nil || !strings.Contains(err.Error(), "not of one kind") {
		t.Errorf("two engines: %v", err)
	}
	huge := parse(t, header+"[];f_[n] 1 9223372036854775807\n")
	if got, err := Merge(huge, huge); err != nil || got.Lost != 2+2+1 || got.Total() != huge.Total() {
		t.Errorf("a sum that overflows is lost: %+v, %v", got, err)
	}
}

func TestBuilderIsBounded(t *testing.T) {
	b := NewBuilder(CPU)
	for i := range maxSamples + 5 {
		b.Add(Sample{Stack: []int{b.Frame(Frame{Name: "f", Line: i})}, Thread: -1, Count: 1, Value: 1})
	}
	b.Add(Sample{Stack: []int{0}, Thread: -1, Count: 7, Value: 7}) // a stack that is known
	p := b.Profile()
	if len(p.Samples) != maxSamples || len(p.Frames) != maxSamples || p.Lost != 5 ||
		p.Total() != (Weight{maxSamples + 7, maxSamples + 7}) {
		t.Errorf("%d samples, %d frames, %d lost, total %v", len(p.Samples), len(p.Frames), p.Lost, p.Total())
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Profile){
		"event":       func(p *Profile) { p.Event = "x" },
		"interval":    func(p *Profile) { p.Interval = -1 },
		"duration":    func(p *Profile) { p.Duration = -1 },
		"bucket":      func(p *Profile) { p.Bucket = -1 },
		"lost":        func(p *Profile) { p.Lost = -1 },
		"engine":      func(p *Profile) { p.Engine = "\xff" },
		"frame name":  func(p *Profile) { p.Frames[1].Name = "" },
		"module":      func(p *Profile) { p.Frames[1].Module = "\xff" },
		"line":        func(p *Profile) { p.Frames[1].Line = -1 },
		"kind":        func(p *Profile) { p.Frames[1].Kind = Kernel + 1 },
		"thread":      func(p *Profile) { p.Threads[0] = Thread{} },
		"thread id":   func(p *Profile) { p.Threads[0].ID = -1 },
		"count":       func(p *Profile) { p.Samples[1].Count = -1 },
		"value":       func(p *Profile) { p.Samples[1].Value = -1 },
		"overflow":    func(p *Profile) { p.Samples[1].Value = math.MaxInt64 },
		"time":        func(p *Profile) { p.Samples[1].At = -1 },
		"no thread":   func(p *Profile) { p.Samples[1].Thread = len(p.Threads) },
		"thread -2":   func(p *Profile) { p.Samples[1].Thread = -2 },
		"state":       func(p *Profile) { p.Samples[1].State = Sleeping + 1 },
		"class":       func(p *Profile) { p.Samples[1].Class = "\xff" },
		"no frame":    func(p *Profile) { p.Samples[1].Stack[0] = len(p.Frames) },
		"frame -1":    func(p *Profile) { p.Samples[1].Stack[0] = -1 },
		"too many":    func(p *Profile) { p.Samples = make([]Sample, maxSamples+1) },
		"engine long": func(p *Profile) { p.Engine = strings.Repeat("x", maxName+1) },
	} {
		p := parse(t, shop)
		spoil(p)
		if err := p.Validate(); err == nil {
			t.Errorf("%s: a bad one is valid", name)
		}
		if _, err := Merge(p); err == nil {
			t.Errorf("%s: a bad one is merged", name)
		}
	}
}

// TestGoToolPprof shows that the file opens in the tool people have.
func TestGoToolPprof(t *testing.T) {
	testenv.Need(t, testenv.Tool("go"))
	path := filepath.Join(t.TempDir(), "cpu.pb.gz")
	if err := os.WriteFile(path, pprofOf(t, parse(t, shop)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ flags, want string }{
		{"-top", " 600ns 60.00%  java.util.regex.Pattern.compile"},
		{"-top -sample_index=samples", "60 60.00%  java.util.regex.Pattern.compile"},
		{"-top -tagfocus=thread=http-2", "java.lang.String.split"},
		{"-tags", "http-1"},
		{"-comments", "engine: async-profiler 4.6 perf_events"},
	} {
		cmd := exec.CommandContext(t.Context(), "go",
			append(append([]string{"tool", "pprof"}, strings.Fields(tc.flags)...), path)...)
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v, want %q in\n%s", tc.flags, err, tc.want, out)
		}
	}
}

func FuzzParseText(f *testing.F) {
	f.Add([]byte(shop))
	f.Add([]byte(text(f, awkward())))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseText(data)
		if err != nil {
			return
		}
		roundTrip(t, p)
	})
}

func FuzzParsePprof(f *testing.F) {
	f.Add(pprofOf(f, parse(f, shop)))
	f.Add(pprofOf(f, awkward()))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePprof(bytes.NewReader(data))
		if err != nil {
			return
		}
		roundTrip(t, p)
	})
}

// roundTrip checks that a profile that was read is valid, survives both forms, and that no query panics on it.
func roundTrip(t *testing.T, p *Profile) {
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	again, err := ParseText([]byte(text(t, p)))
	if diff := cmp.Diff(p, again); err != nil || diff != "" {
		t.Fatalf("text: %v, -want +got:\n%s", err, diff)
	}
	again, err = ParsePprof(bytes.NewReader(pprofOf(t, p)))
	if diff := cmp.Diff(p, again); err != nil || diff != "" {
		t.Fatalf("pprof: %v, -want +got:\n%s", err, diff)
	}
	p.Top(Method)
	if c := p.Clean(); c.Total() != p.Total() {
		t.Fatalf("clean changes the total from %v to %v", p.Total(), c.Total())
	}
}
