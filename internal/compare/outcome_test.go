package compare

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestCuresAreBetter compares a program and its fixed form in both directions, under clients that wait for each answer
// (closed) or ask at a rate (open). What comes with more work done is not a regression.
func TestCuresAreBetter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before func(p *program) // from shop, the fixed one
		after  func(p *program)
	}{
		{"closed, 1.1 times, by one method", func(p *program) {
			p.cpu, p.requests, p.latency = 1.1*p.cpu, p.requests/1.1, 1.1*p.latency
			p.methods = maps.Clone(p.methods)
			p.methods["main.tax"] += 0.1
		}, keep},
		{"closed, 1.5 times", slower(1.5, 1), keep},
		{"closed, twice", slower(2, 1), keep},
		{"closed, 8 times, the CPUs are full then", slower(8, 1), full},
		{"closed, 13 times, dearer requests then", slower(13, 1), func(p *program) { p.cpu *= 1.6; full(p) }},
		{"closed, 100 times", slower(100, 1), full},
		{"open, 3 times as fast", slower(1, 3), keep},
		{"open, 5 times as fast, the CPUs are full then", slower(1, 5), full},
		{"open, 100 times as fast", slower(1, 100), keep},
		{"open, it cannot keep up", slower(4, 30), keep},
		{"open, half as dear, answers as fast", func(p *program) { p.cpu *= 2 }, keep},
		{"open, a third fails", func(p *program) { p.failing = 0.3 }, full},
		{"a stop that was taken away, and no times are known", func(p *program) {
			p.timeWait, p.latency, p.cpu, p.requests = 500, 0, 4*p.cpu, p.requests/3
		}, func(p *program) { p.latency = 0 }},
	} {
		cured := shop(2)
		cured.latency, cured.seconds = 0.02, 60
		sick := cured
		sick.seed = 1
		tt.before(&sick)
		tt.after(&cured)
		if d := compared(t, sick, cured); d.Verdict.Result != Improved {
			t.Errorf("%s: %s: %+v, %q", tt.name, d.Verdict.Summary, d.Verdict.Worse, d.Doubts)
		}
		if d := compared(t, cured, sick); d.Verdict.Result != Worse {
			t.Errorf("%s, the other way round: %s: %+v, %q", tt.name, d.Verdict.Summary, d.Verdict.Better, d.Doubts)
		}
	}
}

func keep(*program) {}

// full has more TIME_WAIT sockets than the check of these tests allows: what comes with more work done.
func full(p *program) { p.timeWait = 500 }

// slower does so many times less, and takes so many times longer as well. Clients that wait for each answer get as much
// less done as an answer takes longer.
func slower(rate, open float64) func(*program) {
	return func(p *program) { p.requests, p.latency = p.requests/rate, p.latency*rate*open }
}

// TestUnequalLoad: one program under unequal load is neither better nor worse, whatever comes or goes with the load.
func TestUnequalLoad(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		light, heavy := shop(2*seed), shop(2*seed+1)
		factor := []float64{1.7, 2, 3, 5, 10}[seed%5]
		light.latency, heavy.latency = 0.02, 0.02*[]float64{0.9, 1, 2, 5}[seed%4]
		heavy.requests *= factor
		heavy.cpu *= []float64{0.6, 1, 1.4}[seed%3] // wakeups are shared, or locks are contended
		heavy.timeWait = 500
		name := fmt.Sprintf("%v times the load", factor)
		for _, pair := range [][2]program{{light, heavy}, {heavy, light}} {
			if d := compared(t, pair[0], pair[1]); d.Verdict.Result != Same || d.Outcome.Load == LoadSame {
				t.Errorf("%s, seed %d: %s, load %s", name, seed, d.Verdict.Summary, d.Outcome.Load)
			}
		}
	}
}

// TestPerhapsMoreLoad: if segments stand for requests, four times as many may be a larger load.
func TestPerhapsMoreLoad(t *testing.T) {
	t.Parallel()
	light, heavy := shop(1), shop(2)
	heavy.requests *= 4
	full(&heavy)
	d := compared(t, light, heavy)
	if d.Verdict.Result != Same || !strings.Contains(strings.Join(d.Doubts, "\n"), "the load may differ") {
		t.Errorf("%s: %q", d.Verdict.Summary, d.Doubts)
	}
	heavy.requests = light.requests
	if d := compared(t, light, heavy); d.Verdict.Result != Worse {
		t.Errorf("with the same load: %s", d.Verdict.Summary)
	}
}

