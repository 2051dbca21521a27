package evidence

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/evidence/usage"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A Consumer is a process that uses a part of the machine, or all short-lived processes of one program. Fields that
// were not recorded are empty.
type Consumer struct {
	Command    string `json:"command,omitempty"` // empty for short-lived ones if only the parent is known
	PID        int    `json:"pid,omitempty"`     // 0 for short-lived ones
	ShortLived bool   `json:"short_lived,omitempty"`
	Target     bool   `json:"target,omitempty"` // the target with all its processes
	Parent     string `json:"parent,omitempty"` // for short-lived ones: the process that created most of them
	ParentPID  int    `json:"parent_pid,omitempty"`

	User      string  `json:"user,omitempty"`
	Cgroup    string  `json:"cgroup,omitempty"`
	Container string  `json:"container,omitempty"`
	Age       float64 `json:"age_seconds,omitempty"` // at the end of the window

	CPUs    float64 `json:"cpus"` // mean over the window
	Memory  float64 `json:"resident_bytes,omitempty"`
	Read    float64 `json:"read_bytes,omitempty"` // from disks in the window
	Written float64 `json:"written_bytes,omitempty"`
	Delayed float64 `json:"run_delay_seconds,omitempty"` // that its threads waited for a CPU in the window
}

// A Consumption says who used the machine. The CPUs of all consumers, the interrupts and the unaccounted rest add up
// to the busy CPUs.
type Consumption struct {
	Window      float64    `json:"window_seconds"`
	CPUs        float64    `json:"cpus"`
	Busy        float64    `json:"busy_cpus"`
	Interrupts  float64    `json:"interrupt_cpus"`               // of no process
	Unaccounted float64    `json:"unaccounted_cpus"`             // processes that nobody read, sampled or waited for
	Delayed     float64    `json:"run_delay_seconds,omitempty"`  // that threads of all processes waited for a CPU
	Created     float64    `json:"created_per_second,omitempty"` // processes and threads
	List        []Consumer `json:"processes"`                    // the one with the most CPU time first, then by memory
	Notes       []string   `json:"notes,omitempty"`              // where sources disagree

	// OfTarget is the CPUs that short-lived processes of the target used; they are part of the target's own.
	OfTarget float64 `json:"-"`
}

// Consumers returns who used the machine. ok is false unless processes and CPUs were read twice.
//
// A process has its own counters. Short-lived processes show in two ways: their parents' counters of children are
// exact but name no program, and samples of the CPUs name the programs but are few. So their sum is at least what the
// parents show and at most what the processes leave of the busy time; in between, the samples are believed.
func Consumers(rec *recording.Recording) (c *Consumption, ok bool) {
	machine, ok := usage.OfMachine(rec)
	tree, read := usage.Of(rec, usage.MemberHost)
	if !ok || !read {
		return nil, false
	}
	c = &Consumption{Window: tree.Window, CPUs: machine.CPUs, Busy: machine.Busy, List: []Consumer{}}
	if made, known := First(rec.Counter(metric.Forks)); known {
		c.Created, _ = made.Rate()
	}
	c.addProcesses(rec, tree)
	rest := c.Busy - c.sum()
	if ofHost(rec) {
		rest -= c.addShortLived(rec, tree, max(0, rest))
		c.noteSamples(rec)
	} else if t, counted := usage.OfTarget(rec); counted {
		c.List = append(c.List, targetOf(rec, t))
		c.OfTarget = t.Unread / t.Window
		rest -= t.Used.Sum() / t.Window
	}
	c.noteSources(machine, rest)
	c.Interrupts = min(max(0, rest), machine.Interrupts)
	c.Unaccounted = max(0, rest-c.Interrupts)
	c.rank()
	return c, true
}

func ofHost(rec *recording.Recording) bool {
	return rec.Meta.Target.Kind == "host" || rec.Meta.Target.Kind == ""
}

// sum returns the CPUs that the consumers used together.
func (c *Consumption) sum() float64 {
	total := 0.0
	for _, x := range c.List {
		total += x.CPUs
	}
	return total
}

// Others returns what the host's other processes used, if a target was named, including what no process accounts for.
func (c *Consumption) Others() float64 {
	total := c.Unaccounted
	for _, x := range c.List {
		if !x.Target {
			total += x.CPUs
		}
	}
	return total
}

// Ran returns the CPUs that the consumers used together.
func (c *Consumption) Ran() float64 { return c.Busy - c.Interrupts - c.Unaccounted }

// ShortLived returns what short-lived processes used: the target's if there is one, else the host's.
func (c *Consumption) ShortLived() float64 {
	total := c.OfTarget
	for _, x := range c.List {
		if x.ShortLived {
			total += x.CPUs
		}
	}
	return total
}

