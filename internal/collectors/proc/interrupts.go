package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func interruptCollector() collect.Collector {
	return collect.Collector{
		Name:     "interrupts",
		Doc:      "Hardware interrupts per line, device and CPU, and where each line is delivered.",
		Overhead: "0.2 ms on 2 CPUs; 10 ms on 128 CPUs with 500 lines, twice a run",
		Provides: []metric.Metric{metric.Interrupts, metric.IRQAffinity},
		Pace:     collect.FirstAndLast,
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			return &interruptSource{proc: env.Host.Proc}, nil
		},
	}
}

type interruptSource struct {
	proc string
	buf  []byte
	told bool // the affinity was recorded
}

// Sample appends one sample.
func (s *interruptSource) Sample(_ context.Context, a *recording.Appender) error {
	var err error
	if s.buf, err = host.ReadFile(filepath.Join(s.proc, "interrupts"), s.buf); err != nil {
		return err
	}
	lines, err := parseInterrupts(bytes.NewReader(s.buf))
	if err != nil {
		return err
	}
	a.None(metric.Interrupts)
	for _, l := range lines {
		for i, n := range l.counts {
			if n > 0 {
				a.Counter(metric.Interrupts, float64(n), l.irq, l.device, l.cpus[i])
			}
		}
	}
	if !s.told {
		s.told = true
		s.affinity(a, lines)
	}
	return nil
}

// Close has nothing to do.
func (s *interruptSource) Close() error { return nil }

// affinity reads where the lines of devices go. effective_affinity_list exists since kernel 4.15; older kernels only
// have smp_affinity_list, the affinity that was asked for.
func (s *interruptSource) affinity(a *recording.Appender, lines []interruptLine) {
	told := 0
	for _, l := range lines {
		if l.device == "" {
			continue
		}
		for _, file := range []string{"effective_affinity_list", "smp_affinity_list"} {
			b, err := os.ReadFile(filepath.Join(s.proc, "irq", l.irq, file))
			if cpus := strings.TrimSpace(string(b)); err == nil && cpus != "" {
				a.Info(metric.IRQAffinity, l.irq, l.device, cpus)
				told++
				break
			}
		}
	}
	if told == 0 {
		a.Missing(metric.IRQAffinity, recording.StatusUnsupported,
			"no interrupt line of a device tells its CPUs in "+s.proc+"/irq", "")
	}
}

// interruptLine is one line of /proc/interrupts. device is empty for the architecture's own lines (NMI, LOC …).
type interruptLine struct {
	irq, device string
	cpus        []string
	counts      []uint64
}

// parseInterrupts reads /proc/interrupts (kernel/irq/proc.c): a header of the online CPUs, then per line its counts,
// chip, hardware number with trigger, and the names of the devices that share it.
func parseInterrupts(r io.Reader) ([]interruptLine, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20) // a line has 11 bytes for each of up to 8192 CPUs (CONFIG_NR_CPUS)
	if !sc.Scan() {
		return nil, errors.Join(errors.New("interrupts: no header"), sc.Err())
	}
	cpus := strings.Fields(sc.Text())
	for i, c := range cpus {
		id, ok := strings.CutPrefix(c, "CPU")
		if _, err := strconv.ParseUint(id, 10, 32); !ok || err != nil {
			return nil, fmt.Errorf("interrupts: header has %q instead of a CPU", c)
		}
		cpus[i] = id
	}
	var out []interruptLine
	for sc.Scan() {
		l, err := parseInterruptLine(sc.Text(), cpus)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, sc.Err()
}

func parseInterruptLine(text string, cpus []string) (interruptLine, error) {
	irq, rest, ok := strings.Cut(text, ":")
	if !ok {
		return interruptLine{}, fmt.Errorf("interrupts: line %.40q has no name", text)
	}
	l := interruptLine{irq: strings.TrimSpace(irq)}
	fields := strings.Fields(rest)
	n := min(len(fields), len(cpus))
	// one count for the whole host (arch/x86/kernel/irq.c, arch/arm64)
	if l.irq == "ERR" || l.irq == "MIS" || l.irq == "Err" {
		n, cpus = min(n, 1), []string{"all"}
	} else if n < len(cpus) {
		return interruptLine{}, fmt.Errorf("interrupts: line %.40q has %d counts for %d CPUs", l.irq, n, len(cpus))
	}
	for i, f := range fields[:n] {
		v, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return interruptLine{}, fmt.Errorf("interrupts: line %s: bad count %.40q", l.irq, f)
		}
		l.counts, l.cpus = append(l.counts, v), append(l.cpus, cpus[i])
	}
	if _, err := strconv.Atoi(l.irq); err == nil {
		l.device = deviceOf(fields[n:])
	}
	return l, nil
}

// deviceOf cuts off what precedes the names of the devices (kernel/irq/proc.c show_interrupts): the chip, then the
// hardware number with the handler ("IO-APIC 2-edge timer", Xen has "xen-dyn -event eth0") and on arm64 the trigger
// ("GICv3 27 Level arch_timer"). Before kernel 3.19 x86 has chip and handler in one word ("PCI-MSI-edge eth0"). It
// returns "" for a line without a device.
func deviceOf(fields []string) string {
	switch {
	case len(fields) > 1 && (fields[1][0] == '-' || fields[1][0] >= '0' && fields[1][0] <= '9'):
		fields = fields[2:]
	case len(fields) > 0:
		fields = fields[1:]
	}
	if len(fields) > 0 && (fields[0] == "Edge" || fields[0] == "Level") {
		fields = fields[1:]
	}
	return strings.Join(fields, " ")
}
