package kernel

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	hogShare = &check.Param{
		Name: "share", Default: 0.5, Unit: quantity.Ratio,
		Why: "of all CPUs: then no other program can have more",
	}
	hogCPU = &check.Param{
		Name: "one-cpu", Default: 0.9, Unit: quantity.CPUs,
		Why: "a thread that never sleeps has a whole CPU, less what the threads queued behind it get",
	}
	hogBusy = &check.Param{
		Name: "busy", Default: 0.9, Unit: quantity.Ratio,
		Why: "of all CPUs: with more of them idle, others wait for a quota or for one CPU, not for the program",
	}
	hogWaiting = &check.Param{
		Name: "waiting", Default: 0.2, Unit: quantity.Threads,
		Why: "of other programs, on average: below it one of them waits for less than a fifth of the time",
	}
	hogWait = &check.Param{
		Name: "wait-per-run", Default: 1, Unit: quantity.Ratio,
		Why: "the other programs wait longer than they run: their work takes twice the time it needs. A benchmark " +
			"and its server that fill a host stay below it",
	}
)

var cpuHog = &check.Check{
	Name:  "cpu-hog",
	Stage: check.Kernel,
	Doc: `One program has the CPUs

All processes of one name together hold half of the CPUs or more, or a whole one. Where all CPUs are busy and no
program has half of them, the check names the few that have half together. By itself that is a fact: a build, a
compressor or a database does the work it was started for. It is a warning when other programs suffer: all CPUs are
busy, and the others' threads wait for one longer than they run (schedstat of all threads of the busiest processes).

The check is about the whole host. To see what a program does with its CPU time, diagnose its process. Many processes
that end at once do not make a hog of one name: fork-storm reports them.

Fixes: stop it if it runs for nothing; else give it fewer CPUs, less weight or another time. Won't help: restarting the
programs that wait. Disproof: top shows another program first.`,
	URL:   "https://docs.kernel.org/scheduler/sched-stats.html",
	Needs: []metric.Metric{metric.ProcessCPU, metric.CPUSeconds},
	Uses: []metric.Metric{
		metric.HostProcessDelay, metric.HostProcessRSS, metric.ProcessInfo, metric.ProcessStart,
		metric.ProcessChildrenCPU, metric.HostCPUProfileSamples,
	},
	Params: []*check.Param{hogShare, hogCPU, hogBusy, hogWaiting, hogWait},
	Run:    runCPUHog,
}

// A program is all processes of one name, or of a few names that have most of the CPUs only together.
type program struct {
	names         []string
	cpus, delayed float64
	processes     []evidence.Consumer // those with most CPU time first
}

func runCPUHog(p *check.Pass) error {
	if k := p.Meta.Target.Kind; k != "host" && k != "" {
		return check.NotAssessed("perfdoctor diagnose without a target",
			"a target was named, and this check is about the CPUs of the whole host")
	}
	c, ok := evidence.Consumers(p.Recording)
	if !ok {
		return evidence.OneSample()
	}
	all := quantity.Of("CPUs", c.CPUs, quantity.CPUs)
	list := programs(c)
	if len(list) == 0 {
		p.Read(quantity.Of("busy", c.Busy, quantity.CPUs).Per(all).Named("CPUs busy, of no process"))
		return nil
	}
	list = together(p, list, c)
	for i, g := range list {
		used := quantity.Of(inWords(g.names), g.cpus, quantity.CPUs)
		share := used.Per(all).Named("%s, share of all CPUs", used.Label())
		if i == 0 {
			p.Read(share)
		}
		most := share.AtLeast(p.Param(hogShare))
		if !most && used.Below(p.Param(hogCPU)) {
			continue
		}
		f := hogFinding(g, c, share)
		if hogHarms(p, g, c, &f) {
			f.Severity = check.Warning
			f.Summary += ", and other programs wait for one longer than they run"
		}
		if most || f.Severity == check.Warning {
			p.Report(f)
		}
	}
	return nil
}

// together merges the first few programs into one if all CPUs are busy and only their sum reaches the share of a hog:
// two programs that spin on two CPUs hold them, although neither has most of them.
func together(p *check.Pass, list []*program, c *evidence.Consumption) []*program {
	all := quantity.Of("CPUs", c.CPUs, quantity.CPUs)
	if quantity.Of("busy", c.Busy, quantity.CPUs).Per(all).Below(p.Param(hogBusy)) {
		return list
	}
	sum := &program{}
	for i, g := range list[:min(len(list), evidence.NamedProcesses)] {
		sum.names = append(sum.names, g.names...)
		sum.cpus += g.cpus
		sum.delayed += g.delayed
		sum.processes = append(sum.processes, g.processes...)
		if quantity.Of("", sum.cpus, quantity.CPUs).Per(all).AtLeast(p.Param(hogShare)) {
			slices.SortStableFunc(sum.processes, func(x, y evidence.Consumer) int {
				return cmp.Compare(y.CPUs, x.CPUs)
			})
			return append([]*program{sum}, list[i+1:]...)
		}
	}
	return list
}

