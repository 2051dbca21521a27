package experiment

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/perfdoctor/perfdoctor/internal/cli/command"
)

const (
	// more is the factor by which the CPU use has to rise: a single program's differs by 12 % between runs
	// (docs/decisions/0012-noise-is-not-news.md).
	more = 1.12
	// less is the factor to which the wait for each second of CPU time has to fall.
	less = 0.5
	// asMuch is how much of the earlier CPU use must remain: with less to do there is less to wait for
	// (docs/decisions/0081-a-second-window-disproves.md).
	asMuch = 0.8
	// harm is the number of threads, or CPUs, from which on there is something to gain: a twentieth of a CPU.
	harm = 0.05
	// filler is the least CPU use of a neighbour that counts as one, in CPUs: a tenth.
	filler = 0.1
)

// judge says whether the change took away what the finding is about, and whether its end brought it back.
func (e *Experiment) judge(before, during, after Window) (Outcome, string) {
	if why := e.idle(before, during); why != "" {
		return Unsure, why
	}
	first, last := during.gain(before), during.gain(after)
	switch {
	case first != "" && last != "":
		return Stands, "with the change, " + first + "; without it again, as before"
	case first == "" && last == "":
		if during.CPUs < asMuch*before.CPUs {
			return Unsure, "there was less to do during the change than before"
		}
		return Falls, fmt.Sprintf("the change took nothing away: the target did not use %.0f %% more CPU time, nor "+
			"wait half as long for each second of it", 100*(more-1))
	case first != "":
		return Unsure, "with the change, " + first + "; but that lasted when it was undone"
	}
	return Unsure, "it got worse after the change, and no better with it"
}

// idle says why the experiment could show nothing.
func (e *Experiment) idle(before, during Window) string {
	switch {
	case before.CPUs < harm && before.Waiting < harm:
		return "the target had next to nothing to do"
	case e.stat != "" && before.Throttled == 0:
		return "the limit did not stop the group in the window before"
	case e.stat == "" && before.SuspectCPUs < filler:
		return fmt.Sprintf("the suspect used %.2f CPUs before: there is nothing that it could have taken",
			before.SuspectCPUs)
	case e.stat == "" && during.SuspectCPUs > before.SuspectCPUs*less:
		return "the suspect went on while it was paused: its children do, or another let it go"
	}
	return ""
}

// gain says in which way the target was better off than in another window, or "".
func (w *Window) gain(than Window) string {
	if w.CPUs > more*than.CPUs {
		return fmt.Sprintf("it used %.2f CPUs instead of %.2f", w.CPUs, than.CPUs)
	}
	if than.Waiting >= harm && w.CPUs >= asMuch*than.CPUs && w.wait() < less*than.wait() {
		return fmt.Sprintf("it waited %.2f s for each second of CPU time instead of %.2f s", w.wait(), than.wait())
	}
	return ""
}

// wait is how long threads waited for each second of CPU time.
func (w *Window) wait() float64 { return w.Waiting / max(w.CPUs, 0.01) } // a tick in a second

// exitUnsure is the exit code if the outcome is unknown, as in disprove.
const exitUnsure = 4

// ExitCode is 0 if the finding stands, 3 if it falls, and 4 if that is unknown.
func (r *Result) ExitCode() int {
	return map[Outcome]int{Stands: command.ExitFine, Falls: command.ExitFindings, Unsure: exitUnsure}[r.Result]
}

// Text writes the result for a person.
func (r *Result) Text(w io.Writer) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	pause := r.Experiment == "pause"
	last := "PERIODS THROTTLED"
	if pause {
		last = "CPUS OF THE SUSPECT"
	}
	_, _ = fmt.Fprintf(table, "WINDOW\tSECONDS\tCPUS USED\tTHREADS WAITING FOR A CPU\t%s\n", last) // into memory
	for i := range r.Windows {
		v := &r.Windows[i]
		end := fmt.Sprintf("%.0f %%", 100*v.Throttled)
		if pause {
			end = fmt.Sprintf("%.2f", v.SuspectCPUs)
		}
		_, _ = fmt.Fprintf(table, "%s\t%.1f\t%.2f\t%.2f\t%s\n", v.Name, v.Seconds, v.CPUs, v.Waiting, end)
	}
	_ = table.Flush() // into memory
	fmt.Fprintf(&b, "\n%s: %s\n", r.Result, r.Because)
	fmt.Fprintf(&b, "undone: %s\n", r.Undone)
	_, err := io.WriteString(w, b.String())
	return err
}

// Text names the change before it is made.
func (c Change) Text() string {
	return fmt.Sprintf("change   %s: %s -> %s\nrisk     %s\nundo     perfdoctor does, and a watchdog where it is "+
		"killed; where both are: %s\n", c.What, c.Before, c.During, c.Risk, c.Undo)
}
