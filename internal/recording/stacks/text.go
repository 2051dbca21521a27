package stacks

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The marks of the kinds behind a frame's name: those of async-profiler's collapsed output with "ann", and two more.
var marks = [...]string{Unknown: "?", Interpreted: "0", Compiled: "j", Inlined: "i", Native: "n", Kernel: "k"}

// stateNames are the states as text and pprof labels hold them.
var stateNames = [...]string{StateUnknown: "", Running: "running", Sleeping: "sleeping"}

// headers are the first lines of the text form, in this order. The length of the time buckets may follow them: the
// form is older than it.
var headers = [...]string{"event", "engine", "interval", "duration", "lost"}

const headerBucket = "bucket: "

// maxText bounds a line of the text form: 2,048 frames, the deepest stack that async-profiler takes, of 4 KiB each.
const maxText = 8 << 20

// WriteText writes the profile as folded stacks, for people, grep and test cases: a line a sample, the outermost call
// first, and behind it how many samples it was and the sum of their values. [ParseText] reads it.
//
//	event: cpu
//	engine: async-profiler 4.6 perf_events
//	interval: 10000000
//	duration: 10.003s
//	lost: 0
//	bucket: 1s
//
//	[http-8080-1 tid=4021|@2s];java.lang.Thread.run:829_[j];com.example.Shop.cart:42_[i];libc.so.6!memcpy_[n] 12 120000000
//	[db-1 tid=4022|@2s|sleeping|class java.lang.Object];java.lang.Object.wait_[0] 3 300000000
//
// The brackets hold the thread ("[]" when it is unknown), the time bucket, the state and the class, each when there is
// one. A frame is module!name:line_[kind]; the kinds are those of async-profiler: 0 interpreted, j compiled, i inlined,
// k kernel, and here n native and ? unknown. A backslash takes the meaning of the next ; ! | or \, and \xNN is a
// control character.
func (p *Profile) WriteText(w io.Writer) error {
	bw := bufio.NewWriter(w)
	values := [...]string{
		string(p.Event), escape(p.Engine, ""), strconv.FormatInt(p.Interval, 10), p.Duration.String(),
		strconv.FormatInt(p.Lost, 10),
	}
	var b strings.Builder
	for i, name := range headers {
		b.WriteString(name + ": " + values[i] + "\n")
	}
	if p.Bucket > 0 {
		b.WriteString(headerBucket + p.Bucket.String() + "\n")
	}
	b.WriteByte('\n')
	for _, s := range p.Samples {
		b.WriteString(p.context(s))
		for i := len(s.Stack) - 1; i >= 0; i-- {
			b.WriteString(";" + frameText(p.Frames[s.Stack[i]]))
		}
		fmt.Fprintf(&b, " %d %d\n", s.Count, s.Value)
		if _, err := bw.WriteString(b.String()); err != nil {
			return err
		}
		b.Reset()
	}
	if _, err := bw.WriteString(b.String()); err != nil { // the header, for a profile without samples
		return err
	}
	return bw.Flush()
}

// context returns the bracket at the root of a line.
func (p *Profile) context(s Sample) string {
	var parts []string
	if s.Thread >= 0 {
		t := p.Threads[s.Thread]
		parts = append(parts, fmt.Sprintf("%s tid=%d", escape(t.Name, ";|"), t.ID))
	} else {
		parts = append(parts, "")
	}
	if s.At != 0 {
		parts = append(parts, "@"+s.At.String())
	}
	if s.State != StateUnknown {
		parts = append(parts, stateNames[s.State])
	}
	if s.Class != "" {
		parts = append(parts, "class "+escape(s.Class, ";|"))
	}
	return "[" + strings.Join(parts, "|") + "]"
}

// lineEnd matches what reads as the line number of a frame.
var lineEnd = regexp.MustCompile(`:[0-9]+$`)

