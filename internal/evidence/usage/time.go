package usage

import (
	"fmt"
	"math"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A Machine is what all CPUs together did.
type Machine struct {
	CPUs float64 // how many there are
	// Busy is how many of them worked on average: what idle, iowait and steal time leave over. Idle time is measured
	// from context switch to context switch, work is counted by ticks.
	Busy       float64
	Ticks      float64 // the same as counted by ticks
	Interrupts float64 // CPUs in hard and soft interrupts
	Window     float64 // seconds
}

// OfMachine returns what the recording has of /proc/stat; ok is false if it was not read twice.
func OfMachine(rec *recording.Recording) (m Machine, ok bool) {
	idle := 0.0
	cpus := map[string]bool{}
	for _, s := range rec.Counter(metric.CPUSeconds) {
		rate, twice := s.Rate()
		if !twice {
			continue
		}
		m.Window = max(m.Window, s.Span().Seconds())
		switch s.Label("mode") {
		case "idle", "iowait", "steal":
			cpus[s.Label("cpu")] = true
			idle += rate
		case "irq", "softirq":
			m.Interrupts += rate
			m.Ticks += rate
		case "user", "nice", "system": // guests are in user
			m.Ticks += rate
		}
	}
	m.CPUs = float64(len(cpus))
	m.Busy = max(0, m.CPUs-idle)
	return m, m.CPUs > 0
}

// A Count is the CPU time that one source shows.
type Count struct {
	Source  string  `json:"source"`
	Seconds float64 `json:"seconds"`
}

// A Time is the CPU time of a target.
type Time struct {
	Used   Split
	Window float64 // seconds in which it was used
	Unread float64 // of processes that ended between two readings
	Source string  // what counted it
	Others []Count // in the same window, from sources that disagree
}

// The sources of CPU time.
const (
	byProcesses = "its processes, with the children they waited for"
	byGroup     = "its control group"
	byMachine   = "all that the CPUs were busy with"
)

// Sources differ by more than chance from a twentieth on, and from ten ticks on.
const (
	apartShare   = 0.05
	apartSeconds = 0.1
)

func apart(a, b float64) bool {
	return math.Abs(a-b) > apartSeconds && math.Abs(a-b) > apartShare*max(a, b)
}

// OfTarget returns the CPU time of a recording's target. A control group also counts children that nobody waited for,
// and is believed if the target is one. No target used more than the machine was busy with. ok is false for a whole
// host, and if nothing was read twice.
func OfTarget(rec *recording.Recording) (t Time, ok bool) {
	tree, ok := Of(rec, MemberTarget)
	if !ok {
		return t, false
	}
	t = Time{Used: tree.Used, Window: tree.Window, Unread: tree.Unread.Sum(), Source: byProcesses}
	if rate, counted := groupRate(rec); counted {
		t.believe(byGroup, rate*t.Window)
	}
	if m, known := OfMachine(rec); known {
		if most := m.Busy * t.Window; t.Used.Sum() > most && apart(t.Used.Sum(), most) {
			t.believe(byMachine, most)
		}
	}
	return t, true
}

// believe takes the time of another source, and keeps the time of the last source if they disagree.
func (t *Time) believe(source string, seconds float64) {
	said := t.Used.Sum()
	if apart(said, seconds) {
		t.Others = append(t.Others, Count{t.Source, said})
	}
	t.Source = source
	if said > 0 {
		t.Used = t.Used.Times(seconds / said)
		return
	}
	t.Used = Split{User: seconds}
}

// groupRate returns the CPUs that the target's control group used, if the target is one.
func groupRate(rec *recording.Recording) (cpus float64, ok bool) {
	if k := rec.Meta.Target.Kind; k != "cgroup" && k != "container" {
		return 0, false
	}
	for _, s := range rec.Counter(metric.CgroupCPU, "level", "0") {
		if rate, twice := s.Rate(); twice {
			cpus, ok = cpus+rate, true
		}
	}
	return cpus, ok
}

// Notes says by how much the sources disagree and which one is believed, and how much no process shows itself.
// sampled is the seconds of the target in the samples of a profile.
func (t Time) Notes(sampled float64) []string {
	var out []string
	text := func(n float64) string { return quantity.Of("", n, quantity.Seconds).Text() }
	for _, o := range t.Others {
		out = append(out, fmt.Sprintf("CPU time: %s counted %s, %s %s (%s apart); the former is believed", t.Source,
			text(t.Used.Sum()), o.Source, text(o.Seconds), text(math.Abs(t.Used.Sum()-o.Seconds))))
	}
	dark := min(t.Unread, t.Used.Sum()-sampled)
	if dark > apartSeconds && dark > apartShare*t.Used.Sum() {
		out = append(out, fmt.Sprintf("%s of the CPU time are of processes that ended between two readings: their "+
			"parents tell of them, and no sample of a profile can be told to be theirs", text(dark)))
	}
	return out
}