// TestFixedCost: work that a program does for no request costs each request less under four times the load, if the CPU
// time of a request scatters too much to tell.
func TestFixedCost(t *testing.T) {
	t.Parallel()
	light, heavy := shop(1), shop(2)
	light.scatter, heavy.scatter = 0.6, 0.6
	heavy.requests *= 4
	heavy.cpu *= 0.8125
	heavy.methods = map[string]float64{
		"main.parse": 0.25, "main.price": 0.37, "main.discount": 0.18, "main.tax": 0.12, "main.render": 0.08,
	}
	for _, pair := range [][2]program{{light, heavy}, {heavy, light}} {
		d := compared(t, pair[0], pair[1])
		if len(d.Methods.Shrunk)+len(d.Methods.Grown) == 0 {
			t.Error("no method differs")
		}
		if d.Verdict.Result != Same {
			t.Errorf("%s", d.Verdict.Summary)
		}
	}
}

// TestBottleneckMoved: a moved bottleneck is reported, and is not a regression.
func TestBottleneckMoved(t *testing.T) {
	b, a := shop(1), shop(2)
	slower(8, 1)(&b)
	full(&a)
	b.latency, a.latency = 0.16, 0.02
	d := compared(t, b, a)
	if !d.Findings[0].Moved || !strings.Contains(strings.Join(d.Doubts, "\n"), "the bottleneck moved to time-wait") {
		t.Errorf("%q, %+v", d.Doubts, d.Findings)
	}
}

// TestToldP99: the p99 that a load generator printed at its end tells a load from a capacity.
func TestToldP99(t *testing.T) {
	for _, tt := range []struct {
		p99  float64
		want Result
	}{{0.03, Improved}, {0.1, Same}, {0, Same}} {
		d := Compare(shop(1).record(t), shop(2).record(t), Options{
			Checks: []*check.Check{backlog()},
			Load:   [2]keynumber.Told{{Requests: 358, P99: 0.1}, {Requests: 2834, P99: tt.p99}},
		})
		if got := d.Outcome.Result; got != tt.want && (tt.want != Same || got != Unknown) {
			t.Errorf("p99 of 100 ms, then %v s: %s, %s", tt.p99, got, d.Verdict.Summary)
		}
	}
}

func TestOneRecording(t *testing.T) {
	rec := shop(1).record(t)
	if d := Compare(rec, rec, Options{}); !d.One || d.Verdict.Result != Same {
		t.Errorf("%v, %s", d.One, d.Verdict.Summary)
	}
	if d := compared(t, shop(1), shop(2)); d.One {
		t.Error("two recordings are taken for one")
	}
}

func TestDifferent(t *testing.T) {
	jvm := func(args ...string) recording.Target {
		return recording.Target{
			Kind: "process", Name: "java", Runtime: "jvm", Cmdline: append([]string{"java"}, args...),
		}
	}
	process := func(name string) recording.Target { return recording.Target{Kind: "process", Name: name} }
	for _, tt := range []struct {
		x, y recording.Target
		want bool
	}{
		{process("shop"), process("shop"), false},
		{process("shop"), process("redis-server"), true},
		{process("worker-1"), process("worker-2"), false},
		{process("shop"), recording.Target{Kind: "cgroup", Name: "shop"}, true},
		{jvm("-Xmx1g", "-jar", "/opt/shop-1.2.jar"), jvm("-jar", "shop-1.3.jar", "--port", "1"), false},
		{jvm("-jar", "shop-1.2.jar"), jvm("-jar", "router-1.2.jar"), true},
		{jvm("-cp", "a.jar", "com.acme.Shop"), jvm("-XX:+UseZGC", "-cp", "b.jar", "com.acme.Shop"), false},
		{jvm("-cp", "a.jar", "com.acme.Shop"), jvm("-cp", "a.jar", "com.acme.Router"), true},
		{jvm(), jvm("-jar", "shop.jar"), false},
	} {
		of := func(t recording.Target) *recording.Recording {
			return &recording.Recording{Meta: recording.Meta{Target: t}}
		}
		if got := Different(of(tt.x), of(tt.y)); (got != "") != tt.want {
			t.Errorf("%+v and %+v: %q", tt.x, tt.y, got)
		}
	}
}
