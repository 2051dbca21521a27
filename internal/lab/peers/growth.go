package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
)

// A Growth is the cost of more of something: the CPU seconds of a command over three decades of sizes.
type Growth struct {
	Of      string
	Command string
	Points  []Point // the first has none, or the least possible
}

// A Point is one size, and what each run at that size took.
type Point struct {
	Size int
	CPU  []float64
}

// exponent returns b in "CPU time rises with the bth power of the size". It counts only the time beyond the first
// point: the fixed cost of a program would hide how the rest grows. It leaves out sizes whose extra time is within
// its own error. ok is false if fewer than two other sizes remain.
func (g Growth) exponent() (b estimate, ok bool) {
	base, df := spreadOf(g.Points[0].CPU), float64(len(g.Points[0].CPU)-1)
	var sizes []float64
	var above []spread
	for _, p := range g.Points[1:] {
		s := spreadOf(p.CPU)
		s.mean, s.variance = s.mean-base.mean, s.variance+base.variance
		if s.mean > math.Sqrt(s.variance) {
			sizes, above, df = append(sizes, float64(p.Size)), append(above, s), df+float64(len(p.CPU)-1)
		}
	}
	return slope(sizes, above, df)
}

// lastDecade returns the exponent between the two largest sizes, where a minimum cost at smaller sizes hides nothing.
func (g Growth) lastDecade() (estimate, bool) {
	last := Growth{Points: []Point{g.Points[0]}}
	last.Points = append(last.Points, g.Points[max(len(g.Points)-2, 1):]...)
	return last.exponent()
}

// A series measures one growth: at makes the size and returns the command that observes it.
type series struct {
	of   string
	last int // the largest size; there are three decades below it
	at   func(ctx context.Context, size int) (*Entrant, error)
	away bool // the command runs outside of the host
}

// repeats is the number of runs at a size, after one that does not count.
const repeats = 3

// grow measures all sizes, from the smallest to the largest.
func (b *bench) grow(ctx context.Context, s series) (Growth, error) {
	g := Growth{Of: s.of}
	h := b.host
	if s.away {
		h = nil
	}
	for _, size := range []int{0, s.last / 1000, s.last / 100, s.last / 10, s.last} {
		e, err := s.at(ctx, size)
		if err != nil {
			return g, fmt.Errorf("%d %s: %w", size, s.of, err)
		}
		for range b.times(repeats) + 1 {
			if err := e.run(ctx, h, b.dir); err != nil {
				return g, err
			}
		}
		p := Point{Size: size}
		for _, c := range e.Costs[1:] {
			p.CPU = append(p.CPU, c.CPU)
		}
		g.Command, g.Points = e.Command, append(g.Points, p)
		b.say("%8d %-20s %s s of CPU\n", size, s.of, mean(p.CPU, sure))
	}
	return g, nil
}

// growths returns the series. Each begins with a separate host.
func (b *bench) growths() []series {
	crowd := &sockets{host: b.host}
	pods := &groups{lab: b.lab, host: b.host}
	return []series{
		{of: "sockets", last: 100_000, at: func(_ context.Context, n int) (*Entrant, error) {
			err := crowd.grow(max(n, 2)) // none has a process to look at
			return b.passOf("sockets", crowd.pid, n), err
		}},
		{of: "rules", last: 100_000, at: func(ctx context.Context, n int) (*Entrant, error) {
			return b.passOf("netfilter", 0, n), translate(ctx, b.host, n)
		}},
		{of: "groups", last: 3000, at: func(_ context.Context, n int) (*Entrant, error) {
			return b.passOf("cgroup", 0, min(n, mostGroups)), pods.grow(n)
		}},
		{of: "threads", last: 10_000, at: func(_ context.Context, n int) (*Entrant, error) {
			p, err := started(b.host, b.self, asThreads, strconv.Itoa(n))
			if err != nil {
				return nil, err
			}
			return b.ours("diagnose", "--duration", "3", "--pid", strconv.Itoa(p.Pid)), nil
		}},
		{of: "processes", last: 10_000, away: true, at: func(_ context.Context, n int) (*Entrant, error) {
			_, err := sleepers(b.host, n-n/10*min(n, 1)) // the tenth from the size before already exists
			return b.ours("diagnose", "--duration", "3"), err
		}},
		{of: "seconds of a recording", last: longest, away: true, at: b.longer},
		{of: "stacks of a profile", last: 50_000, away: true, at: func(_ context.Context, n int) (*Entrant, error) {
			dir := filepath.Join(b.dir, fmt.Sprintf("stacks-%d", n))
			return b.ours("diagnose", "--from", dir, "-o", "html"), profiled(dir, n)
		}},
	}
}

// longest is the length of the longest recording in seconds: more than an hour. The shortest is a thousandth of it.
const longest = 4000

// longer makes a recording of the given number of seconds out of one of this host, which is the shortest.
func (b *bench) longer(ctx context.Context, seconds int) (*Entrant, error) {
	shortest := filepath.Join(b.dir, "seconds")
	if seconds == 0 {
		once := strconv.Itoa(longest / 1000)
		made := b.ours("diagnose", "--duration", once, "--interval", once, "--save", shortest)
		if err := made.run(ctx, nil, b.dir); err != nil {
			return nil, err
		}
	}
	dir := filepath.Join(b.dir, fmt.Sprintf("seconds-%d", seconds))
	e := b.ours("diagnose", "--from", dir)
	return e, repeated(shortest, dir, max(seconds*1000/longest, 1))
}