func (c *Consumption) addProcesses(rec *recording.Recording, tree *usage.Tree) {
	known := detailsOf(rec)
	for _, p := range tree.Processes {
		x := Consumer{PID: p.PID, Command: p.Comm, CPUs: p.Used.Sum() / tree.Window}
		if k := known[p.PID]; k != nil && !p.Ended {
			k.fill(&x, p.Began)
			c.Delayed += x.Delayed
		}
		if x.CPUs > 0 || x.Memory > 0 { // not a process that was seen once and ended: it is among the short-lived
			c.List = append(c.List, x)
		}
	}
}

// targetOf returns the target as one consumer.
func targetOf(rec *recording.Recording, t usage.Time) Consumer {
	tg := rec.Meta.Target
	x := Consumer{
		Target: true, PID: tg.PID, Command: tg.Name, User: tg.User, Cgroup: tg.Cgroup, Container: tg.Container,
		CPUs: t.Used.Sum() / t.Window,
	}
	for _, s := range rec.Gauge(metric.ProcessRSS) {
		x.Memory += s.Last()
	}
	return x
}

// addShortLived adds the short-lived processes and returns the CPUs that they used, at most what is left if only
// samples show them.
func (c *Consumption) addShortLived(rec *recording.Recording, tree *usage.Tree, left float64) float64 {
	programs, sampled := sampledPrograms(rec, tree)
	counted := tree.Unread.Sum() / tree.Window
	total := max(counted, min(sampled, left))
	parent, share := mostChildren(tree)
	if total <= 0 {
		return 0
	}
	if sampled <= 0 {
		x := Consumer{ShortLived: true, CPUs: total}
		x.makers(parent, share)
		c.List = append(c.List, x)
		return total
	}
	top := 0.0
	for _, n := range programs {
		top = max(top, n)
	}
	for name, n := range programs {
		x := Consumer{Command: name, ShortLived: true, CPUs: total * n / sampled}
		if n == top && 2*n >= sampled {
			x.makers(parent, share)
		}
		c.List = append(c.List, x)
	}
	return total
}

// makers sets the parent of short-lived processes if most of them are its children.
func (x *Consumer) makers(parent *usage.Process, share float64) {
	if parent != nil && share >= mostOf {
		x.Parent, x.ParentPID = parent.Comm, parent.PID
	}
}

// mostOf is the share from which on one parent is named as the parent of all.
const mostOf = 0.5

// mostChildren returns the process whose children used most, and their share of what all children used.
func mostChildren(tree *usage.Tree) (parent *usage.Process, share float64) {
	total := 0.0
	for _, p := range tree.Processes {
		total += p.Children
		if p.Children > 0 && (parent == nil || p.Children > parent.Children) {
			parent = p
		}
	}
	if parent == nil {
		return nil, 0
	}
	return parent, parent.Children / total
}

// sampledPrograms returns the CPUs used by processes that were gone at the last reading, by program, and their sum.
func sampledPrograms(rec *recording.Recording, tree *usage.Tree) (programs map[string]float64, sum float64) {
	prof, ok := rec.Profile(stacks.HostCPU)
	if !ok {
		return nil, 0
	}
	stay := map[int]bool{0: true} // idle CPUs that serve interrupts
	for _, p := range tree.Processes {
		if !p.Ended {
			stay[p.PID] = true
		}
	}
	programs = map[string]float64{}
	seconds := cmp.Or(prof.Duration.Seconds(), tree.Window)
	for _, s := range prof.Samples {
		if t := prof.ThreadOf(s); !stay[t.ID] {
			programs[t.Name] += float64(s.Value) / nanoseconds / seconds
			sum += float64(s.Value) / nanoseconds / seconds
		}
	}
	return programs, sum
}

const nanoseconds = 1e9

// Two counts of CPUs differ by more than chance from a twentieth on, and from so many CPUs; samples from a tenth on.
const (
	countsApart  = 0.05
	samplesApart = 0.1
)

func apart(a, b, by float64) bool { return math.Abs(a-b) > by && math.Abs(a-b) > by*max(a, b) }

// noteSources notes where the counts of the kernel disagree.
func (c *Consumption) noteSources(m usage.Machine, rest float64) {
	if apart(m.Busy, m.Ticks, countsApart) {
		c.Notes = append(c.Notes, fmt.Sprintf("the CPUs' ticks count %s of work, and %s did not idle: %s apart; the "+
			"idle time is believed, which is measured", cpusText(m.Ticks), cpusText(m.Busy),
			cpusText(math.Abs(m.Busy-m.Ticks))))
	}
	if over := c.Busy - rest; rest < 0 && apart(over, c.Busy, countsApart) {
		c.Notes = append(c.Notes, fmt.Sprintf("the processes counted %s and the CPUs were busy for %s: %s apart; each "+
			"process is shown as it counts itself", cpusText(over), cpusText(c.Busy), cpusText(-rest)))
	}
}