func frameText(f Frame) string {
	text := escape(f.Name, ";!")
	if f.Module != "" {
		text = escape(f.Module, ";!") + "!" + text
	}
	if f.Line != 0 || lineEnd.MatchString(text) {
		text += ":" + strconv.Itoa(f.Line)
	}
	return text + "_[" + marks[f.Kind] + "]"
}

// escape puts a backslash before backslashes and the bytes of special, and writes control characters as \xNN.
func escape(s, special string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c == '\\' || strings.IndexByte(special, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		switch rest := s[i+1:]; {
		case rest == "":
			return "", fmt.Errorf("%.60q ends in a backslash", s)
		case strings.IndexByte(`;!|\`, rest[0]) >= 0:
			b.WriteByte(rest[0])
			i++
		case rest[0] == 'x' && len(rest) >= 3:
			c, err := strconv.ParseUint(rest[1:3], 16, 8)
			if err != nil {
				return "", fmt.Errorf("%.60q has \\x without two hexadecimal digits", s)
			}
			b.WriteByte(byte(c))
			i += 3
		default:
			return "", fmt.Errorf("%.60q has \\%c: only ; ! | and \\ follow a backslash, or xNN", s, rest[0])
		}
	}
	return b.String(), nil
}

// split cuts s at each separator that has no backslash before it.
func split(s string, sep byte) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case sep:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

// ParseText reads what [Profile.WriteText] writes, or what somebody wrote by hand: samples may be in any order, equal
// ones add up, and lines that are empty or begin with # are skipped. Every error names its line.
func ParseText(text []byte) (*Profile, error) {
	sc := bufio.NewScanner(bytes.NewReader(text))
	sc.Buffer(nil, maxText)
	p := &textParser{}
	n := 0
	for sc.Scan() {
		n++
		line := sc.Text()
		if strings.TrimSpace(line) == "" || line[0] == '#' {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if p.header < len(headers) {
		return nil, fmt.Errorf("line %d: the profile ends before its %q", n+1, headers[p.header])
	}
	out := p.builder.Profile()
	if out.Lost > 0 {
		return nil, fmt.Errorf("line %d: more than %d samples, or their sum overflows", n, maxSamples)
	}
	out.Engine, out.Interval, out.Duration, out.Bucket = p.meta.Engine, p.meta.Interval, p.meta.Duration, p.meta.Bucket
	out.Lost = p.meta.Lost
	out.findBucket()
	return out, out.Validate()
}

type textParser struct {
	header  int // headers read
	meta    Profile
	builder *Builder
}

func (p *textParser) line(line string) error {
	if p.header == len(headers) {
		if text, ok := strings.CutPrefix(line, headerBucket); ok {
			var err error
			p.meta.Bucket, err = duration(strings.TrimSpace(text))
			return err
		}
		return p.sample(line)
	}
	value, ok := strings.CutPrefix(line, headers[p.header]+":")
	if !ok {
		return fmt.Errorf("%.60q, want %q", line, headers[p.header]+": ...")
	}
	value = strings.TrimSpace(value)
	var err error
	switch headers[p.header] {
	case "event":
		p.meta.Event = Event(value)
		p.builder = NewBuilder(p.meta.Event)
	case "engine":
		p.meta.Engine, err = unescape(value)
	case "interval":
		p.meta.Interval, err = number(value)
	case "duration":
		p.meta.Duration, err = duration(value)
	case "lost":
		p.meta.Lost, err = number(value)
	}
	p.header++
	return err
}

func number(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%.40q is no number from 0 to %d", s, int64(1<<63-1))
	}
	return n, nil
}

func duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%.40q is no duration such as 1.5s", s)
	}
	return d, nil
}

func (p *textParser) sample(line string) error {
	rest, value, ok := cutLast(line, " ")
	stack, count, ok2 := cutLast(rest, " ")
	if !ok || !ok2 {
		return fmt.Errorf("%.60q does not end in a count and a value", line)
	}
	s := Sample{}
	var err error
	if s.Count, err = number(count); err != nil {
		return err
	}
	if s.Value, err = number(value); err != nil {
		return err
	}
	parts := split(strings.TrimRight(stack, " "), ';')
	if err := p.context(&s, parts[0]); err != nil {
		return err
	}
	for i := len(parts) - 1; i > 0; i-- {
		f, err := parseFrame(parts[i])
		if err != nil {
			return err
		}
		s.Stack = append(s.Stack, p.builder.Frame(f))
	}
	p.builder.Add(s)
	return nil
}

// context reads the bracket at the root of a line.
func (p *textParser) context(s *Sample, text string) error {
	if len(text) < 2 || text[0] != '[' || text[len(text)-1] != ']' {
		return fmt.Errorf("%.60q is no [thread tid=N|@time|state|class NAME]", text)
	}
	parts := split(text[1:len(text)-1], '|')
	var err error
	if s.Thread, err = p.thread(parts[0]); err != nil {
		return err
	}
	for _, part := range parts[1:] {
		class, isClass := strings.CutPrefix(part, "class ")
		switch {
		case isClass:
			s.Class, err = name(class)
		case strings.HasPrefix(part, "@"):
			s.At, err = duration(part[1:])
		case part == stateNames[Running]:
			s.State = Running
		case part == stateNames[Sleeping]:
			s.State = Sleeping
		default:
			err = fmt.Errorf("%.60q is no @time, state or class", part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *textParser) thread(text string) (int, error) {
	if text == "" {
		return -1, nil
	}
	head, id, ok := cutLast(text, " tid=")
	if !ok {
		return 0, fmt.Errorf("thread %.60q has no tid= (0 if it is not known)", text)
	}
	n, err := strconv.ParseUint(id, 10, 31) // pid_t
	if err != nil {
		return 0, fmt.Errorf("thread %.60q: its tid is no number", text)
	}
	threadName, err := name(head)
	if err != nil {
		return 0, err
	}
	t := Thread{ID: int(n), Name: threadName}
	if t == (Thread{}) {
		return 0, fmt.Errorf("thread %.60q has neither name nor tid: an unknown one is []", text)
	}
	return p.builder.Thread(t), nil
}

func parseFrame(text string) (Frame, error) {
	body, mark, ok := cutLast(strings.TrimSuffix(text, "]"), "_[")
	f := Frame{}
	for kind, m := range marks {
		if m == mark {
			f.Kind, ok = Kind(kind), ok && strings.HasSuffix(text, "]")
			mark = ""
		}
	}
	if !ok || mark != "" {
		return Frame{}, fmt.Errorf("frame %.80q does not end in its kind: _[0], _[j], _[i], _[n], _[k] or _[?]", text)
	}
	if at := lineEnd.FindStringIndex(body); at != nil {
		n, err := strconv.ParseUint(body[at[0]+1:], 10, 31)
		if err != nil {
			return Frame{}, fmt.Errorf("frame %.80q has a line number that is too large", text)
		}
		body, f.Line = body[:at[0]], int(n)
	}
	parts := split(body, '!')
	if len(parts) > 2 {
		return Frame{}, fmt.Errorf("frame %.80q has more than one ! in it", text)
	}
	var err error
	if f.Name, err = name(parts[len(parts)-1]); err != nil {
		return Frame{}, err
	}
	if len(parts) == 2 {
		if f.Module, err = name(parts[0]); err != nil {
			return Frame{}, err
		}
	}
	if f.Name == "" {
		return Frame{}, fmt.Errorf("frame %.80q has no name", text)
	}
	return f, nil
}

// name removes the escapes from a name. It refuses a name that a profile cannot hold, rather than change it.
func name(text string) (string, error) {
	s, err := unescape(text)
	if err == nil && !valid(s) {
		err = fmt.Errorf("%.60q is longer than %d bytes or not UTF-8", text, maxName)
	}
	return s, err
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
