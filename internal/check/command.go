package check

import (
	"fmt"
	"strings"
	"unicode"
)

// Command is text for a shell. It is a type of its own, so that a value of a recording gets into one only through
// [Commandf]: the names of interfaces, groups and processes are chosen by those who may want their words run.
type Command string

// Commandf fills the format, a constant, with arguments. Numbers and commands stand as they are; each other value
// becomes one word of the shell. A verb for a value must stand outside quotes.
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

// Quote gives the text as one word of a shell: as it is where no shell reads anything into it, in single quotes
// otherwise. With characters that a terminal would obey or hide it is $'...', which keeps them visible; it has no quote
// inside, so that a shell that does not know this form sees one word as well.
func Quote(s string) string {
	if strings.ContainsFunc(s, hidden) || strings.ContainsRune(s, unicode.ReplacementChar) {
		return escaped(s)
	}
	if s != "" && !strings.ContainsFunc(s, special) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// hidden tells characters that a reader does not see as they are, such as a line feed, or marks that reverse the text.
func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// special tells characters that may mean something to a shell.
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
