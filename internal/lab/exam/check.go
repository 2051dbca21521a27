package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
)

// window is how long a diagnosis with default flags observes.
const window = 10 * time.Second

// labName is the lab name of every case. The case's own name would appear in control groups and directories, and it
// says what is wrong.
const labName = "exam"

// check runs the phases of a case without any doctor, prints the measurements, and reports whether the fix moves what
// it must.
func (e *exam) check(ctx context.Context, c *Case) (held bool, err error) {
	paths, err := c.fetchAll(ctx, e.cache, e.say)
	if err != nil {
		return false, fmt.Errorf("%s: %w", c.Name, err)
	}
	fmt.Printf("%s: %s\n", c.Name, c.Title)
	measured := map[string]map[string]float64{}
	for _, phase := range c.phaseNames() {
		site, err := c.site(phase, paths)
		if err != nil {
			return false, err
		}
		var used map[string]float64
		w, err := site.Watch(ctx, labName, func(ctx context.Context, r scenario.Running) error {
			before := cpuOf(r.PIDs)
			if err := clock.Sleep(ctx, e.window); err != nil {
				return err
			}
			used = cpuBetween(before, cpuOf(r.PIDs), e.window)
			return nil
		})
		if err != nil {
			return false, fmt.Errorf("%s: %s: %w", c.Name, phase, err)
		}
		measured[phase] = w.Measured
		fmt.Printf("  %-6s %s\n", phase, metricsText(w.Measured))
		fmt.Printf("         CPUs: %s; the machine was %.0f %% busy before\n", cpuText(used), 100*w.BusyBefore)
	}
	said, held := c.Cure.Moves.Check(measured[phaseFault], measured[phaseCure])
	verdict := "holds"
	if !held {
		verdict = "DOES NOT HOLD"
	}
	fmt.Printf("  cure.moves %s: %s\n", verdict, said)
	return held, nil
}

func metricsText(measured map[string]float64) string {
	var parts []string
	for _, name := range append(outcomes(), scenario.Memory) {
		if n, ok := measured[name]; ok {
			parts = append(parts, name+" "+scenario.MetricText(name, n))
		}
	}
	return strings.Join(parts, ", ")
}

func cpuText(used map[string]float64) string {
	var parts []string
	for name, n := range used {
		parts = append(parts, fmt.Sprintf("%s %.2f", name, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
