package check

import (
	"fmt"
	"strings"
	"unicode"
)

// A Command is text for a shell. It is a type of its own, so that a value from a recording gets into a command only
// through [Commandf]: whoever chooses the names of interfaces, groups and processes may want to inject commands.
type Command string

// Commandf fills the format, a constant, with arguments. Numbers and commands are inserted as they are; each other
// value becomes one shell word. A verb for a value must be outside quotes.
func Commandf(format Command, args ...any) Command {
	words := make([]any, len(args))
	for i, a := range args {
		switch a.(type) {
		case Command, int, float64:
			words[i] = a
		default:
			words[i] = Quote(fmt.Sprint(a))
		}
	}
	return Command(fmt.Sprintf(string(format), words...))
}

// Quote returns the text as one shell word: unchanged if no shell interprets any of it, in single quotes otherwise.
// Text with characters that a terminal would obey or hide becomes $'...', which keeps them visible; it has no quote
// inside, so a shell that does not know this form sees one word as well.
func Quote(s string) string {
	if strings.ContainsFunc(s, hidden) || strings.ContainsRune(s, unicode.ReplacementChar) {
		return escaped(s)
	}
	if s != "" && !strings.ContainsFunc(s, special) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// hidden reports whether a reader does not see a character as it is, such as a line feed, or marks that reverse the
// text.
func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// special reports whether a character may mean something to a shell.
func special(r rune) bool {
	plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:@,", r)
	return !plain
}

func escaped(s string) string {
	var b strings.Builder
	b.WriteString("$'")
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '\'' || c == '\\' {
			fmt.Fprintf(&b, `\%03o`, c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String() + "'"
}
