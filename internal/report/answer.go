package report

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

const (
	// answerLines is the height of a terminal that nobody has resized (VT100). The verdict, its proof, the fix, how
	// sure it is and the next command fit into it.
	answerLines = 24
	// answerProof is how many lines of evidence the answer shows if there is room.
	answerProof = 3
	// labelWidth holds the longest label of a finding with two blanks on either side: "  Disproved if  ".
	labelWidth = 16
	// leastForLabels is the width in which text still has room beside a column of labels.
	leastForLabels = 60
)

// labelIndent returns the blanks before a line that continues a labelled text.
func (t *text) labelIndent() string {
	if t.width < leastForLabels {
		return "    "
	}
	return strings.Repeat(" ", labelWidth)
}

// label writes a text behind its label; further lines stand below the text.
func (t *text) label(label, text string) { t.styled(bold, label, text) }

func (t *text) styled(st style, label, text string) {
	t.line(st, t.labelled(label), t.labelIndent(), text)
}

// labelled returns a label with the blanks up to its text.
func (t *text) labelled(label string) string {
	if label == "" {
		return t.labelIndent()
	}
	head := "  " + label + "  "
	if t.width < leastForLabels {
		return head
	}
	return head + strings.Repeat(" ", max(labelWidth-utf8.RuneCountInString(head), 0))
}

// verdict writes the answer. It returns the finding to act on, or nil if there is none, and how many lines of its
// proof it showed.
func (t *text) verdict() (f *Finding, shown int) {
	if t.d.Verdict.Result == Bottleneck {
		f = &t.d.Findings[0]
		shown = t.answer(f)
		t.consequences(f)
		return f, shown
	}
	st := green
	if r := t.d.Verdict.Result; r == NothingAssessed || r == Incomplete {
		st = yellow
	}
	t.line(st, strings.ToUpper(t.d.Heading()), "", "")
	t.line(plain, "  ", "  ", t.d.Verdict.Summary)
	if next := t.d.Next(); next != "" {
		t.label("Next", next)
	}
	return nil, 0
}

// Next says what to do if nothing was found: read what is remarkable though no fault, look inside the process that
// uses most of the CPU time of a host, or look again while something is slow. It is "" if too little was assessed;
// the summary then says what would change that.
func (d *Data) Next() string {
	if d.Verdict.Result != NoBottleneck {
		return ""
	}
	if f := d.leading(); f != nil {
		return "perfdoctor checks explain " + f.Check
	}
	if !d.wholeHost() {
		return "if it is slow at times, look then; --save well.zip keeps this look for perfdoctor compare"
	}
	if d.Consumers != nil {
		for _, x := range d.Consumers.List { // the first is the greatest
			if x.PID != 0 && !x.ShortLived && x.Command != "perfdoctor" && x.CPUs >= worthALook {
				return fmt.Sprintf("perfdoctor diagnose --pid %d (looks inside %s, which uses %s)", x.PID, x.Command,
					cpusText(x.CPUs))
			}
		}
	}
	return "if a program is slow: perfdoctor PID or perfdoctor NAME, while it is"
}

// worthALook is the least CPU time at which a process of a healthy host is worth a diagnosis of its own: a fifth of a
// CPU gives a profile of 200 samples in 10 s.
const worthALook = 0.2

// full prints a finding: first the answer, then everything needed to doubt it.
func (t *text) full(f *Finding) {
	shown := t.answer(f)
	t.details(f, shown)
}

// answer prints what a reader acts on, on one screen if possible: the sentence, the proof, the fix, how sure it is
// and the next command. It returns the number of lines of evidence that it had room for.
func (t *text) answer(f *Finding) (proof int) {
	above := strings.Count(t.b.String(), "\n")
	if t.verbose {
		above = 0
	}
	for proof = answerProof; ; proof-- {
		try := &text{page: &page{width: t.width, color: t.color}, d: t.d, verbose: t.verbose}
		try.core(f, proof)
		if lines := strings.Count(try.b.String(), "\n"); proof == 1 || above+lines <= answerLines {
			t.b.WriteString(try.b.String())
			return proof
		}
	}
}

