package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// How many methods and waits a report holds, and how many of them the text shows without -v: past the third there is
// rarely one that is worth a change.
const (
	hotMethods   = 10
	shownMethods = 5
	hotWaits     = 10
	shownWaits   = 3
)

// leastSamples is how many samples a share of code needs. With fewer, a single sample is more than 5 % of the time.
const leastSamples = 20

// CPUTime says where the CPU time of the process went, whether or not a check knows the code. Parts add up to
// Seconds.
type CPUTime struct {
	Seconds float64 `json:"seconds"` // the whole that the shares are of
	// what the kernel counted in the profile's window; 0 if it was not recorded
	Kernel  float64   `json:"kernel_seconds"`
	System  float64   `json:"kernel_mode_seconds"`    // the part of Kernel in kernel mode
	Window  float64   `json:"window_seconds"`         // the window that the profile covers
	Engine  string    `json:"engine"`                 // what took the samples
	Samples int64     `json:"samples"`                //
	Lost    int64     `json:"lost_samples,omitempty"` //
	Parts   []CPUPart `json:"parts"`
	Methods []Method  `json:"methods"`         // the application's, by what they use themselves
	Notes   []string  `json:"notes,omitempty"` // what the samples cannot show
}

// CPUPart is one kind of work. Each sample belongs to one part.
type CPUPart struct {
	Part    hotcode.Part `json:"part"`
	Seconds float64      `json:"seconds"`
	Share   float64      `json:"share"`
}

// Method is one method of the application.
type Method struct {
	Name string `json:"name"`
	Line int    `json:"line,omitempty"`
	// with the JDK, libraries and kernel it calls, without further methods of the application
	Own       float64 `json:"own_share"`
	Inclusive float64 `json:"inclusive_share"` // with everything it calls
	Calls     string  `json:"calls,omitempty"` // what takes most of its own share
	// its callers in most of its own share, the nearest first
	Callers []string `json:"callers,omitempty"`
}

// Wait is what threads with work wait for at one place in the code.
type Wait struct {
	For     hotcode.Wait `json:"for"`
	Method  string       `json:"method"` // of a native program: the function; empty if its stacks do not show it
	Line    int          `json:"line,omitempty"`
	Threads float64      `json:"threads"` // on average
	// Goroutine says that these are goroutines, which the kernel does not see.
	Goroutine bool     `json:"goroutine,omitempty"`
	On        string   `json:"on,omitempty"`      // a destination (ip:port), the address of a lock, a native method
	Callers   []string `json:"callers,omitempty"` // of the method, the nearest first
	Wakers    []Waker  `json:"wakers,omitempty"`  // of a lock
}

// Waker is who ends waits for a lock.
type Waker struct {
	Thread string  `json:"thread"` // name and id of the one that does so most there
	At     string  `json:"at"`     // its functions, the innermost first
	Share  float64 `json:"share"`  // of the waits
}

func cpuTimeOf(rec *recording.Recording) *CPUTime {
	c, ok := hotcode.CPUOf(rec)
	if !ok || c.Total() <= 0 {
		return nil
	}
	total := c.Total()
	out := &CPUTime{
		Seconds: total, Kernel: c.Kernel, System: c.System, Window: c.Window, Engine: c.Engine,
		Samples: c.Profile.Total().Count, Lost: c.Lost, Parts: []CPUPart{}, Methods: []Method{},
		Notes: hotcode.Notes(rec),
	}
	for _, p := range c.Parts() {
		out.Parts = append(out.Parts, CPUPart{p.Part, p.Seconds, p.Seconds / total})
	}
	for _, m := range c.Methods(hotMethods) {
		out.Methods = append(out.Methods, Method{
			m.Name, m.Line, m.Own / total, m.Inclusive / total, m.Calls,
			m.Callers,
		})
	}
	return out
}

func waitsOf(rec *recording.Recording) (out []Wait) {
	for _, e := range []stacks.Event{stacks.Wall, stacks.Goroutine, stacks.ScriptWall} {
		p, ok := rec.Ranked(e)
		if !ok {
			continue
		}
		for _, w := range hotcode.WaitTimes(p, hotcode.OwnersOf(rec), hotWaits) {
			out = append(out, Wait{
				For: w.For, Method: w.Method, Line: w.Line, Threads: w.Threads, On: w.In,
				Goroutine: p.Event == stacks.Goroutine,
			})
		}
		if len(out) > 0 || e != stacks.ScriptWall { // machine code of a script may wait where no function of it does
			return out
		}
	}
	return blockedOf(rec)
}

// leastThreads is the least number of threads that a report would not round to zero.
const leastThreads = 0.005

