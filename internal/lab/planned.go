package lab

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

// newLoad runs a load.Plan with sockets of the dialer. A nil dialer uses sockets of this process, a child in the
// host.
func newLoad(p *load.Plan, dialer load.Dialer, rec *recorder) (func(context.Context), error) {
	if p == nil {
		return nil, errors.New("load: the child has no plan")
	}
	state := &planned{}
	plan := *p
	plan.Live = state
	runner, err := load.New(plan, dialer)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		rec.lookAt(func(s *Stats) { state.fill(s, runner) })
		rec.ready("")
		result, err := runner.Run(ctx)
		if err != nil {
			rec.fail(err)
			return
		}
		state.end(result)
	}, nil
}

// planned is what is known about a load.Plan under way.
type planned struct {
	mu     sync.Mutex
	line   string
	result *load.Result
}

// Write takes a live line.
func (p *planned) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = string(line)
	return len(line), nil
}

func (p *planned) end(r load.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result = &r
}

// fill adds the load's figures to a report. Errors of the lab itself stay in the report's Errors.
func (p *planned) fill(s *Stats, runner *load.Runner) {
	now, err := runner.Snapshot()
	if err != nil {
		s.Errors[load.ErrorName(err)]++
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Done && p.result != nil {
		now, s.Load = *p.result, p.result
	}
	s.Live = p.line
	s.Conns, s.Units, s.Elapsed = now.Conns, now.Requests, now.Elapsed
	for name, n := range now.Errors {
		s.Errors[name] += n
	}
	for _, second := range now.Seconds {
		s.PerSecond = append(s.PerSecond, second.Requests)
	}
	s.Latency = Latency{
		P50: now.Latency.Quantile(0.5), P90: now.Latency.Quantile(0.9), P99: now.Latency.Quantile(0.99),
		Max: now.Latency.Max(),
	}
	var times histogram
	now.Latency.Each(func(atMost time.Duration, n uint64) { times[bucketOf(atMost)] += n })
	s.Times = times.times()
}

// newAnswer runs a load.ServerPlan. It is listening when the call returns.
func newAnswer(p *load.ServerPlan, dialer load.Dialer, rec *recorder) (func(context.Context), error) {
	if p == nil {
		return nil, errors.New("answer: the child has no plan")
	}
	server, err := load.Listen(*p, dialer)
	if err != nil {
		return nil, err
	}
	rec.lookAt(func(s *Stats) {
		now := server.Stats()
		s.Conns, s.Units = now.Conns, now.Requests
		for name, n := range now.Errors {
			s.Errors[name] += n
		}
	})
	rec.ready(server.Addr().String())
	return func(ctx context.Context) { server.Run(ctx) }, nil
}