func (t *text) core(f *Finding, proof int) {
	t.line(severityStyle(f.Severity), strings.ToUpper(f.Severity.String())+"  ", "  ", f.Summary)
	t.line(plain, "  ", "  ", f.Check+": "+f.Subject.String())
	t.blank()
	t.evidence("Proof", f.proof()[:min(len(f.proof()), proof)])
	t.fixFirst(f)
	if len(f.Remedies) > 0 {
		t.remedy("Fix", f.Remedies[0], true)
	}
	t.label("Confidence", sure(f))
	t.label("Next", explain(f))
}

// proof is the evidence with its arithmetic, and what else was noted.
func (f *Finding) proof() []string {
	var out []string
	for _, e := range f.Evidence {
		out = append(out, e.String())
	}
	return append(out, f.Notes...)
}

func (t *text) evidence(label string, lines []string) {
	for i, l := range lines {
		if i > 0 {
			label = ""
		}
		t.label(label, l)
	}
}

// details prints what is not needed to act: the code, other fixes, what would prove the finding wrong, and with -v
// the rest of the proof.
func (t *text) details(f *Finding, shown int) {
	if f == nil {
		return
	}
	more := f.proof()[min(len(f.proof()), shown):]
	if len(more)+len(f.Placebos)+len(f.Disproof) == 0 && len(f.Remedies) < 2 && !hasCode(f) {
		return
	}
	t.blank()
	if hasCode(f) {
		t.code("In code", f.Remedies[0])
	}
	if t.verbose {
		t.evidence("More proof", more)
	} else if len(more) > 0 {
		t.label("More proof", fmt.Sprintf("%s: -v", plural(len(more), "line")))
	}
	for i, r := range f.Remedies {
		if i == 0 {
			continue
		}
		t.remedy("Or", r, t.verbose)
		if t.verbose {
			t.code("", r)
		}
	}
	for _, p := range f.Placebos {
		t.label("Won't help", p)
	}
	if f.Disproof != "" {
		t.label("Disproved if", f.Disproof)
	}
}

// hasCode reports whether the fix is shown as code.
func hasCode(f *Finding) bool {
	return len(f.Remedies) > 0 && f.Remedies[0].Before+f.Remedies[0].After != ""
}

// explain returns the command that explains a finding's check.
func explain(f *Finding) string { return "perfdoctor checks explain " + f.Check }

func (t *text) fixFirst(f *Finding) {
	if len(f.FixFirst) > 0 {
		t.styled(yellow, "First", "fix "+strings.Join(f.FixFirst, ", ")+": the profile changes with it")
	}
}

// remedy prints a fix with its risk: nobody should pick a fix without having seen its risk.
func (t *text) remedy(label string, r check.Remedy, effect bool) {
	t.label(label, r.Action)
	indent := t.labelIndent()
	if r.Command != "" {
		t.command(indent, string(r.Command))
	}
	if r.Effect != "" && effect {
		what := "expected effect: "
		if t.width < leastForLabels {
			what = "effect: "
		}
		t.line(plain, indent+what, indent+"  ", r.Effect)
	}
	if r.Risk != "" {
		t.line(plain, indent+"risk: ", indent+"  ", r.Risk)
	}
}

// code prints lines of a program without breaking them, like commands: a broken line reads as a different one.
func (t *text) code(label string, r check.Remedy) {
	left := t.labelled(label)
	for _, part := range []struct{ head, lines string }{{"before: ", r.Before}, {"after:  ", r.After}} {
		for l := range strings.Lines(strings.TrimSpace(part.lines)) {
			t.b.WriteString(left + part.head + clean(strings.TrimRight(l, "\n")) + "\n")
			left, part.head = t.labelIndent(), strings.Repeat(" ", len(part.head))
		}
	}
}

// sure is "medium: only 4 s were observed".
func sure(f *Finding) string {
	s := f.Confidence.String()
	if len(f.Doubts) > 0 {
		s += ": " + strings.Join(f.Doubts, "; ")
	}
	return s
}