// noteSamples notes if the samples of all CPUs miss much of what the CPUs did.
func (c *Consumption) noteSamples(rec *recording.Recording) {
	prof, ok := rec.Profile(stacks.HostCPU)
	if !ok || prof.Duration <= 0 {
		return
	}
	sampled := float64(prof.Total().Value) / nanoseconds / prof.Duration.Seconds()
	if apart(sampled, c.Busy, samplesApart) {
		c.Notes = append(c.Notes, fmt.Sprintf("the samples of the profile hold %s and the CPUs were busy for %s: %s "+
			"apart; the latter is believed", cpusText(sampled), cpusText(c.Busy), cpusText(math.Abs(sampled-c.Busy))))
	}
}

// ConsumerName returns "python3 (pid 4021)", and for short-lived processes "short-lived make, most started by sh (pid
// 7)".
func ConsumerName(x Consumer) string {
	name := cmp.Or(x.Command, "processes")
	switch {
	case x.ShortLived && x.Parent != "":
		return fmt.Sprintf("short-lived %s, most started by %s (pid %d)", name, x.Parent, x.ParentPID)
	case x.ShortLived:
		return "short-lived " + name
	case x.PID > 0:
		return fmt.Sprintf("%s (pid %d)", name, x.PID)
	}
	return name
}

// AgeText returns how long a process has existed: "42 s", "3 h 2 min", "12 d 4 h".
func AgeText(seconds float64) string {
	const minute, hour, day = 60, 3600, 86400
	n := int(seconds)
	two := func(a int, unit string, b int, smaller string) string {
		if b == 0 {
			return fmt.Sprintf("%d %s", a, unit)
		}
		return fmt.Sprintf("%d %s %d %s", a, unit, b, smaller)
	}
	switch {
	case n < minute:
		return fmt.Sprintf("%d s", n)
	case n < hour:
		return two(n/minute, "min", n%minute, "s")
	case n < day:
		return two(n/hour, "h", n%hour/minute, "min")
	}
	return two(n/day, "d", n%day/hour, "h")
}

func cpusText(n float64) string { return quantity.Of("", math.Round(100*n)/100, quantity.CPUs).Text() }

// How many consumers are kept: nobody looks further, and a host has hundreds of idle processes.
const (
	keptByCPU    = 40
	keptByMemory = 10
)

// rank sorts the greatest first, and drops the small.
func (c *Consumption) rank() {
	slices.SortFunc(c.List, func(x, y Consumer) int {
		return cmp.Or(cmp.Compare(y.CPUs, x.CPUs), cmp.Compare(y.Memory, x.Memory), cmp.Compare(x.PID, y.PID),
			cmp.Compare(x.Command, y.Command))
	})
	if len(c.List) <= keptByCPU {
		return
	}
	rest := slices.Clone(c.List[keptByCPU:])
	slices.SortStableFunc(rest, func(x, y Consumer) int { return cmp.Compare(y.Memory, x.Memory) })
	c.List = slices.Concat(c.List[:keptByCPU], rest[:min(len(rest), keptByMemory)])
}

// details holds what was recorded of a process besides its CPU time.
type details struct {
	user, cgroup, container string
	age, memory             float64
	io                      map[string]recording.CounterSeries
	delay                   *recording.GaugeSeries
}

func detailsOf(rec *recording.Recording) map[int]*details {
	out := map[int]*details{}
	of := func(s *recording.Series) *details {
		pid, err := strconv.Atoi(s.Label("pid"))
		if err != nil {
			return &details{}
		}
		k := out[pid]
		if k == nil {
			k = &details{io: map[string]recording.CounterSeries{}}
			out[pid] = k
		}
		return k
	}
	for _, s := range rec.Info(metric.ProcessInfo) {
		k := of(s)
		k.user = cmp.Or(s.Label("user"), k.user)
		k.cgroup = cmp.Or(s.Label("cgroup"), k.cgroup)
		k.container = cmp.Or(s.Label("container"), k.container)
	}
	for _, s := range rec.Gauge(metric.ProcessStart) {
		of(s.Series).age = s.Last()
	}
	for _, s := range rec.Gauge(metric.HostProcessRSS) {
		of(s.Series).memory = s.Last()
	}
	for _, s := range rec.Gauge(metric.HostProcessDelay) {
		of(s.Series).delay = &s
	}
	for _, s := range rec.Counter(metric.HostProcessIO) {
		if k := of(s.Series); k.io != nil {
			k.io[s.Label("direction")] = s
		}
	}
	return out
}

// fill copies what is known. If a process began in the window, its counters count from zero.
func (k *details) fill(x *Consumer, began bool) {
	x.User, x.Cgroup, x.Container, x.Age, x.Memory = k.user, k.cgroup, k.container, k.age, k.memory
	rise := func(s recording.CounterSeries) float64 {
		n, _ := s.Increase()
		if began {
			n += s.Points[0].Value
		}
		return n
	}
	if s, ok := k.io["read"]; ok {
		x.Read = rise(s)
	}
	if s, ok := k.io["write"]; ok {
		x.Written = rise(s)
	}
	switch {
	case k.delay == nil:
	case began:
		x.Delayed = k.delay.Last()
	default:
		x.Delayed = GaugeRise(*k.delay)
	}
}