// inWords joins names: "perl, python3 and stress".
func inWords(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// programs sums the processes of each name, most CPU time first.
func programs(c *evidence.Consumption) []*program {
	byName := map[string]*program{}
	var out []*program
	for _, x := range c.List {
		if x.ShortLived || x.CPUs <= 0 || isSoftirq(x) {
			continue
		}
		g := byName[x.Command]
		if g == nil {
			g = &program{names: []string{x.Command}}
			byName[x.Command] = g
			out = append(out, g)
		}
		g.cpus += x.CPUs
		g.delayed += x.Delayed
		g.processes = append(g.processes, x)
	}
	slices.SortStableFunc(out, func(x, y *program) int { return cmp.Compare(y.cpus, x.cpus) })
	return out
}

// isSoftirq reports whether x is one of the kernel's softirq threads (kernel/softirq.c). What interrupts bring, such
// as packets, belongs to cpu-in-softirq and the rules about the path. A kernel thread has no memory of its own; a
// program always has some.
func isSoftirq(x evidence.Consumer) bool {
	return x.Memory == 0 && strings.HasPrefix(x.Command, "ksoftirqd/")
}

// holds names who has the CPUs, with the verb.
func (g *program) holds() string {
	switch n := len(g.processes); {
	case len(g.names) > 1:
		return inWords(g.names) + " hold"
	case n > 1:
		return fmt.Sprintf("%d processes of %s hold", n, g.names[0])
	}
	return g.names[0] + " holds"
}

func hogFinding(g *program, c *evidence.Consumption, share quantity.Value) check.Finding {
	top := g.processes[0]
	pid := strconv.Itoa(top.PID)
	f := check.Finding{
		Subject:  evidence.PIDSubject(pid, top.Command),
		Severity: check.Info,
		Summary: fmt.Sprintf("%s %.2f of %.0f CPUs (%s)%s", g.holds(), g.cpus, c.CPUs, share.Text(),
			g.since()),
		Evidence: []quantity.Value{share},
		Notes:    hogNotes(g),
		Weight:   share.Number(),
		Remedies: []check.Remedy{
			{
				Action:  "See what it does with the time.",
				Command: check.Commandf("perfdoctor diagnose --pid %d", top.PID),
				Risk:    "None: it only looks.",
				Effect:  "names the code that runs",
			},
			{
				Action:  "Let it take what others leave: a lower priority, or a control group with less cpu.weight.",
				Command: check.Commandf("renice -n 19 -p %d", top.PID),
				Risk:    "Its own work takes longer while others want the CPUs.",
				Effect:  "the other programs hardly wait for a CPU",
			},
		},
		Placebos: []string{"Restarting the programs that wait: they come back to the same CPUs."},
		Disproof: fmt.Sprintf("top: %s is not the first, or its CPUs are set aside for it (taskset -cp %d).",
			top.Command, top.PID),
	}
	return f
}

// since says how long ago the process started; of several, the busiest.
func (g *program) since() string {
	who := "it"
	if len(g.processes) > 1 {
		who = "the busiest"
	}
	if age := g.processes[0].Age; age > 0 {
		return fmt.Sprintf("; %s started %s before the end", who, evidence.AgeText(age))
	}
	return ""
}

// hogNotes lists the processes, with their cgroups and users.
func hogNotes(g *program) []string {
	var parts []string
	for _, x := range g.processes[:min(len(g.processes), evidence.NamedProcesses)] {
		text := fmt.Sprintf("%s (pid %d) %.2f CPUs", x.Command, x.PID, x.CPUs)
		if x.Cgroup != "" && x.Cgroup != "/" {
			text += " in cgroup " + x.Cgroup
		}
		if x.User != "" {
			text += " of user " + x.User
		}
		parts = append(parts, text)
	}
	return []string{"processes: " + strings.Join(parts, "; ")}
}

// hogHarms adds how long the other programs' threads waited for a CPU, and reports whether they suffer.
func hogHarms(p *check.Pass, g *program, c *evidence.Consumption, f *check.Finding) bool {
	busy := quantity.Of("busy", c.Busy, quantity.CPUs).Per(quantity.Of("CPUs", c.CPUs, quantity.CPUs)).
		Named("share of the CPUs that was busy")
	f.Evidence = append(f.Evidence, busy)
	if len(p.Gauge(metric.HostProcessDelay)) == 0 {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "whether other programs wait for a CPU was not recorded")
		return false
	}
	waited := quantity.Of("waited", max(0, c.Delayed-g.delayed), quantity.Seconds)
	threads := waited.Per(quantity.Of("window", c.Window, quantity.Seconds)).As(quantity.Threads).
		Named("threads of other programs that wait for a CPU")
	f.Evidence = append(f.Evidence, threads)
	if busy.Below(p.Param(hogBusy)) || threads.Below(p.Param(hogWaiting)) {
		return false
	}
	ran := quantity.Of("ran", max(0, c.Ran()-g.cpus)*c.Window, quantity.Seconds)
	if ran.Number() == 0 {
		return true
	}
	share := waited.Per(ran).Named("the other programs' time waited for a CPU over time run")
	f.Evidence = append(f.Evidence, share)
	return share.AtLeast(p.Param(hogWait))
}
