package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// idleWait bounds the wait for others to leave the CPUs.
	idleWait = 20 * time.Second
	// othersShare is the share of all CPU time that programs outside the test may use: then a rule's finding about the
	// test's program is still about that program.
	othersShare = 0.05
	// attempts bounds the diagnoses that are discarded because of others.
	attempts = 3
)

// expect diagnoses and expects no complaint. If there is one and other programs used the machine meanwhile, it
// diagnoses again: most rules look at CPUs that all programs share.
func expect(t *testing.T, complaints func(diagnosis) []string, args ...string) diagnosis {
	t.Helper()
	for n := 1; ; n++ {
		before := readCPU(t)
		d := diagnose(t, args...)
		after := readCPU(t)
		bad := complaints(d)
		if len(bad) == 0 {
			return d
		}
		others := (after.others - before.others) / max(after.all-before.all, 1)
		if others < othersShare || n == attempts {
			t.Errorf("%s\nother programs used %.0f %% of the CPUs; diagnosis %d of this state", strings.Join(bad, "\n"),
				others*100, n)
			return d
		}
		t.Logf("diagnosed again, for other programs used %.0f %% of the CPUs: %s", others*100, strings.Join(bad, "; "))
		awaitIdleOthers(t)
	}
}

// awaitIdleOthers waits until programs outside the test leave the CPUs to it.
func awaitIdleOthers(t *testing.T) {
	t.Helper()
	for start := time.Now(); time.Since(start) < idleWait; {
		before := readCPU(t)
		time.Sleep(time.Second)
		after := readCPU(t)
		if (after.others-before.others)/max(after.all-before.all, 1) < othersShare {
			return
		}
	}
}

// cpuTicks is CPU time since boot, in ticks: in all, idle, and of programs that do not descend from this one. The
// hypervisor's time also counts as others'. Interrupts belong to no program and are only in the total.
type cpuTicks struct{ all, idle, others float64 }

func readCPU(t testing.TB) cpuTicks {
	t.Helper()
	data, err := os.ReadFile("/proc/stat")
	must(t, err)
	line, _, _ := strings.Cut(string(data), "\n")
	field := numbers(t, strings.Fields(line)[1:9]) // user nice system idle iowait irq softirq steal (proc(5))
	c := cpuTicks{idle: field[3] + field[4], others: field[0] + field[1] + field[2] + field[7] - ownTicks(t)}
	for _, n := range field {
		c.all += n
	}
	return c
}

func numbers(t testing.TB, fields []string) []float64 {
	t.Helper()
	var out []float64
	for _, text := range fields {
		n, err := strconv.ParseFloat(text, 64)
		must(t, err)
		out = append(out, n)
	}
	return out
}

// ownTicks is the CPU time of this process, of all its descendants, and of those that ended and were waited for.
func ownTicks(t testing.TB) float64 {
	t.Helper()
	parents, ticks := map[string]string{}, map[string]float64{}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The name, in brackets, may hold anything (proc_pid_stat(5)); after it come state, ppid, …, and as 12th to
		// 15th utime, stime, cutime and cstime.
		field := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		pid := filepath.Base(filepath.Dir(path))
		parents[pid] = field[1]
		for _, n := range numbers(t, field[11:15]) {
			ticks[pid] += n
		}
	}
	sum := 0.0
	for pid := range ticks {
		if descends(parents, pid, fmt.Sprint(os.Getpid())) {
			sum += ticks[pid]
		}
	}
	return sum
}

func descends(parents map[string]string, pid, from string) bool {
	for ; pid != ""; pid = parents[pid] {
		if pid == from {
			return true
		}
	}
	return false
}
