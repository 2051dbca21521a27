package report

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The default width of the text report, and the least width that still holds an indented line.
const (
	defaultWidth = 80
	minWidth     = 40
)

// style is a terminal attribute (ECMA-48 SGR).
type style string

const (
	plain  style = ""
	bold   style = "1"
	red    style = "1;31"
	yellow style = "1;33"
	cyan   style = "36"
	green  style = "1;32"
	faint  style = "2"
)

// page collects the lines of a text report. Every string passes through clean here, so that no renderer can forget
// it.
type page struct {
	b     strings.Builder
	width int
	color bool
}

func newPage(opts TextOptions) *page {
	w := opts.Width
	if w <= 0 {
		w = defaultWidth
	}
	return &page{width: max(w, minWidth), color: opts.Color}
}

func (p *page) paint(st style, s string) string {
	if !p.color || st == plain || s == "" {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}

func (p *page) blank() { p.b.WriteByte('\n') }

// line writes text after a head (in its style) and breaks it at words. Further lines are indented to the width of
// indent.
func (p *page) line(st style, head, indent, text string) {
	head = clean(head)
	first := utf8.RuneCountInString(head)
	rest := utf8.RuneCountInString(indent)
	lines := wrap(clean(text), max(p.width-first, minWidth/2), max(p.width-rest, minWidth/2))
	for i, l := range lines {
		if i == 0 {
			word := strings.TrimRight(head, " ")
			l = p.paint(st, word) + head[len(word):] + l
		} else {
			l = indent + l
		}
		p.b.WriteString(strings.TrimRight(l, " ") + "\n")
	}
}

// command writes a command on one line, however long: a broken command cannot be copied.
func (p *page) command(indent, cmd string) {
	p.b.WriteString(indent + p.paint(bold, "$ "+clean(cmd)) + "\n")
}

// clean makes a string from the host harmless. It shows control characters, escape sequences, marks that turn the
// direction of text and bytes that are not UTF-8 as escapes. Process names and cgroup paths may hold any byte but a
// zero (and a slash).
func clean(s string) string { return Escape(s, "") }

// Escape shows the parts of a string that are not printable (unicode.IsPrint) or not UTF-8 as Go's escapes \xNN and
// \uNNNN. It leaves the characters in keep as they are.
func Escape(s, keep string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// wrap breaks text at spaces into a first line of at most first runes and others of at most rest. It breaks a word
// only if the word is longer than a line, after a slash if it has one (paths).
func wrap(text string, first, rest int) []string {
	var lines []string
	cur, room := "", first
	flush := func() { lines, cur, room = append(lines, cur), "", rest }
	for _, w := range words(text) {
		n := utf8.RuneCountInString(w)
		if cur != "" && utf8.RuneCountInString(cur)+1+n > room {
			flush()
		}
		if cur != "" {
			cur += " "
		}
		cur += w
		for utf8.RuneCountInString(cur) > room {
			head, tail := breakWord(cur, room)
			cur = head
			flush()
			cur = tail
		}
	}
	if cur != "" || len(lines) == 0 {
		flush()
	}
	return lines
}

func breakWord(w string, room int) (head, tail string) {
	rs := []rune(w)
	at := room
	if i := strings.LastIndex(string(rs[:room]), "/"); i > 0 {
		at = utf8.RuneCountInString(string(rs[:room])[:i+1])
	}
	return string(rs[:at]), string(rs[at:])
}

// words splits at spaces, but keeps a number and its unit together.
func words(text string) []string {
	var out []string
	for _, w := range strings.Fields(text) {
		if n := len(out); n > 0 && isUnit(w) && endsInDigit(out[n-1]) {
			out[n-1] += " " + w
			continue
		}
		out = append(out, w)
	}
	return out
}

func isUnit(w string) bool {
	w, _, _ = strings.Cut(strings.TrimRight(w, ".,;:)"), "/")
	switch w {
	case "%", "s", "ms", "µs", "B", "KiB", "MiB", "GiB", "TiB", "CPUs", "CPU",
		"periods", "threads", "packets", "ports", "connections", "sockets", "files":
		return true
	}
	return false
}

func endsInDigit(w string) bool { return w[len(w)-1] >= '0' && w[len(w)-1] <= '9' }
