package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

const (
	// shownConsumers is how many the text shows without -v: what fills a machine is among the first.
	shownConsumers = 5
	// leastCPUs is the least CPU time of a consumer that a line would not round to nothing.
	leastCPUs = 0.005
)

// consumersOf returns who had the machine, or nil if that was not recorded.
func consumersOf(rec *recording.Recording) *evidence.Consumption {
	c, ok := evidence.Consumers(rec)
	if !ok {
		return nil
	}
	return c
}

func (d *Data) wholeHost() bool { return d.Target.Kind == "host" || d.Target.Kind == "" }

// who prints the consumers of a whole host. For a target it prints one line: the verdict is not about its neighbours.
func (t *text) who() {
	c := t.d.Consumers
	if c == nil {
		return
	}
	t.blank()
	if !t.d.wholeHost() {
		t.line(bold, "REST OF THE HOST  ", "  ", besideIt(c))
		return
	}
	t.line(bold, "WHO USES THE MACHINE", "", "")
	if text := machineText(c); t.verbose || c.Unaccounted >= worthALook {
		t.line(plain, "  ", "    ", text)
	}
	shown := shownOf(c, t.verbose)
	if t.bySize {
		shown = slices.SortedFunc(slices.Values(c.List), func(a, b evidence.Consumer) int {
			return cmp.Compare(b.Memory, a.Memory)
		})
		shown = shown[:min(len(shown), shownConsumers)]
	}
	for _, x := range shown {
		head := fmt.Sprintf("  %10s %10s  ", cpusText(x.CPUs), memoryText(x.Memory))
		t.line(plain, head, strings.Repeat(" ", utf8.RuneCountInString(head)), consumerText(x))
	}
	if left := len(c.List) - len(shown); left > 0 && !t.verbose {
		t.line(faint, "  ", "  ", fmt.Sprintf("and %d more (-v shows them)%s", left, mostMemory(c, shown)))
	}
	for _, n := range c.Notes {
		t.line(faint, "  ", "    ", n)
	}
}

// shownOf returns the consumers that get a line.
func shownOf(c *evidence.Consumption, all bool) []evidence.Consumer {
	if all {
		return c.List
	}
	var out []evidence.Consumer
	for _, x := range c.List[:min(len(c.List), shownConsumers)] {
		if x.CPUs >= leastCPUs {
			out = append(out, x)
		}
	}
	return out
}

// mostMemory names the consumer with the most memory if that one has no line of its own.
func mostMemory(c *evidence.Consumption, shown []evidence.Consumer) string {
	var most evidence.Consumer
	for _, x := range c.List {
		if x.Memory > most.Memory {
			most = x
		}
	}
	for _, x := range shown {
		if x == most {
			return ""
		}
	}
	if most.Memory == 0 {
		return ""
	}
	return fmt.Sprintf("; most memory: %s, %s", evidence.ConsumerName(most), memoryText(most.Memory))
}

// machineText says what was busy, and which part belongs to no process.
func machineText(c *evidence.Consumption) string {
	s := fmt.Sprintf("%s of %s busy", cpusNumber(c.Busy), cpusText(c.CPUs))
	if c.Interrupts >= leastCPUs {
		s += fmt.Sprintf(", %s of it in interrupts", cpusNumber(c.Interrupts))
	}
	if c.Unaccounted >= leastCPUs {
		s += fmt.Sprintf("; %s not attributed (processes that started and ended between two samples)",
			cpusText(c.Unaccounted))
	}
	if c.Created >= 1 {
		s += fmt.Sprintf("; %.0f processes and threads started per second", c.Created)
	}
	return s
}

// consumerText names a consumer: "python3 (pid 4021), cgroup /app.slice, user app, for 3 h".
func consumerText(x evidence.Consumer) string {
	parts := []string{evidence.ConsumerName(x)}
	switch {
	case x.Container != "":
		parts = append(parts, "container "+shortID(x.Container))
	case x.Cgroup != "" && x.Cgroup != "/":
		parts = append(parts, "cgroup "+x.Cgroup)
	}
	if x.User != "" && x.User != "root" {
		parts = append(parts, "user "+x.User)
	}
	if x.Age > 0 {
		parts = append(parts, "for "+evidence.AgeText(x.Age))
	}
	if x.Read+x.Written >= worthIO {
		parts = append(parts, fmt.Sprintf("read %s and wrote %s", quantity.Of("", x.Read, quantity.Bytes).Text(),
			quantity.Of("", x.Written, quantity.Bytes).Text()))
	}
	return strings.Join(parts, ", ")
}

// worthIO is the least disk I/O in a window that is worth a word.
const worthIO = 1 << 20

// besideIt says in one line what the host's other processes use.
func besideIt(c *evidence.Consumption) string {
	s := fmt.Sprintf("other processes use %s of %s", cpusNumber(c.Others()), cpusText(c.CPUs))
	for _, x := range c.List { // the first is the largest
		if !x.Target && x.CPUs >= leastCPUs {
			return s + fmt.Sprintf(", most by %s: %s", evidence.ConsumerName(x), cpusNumber(x.CPUs))
		}
	}
	return s
}

// A User is one consumer of the machine, as a reader sees it.
type User struct{ CPUs, Memory, Who string }

// Users are the largest consumers of a whole host. A target has none; [Data.RestOfHost] is for it.
func (d *Data) Users() (list []User) {
	if !d.wholeHost() || d.Consumers == nil {
		return nil
	}
	for _, x := range shownOf(d.Consumers, false) {
		list = append(list, User{cpusNumber(x.CPUs), memoryText(x.Memory), consumerText(x)})
	}
	return list
}

// RestOfHost says in one line what processes other than the target's use; "" for a whole host.
func (d *Data) RestOfHost() string {
	if d.wholeHost() || d.Consumers == nil {
		return ""
	}
	return besideIt(d.Consumers)
}

func (m *markdown) who() {
	c := m.d.Consumers
	if c == nil {
		return
	}
	if rest := m.d.RestOfHost(); rest != "" {
		m.line("\n**Rest of the host:** %s", escape(rest))
		return
	}
	m.line("\n### Who uses the machine\n\n%s\n", escape(machineText(c)))
	m.line("| CPUs | memory | who |\n|--:|--:|---|")
	for _, x := range m.d.Users() {
		m.line("| %s | %s | %s |", x.CPUs, x.Memory, escape(x.Who))
	}
	for _, n := range c.Notes {
		m.line("\n%s", escape(n))
	}
}

// cpusNumber returns CPUs to two decimals, so that they add up for a reader.
func cpusNumber(n float64) string {
	return evidence.WithoutUnit(quantity.Of("", rounded(n), quantity.CPUs))
}

func cpusText(n float64) string { return quantity.Of("", rounded(n), quantity.CPUs).Text() }

func rounded(n float64) float64 { return float64(int(100*n+0.5)) / 100 }

// memoryText is empty where memory is not known.
func memoryText(n float64) string {
	if n <= 0 {
		return ""
	}
	return quantity.Of("", n, quantity.Bytes).Text()
}
