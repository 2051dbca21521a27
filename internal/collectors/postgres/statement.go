package postgres

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxText is how much of a statement is read, in bytes: PostgreSQL itself keeps 1 KiB of each unless
	// track_activity_query_size says otherwise.
	maxText = 1 << 10
	// maxFingerprint bounds a fingerprint, in bytes: enough for the tables and the condition.
	maxFingerprint = 160
)

// fingerprint returns a statement without its literals, comments and line breaks, so that two statements that differ
// only in values are the same and no value gets into a recording. It ends where the text can no longer be told from a
// literal for sure. The rules are those of src/backend/parser/scan.l.
func fingerprint(text string) string {
	l := lexer{in: text}
	for l.in != "" && l.out.Len() <= maxFingerprint && l.token() {
	}
	return cut(strings.Trim(l.out.String(), " ;"))
}

// cut shortens to the bound, between two characters.
func cut(s string) string {
	if len(s) <= maxFingerprint {
		return s
	}
	s = s[:maxFingerprint]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// A lexer turns what is left of a statement into its fingerprint.
type lexer struct {
	in  string
	out strings.Builder
	gap bool // there was space since the last token
}

// token takes one token; more is false if nothing behind it can be told from a literal.
func (l *lexer) token() (more bool) {
	r, size := utf8.DecodeRuneInString(l.in)
	switch {
	case strings.HasPrefix(l.in, "--"):
		_, l.in, _ = strings.Cut(l.in, "\n")
		l.gap = true
	case strings.HasPrefix(l.in, "/*"):
		l.comment()
	case r == '\'':
		return l.quoted(false)
	case r == '"':
		return l.name()
	case r == '$':
		return l.dollar()
	case isDigit(r), r == '.' && len(l.in) > 1 && isDigit(rune(l.in[1])):
		l.number()
	case isLetter(r):
		return l.word()
	default:
		l.in = l.in[size:]
		switch {
		case r < utf8.RuneSelf && unicode.IsGraphic(r) && r != ' ':
			l.write(string(r))
		default: // space, a control character, or a byte of another encoding
			l.gap = true
		}
	}
	return true
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

func isLetter(r rune) bool {
	return r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r != utf8.RuneError && unicode.IsLetter(r)
}

// write adds a token, and a space where there was one.
func (l *lexer) write(token string) {
	if l.gap && l.out.Len() > 0 {
		l.out.WriteByte(' ')
	}
	l.out.WriteString(token)
	l.gap = false
}

// literal writes a question mark, one for a whole list of literals.
func (l *lexer) literal() {
	const mark = "?"
	before, ok := strings.CutSuffix(l.out.String(), ",")
	if before = strings.TrimRight(before, " "); ok && strings.HasSuffix(before, mark) {
		l.out.Reset()
		l.out.WriteString(before)
		l.gap = false
		return
	}
	l.write(mark)
}

// comment leaves out a comment, which may hold others.
func (l *lexer) comment() {
	depth := 0
	for l.in != "" {
		switch {
		case strings.HasPrefix(l.in, "/*"):
			depth++
			l.in = l.in[2:]
		case strings.HasPrefix(l.in, "*/"):
			depth--
			l.in = l.in[2:]
		default:
			l.in = l.in[1:]
		}
		if depth == 0 {
			break
		}
	}
	l.gap = true
}

// quoted takes a literal in single quotes. In a literal without E, a setting (standard_conforming_strings) decides
// whether a backslash escapes a quote, so the end of such a literal is not known.
func (l *lexer) quoted(escapes bool) (more bool) {
	l.literal()
	for i := 1; i < len(l.in); i++ {
		switch {
		case l.in[i] == '\\' && escapes:
			i++
		case l.in[i] == '\\' && i+1 < len(l.in) && l.in[i+1] == '\'':
			return false
		case l.in[i] == '\'' && i+1 < len(l.in) && l.in[i+1] == '\'':
			i++
		case l.in[i] == '\'':
			l.in = l.in[i+1:]
			return true
		}
	}
	return false // the text was cut off
}

// name takes a name in double quotes.
func (l *lexer) name() (more bool) {
	end := strings.IndexByte(l.in[1:], '"')
	if end < 0 {
		return false
	}
	name := l.in[1 : 1+end]
	l.in = l.in[2+end:]
	printable := func(r rune) bool { return r != utf8.RuneError && unicode.IsGraphic(r) && r != '\'' }
	if strings.ContainsFunc(name, func(r rune) bool { return !printable(r) }) {
		name = "…"
	}
	l.write(`"` + name + `"`)
	return true
}

// dollar takes a parameter, $1, or a literal between two tags, $tag$.
func (l *lexer) dollar() (more bool) {
	end := strings.IndexFunc(l.in[1:], func(r rune) bool { return !isLetter(r) && !isDigit(r) })
	switch {
	case end < 0 || l.in[1+end] != '$':
		l.in = l.in[1:]
		if l.in != "" && !isDigit(rune(l.in[0])) {
			return false // not SQL
		}
		l.number()
		return true
	case end > 0 && isDigit(rune(l.in[1])):
		return false // $1$ is not SQL either
	}
	tag := l.in[:end+2]
	l.literal()
	_, rest, ok := strings.Cut(l.in[len(tag):], tag)
	l.in = rest
	return ok
}

// sign takes back the sign of a number, so that "+ -3" and "+ 3" are one statement: a minus behind another operator, a
// bracket or a comma subtracts nothing.
func (l *lexer) sign() {
	out, ok := strings.CutSuffix(l.out.String(), "-")
	before := strings.TrimRight(out, " ")
	if !ok || l.gap || before == "" || !strings.ContainsAny(before[len(before)-1:], "=+-*/%<>|(,") {
		return
	}
	l.out.Reset()
	l.out.WriteString(before)
	l.gap = before != out
}

// number takes a number of any base, with its sign, fraction and exponent.
func (l *lexer) number() {
	l.sign()
	l.literal()
	for i := 0; i < len(l.in); i++ {
		c := l.in[i]
		signed := (c == '+' || c == '-') && i > 0 && (l.in[i-1] == 'e' || l.in[i-1] == 'E')
		if !isDigit(rune(c)) && c != '.' && !signed && !isLetter(rune(c)) {
			l.in = l.in[i:]
			return
		}
	}
	l.in = ""
}

// word takes a keyword or a name, or the letter before a literal: E'…', B'…', X'…', N'…', U&'…'.
func (l *lexer) word() (more bool) {
	end := strings.IndexFunc(l.in, func(r rune) bool { return !isLetter(r) && !isDigit(r) && r != '$' })
	if end < 0 {
		end = len(l.in)
	}
	word := l.in[:end]
	if l.in = l.in[end:]; strings.HasPrefix(l.in, "'") && len(word) == 1 {
		return l.quoted(word == "E" || word == "e")
	}
	if rest, ok := strings.CutPrefix(l.in, "&'"); ok && (word == "U" || word == "u") {
		l.in = "'" + rest
		return l.quoted(false)
	}
	l.write(word)
	return true
}