// blockedOf does what waitsOf does, for a program without a profiler of its own, from the off-CPU profile.
func blockedOf(rec *recording.Recording) []Wait {
	var out []Wait
	for _, b := range hotcode.BlockedTimes(rec, hotWaits) {
		if b.Threads < leastThreads {
			continue
		}
		w := Wait{For: b.For, Threads: b.Threads, On: b.On}
		if len(b.Path) > 0 {
			w.Method = hotcode.PlaceOf(b.Path)
			w.Callers = b.Path[slices.Index(b.Path, w.Method)+1:]
		}
		for _, k := range b.Wakers {
			w.Wakers = append(w.Wakers, Waker{k.Thread, k.At, k.Share})
		}
		out = append(out, w)
	}
	return out
}

func (t *text) cpuTime() {
	c := t.d.CPUTime
	if c == nil {
		return
	}
	t.blank()
	var sum []string
	for _, p := range c.Parts {
		sum = append(sum, fmt.Sprintf("%s %s", p.Part, secondsText(p.Seconds)))
	}
	t.line(bold, "WHERE THE CPU TIME GOES", "", "")
	t.line(plain, "  ", "    ", fmt.Sprintf("%s in %s: %s (%s)", secondsText(c.Seconds), secondsText(c.Window),
		strings.Join(sum, " + "), plural(int(c.Samples), "sample")))
	if t.verbose && c.Kernel > 0 {
		t.line(plain, "  ", "    ", fmt.Sprintf("kernel accounting: %s, %s of it system; samples of %s",
			secondsText(c.Kernel), secondsText(c.System), c.Engine))
	}
	if c.Samples < leastSamples && !t.verbose {
		t.line(faint, "  ", "  ", "too few samples to tell which code (-v shows them)")
		return
	}
	for i, m := range c.Methods {
		if i == shownMethods && !t.verbose {
			t.line(faint, "  ", "  ", fmt.Sprintf("and %d more (-v shows them)", len(c.Methods)-i))
			break
		}
		t.method(m)
	}
	for _, n := range c.Notes {
		t.line(faint, "  ", "  ", n)
	}
}

func (t *text) method(m Method) {
	text := hotcode.At(m.Name, m.Line)
	if m.Calls != "" {
		text += ", most in " + m.Calls
	}
	if len(m.Callers) > 0 {
		text += "; called by " + strings.Join(m.Callers, " ← ")
	}
	if t.verbose {
		text += fmt.Sprintf(" (%s inclusive)", shareText(m.Inclusive))
	}
	cells := bar(m.Own, barCells)
	cells += strings.Repeat(" ", barCells-utf8.RuneCountInString(cells)+1)
	if t.width < leastForBars {
		cells = ""
	}
	head := fmt.Sprintf("  %6s  %s", shareText(m.Own), cells)
	t.line(plain, head, strings.Repeat(" ", utf8.RuneCountInString(head)), text)
}

// barCells is the length of a bar that stands for all CPU time: a cell is a fifth.
const barCells = 5

// leastForBars is the width in which a name still has room beside a bar.
const leastForBars = 60

// waiters says whose waits these are: threads' or goroutines'.
func waiters(list []Wait) string {
	if list[0].Goroutine {
		return "goroutines"
	}
	return "threads"
}

func (t *text) waits() {
	if len(t.d.Waits) == 0 {
		return
	}
	t.blank()
	who := waiters(t.d.Waits)
	t.line(bold, "WHERE "+strings.ToUpper(who)+" WAIT", "", "")
	t.line(plain, "  ", "  ", fmt.Sprintf("average number of waiting %s, idle %s excluded", who, who))
	for i, w := range t.d.Waits {
		if i == shownWaits && !t.verbose {
			t.line(faint, "  ", "  ", fmt.Sprintf("and %d more (-v shows them)", len(t.d.Waits)-i))
			break
		}
		threads := quantity.Of("", w.Threads, quantity.None).Text()
		t.line(plain, fmt.Sprintf("  %6s  ", threads), "          ", w.text())
		for _, k := range w.Wakers {
			text := fmt.Sprintf("%s ended at %s, most by thread %s", shareText(k.Share), orNowhere(k.At), k.Thread)
			t.line(plain, "          ", "            ", text)
		}
	}
}

func (w *Wait) text() string {
	s := "for " + string(w.For)
	if w.On != "" {
		s += " (" + w.On + ")"
	}
	s += " at " + orNowhere(hotcode.At(w.Method, w.Line))
	for _, c := range w.Callers {
		s += " ← " + c
	}
	return s
}

// orNowhere stands for a program whose stacks cannot be walked.
func orNowhere(at string) string {
	if at == "" {
		return "an unknown place (no stack)"
	}
	return at
}

func secondsText(n float64) string { return quantity.Of("", n, quantity.Seconds).Text() }

func shareText(n float64) string { return quantity.Of("", n, quantity.Ratio).Text() }
