package redact

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

var (
	address4 = regexp.MustCompile(`\d{1,3}(?:\.\d{1,3}){3}`)
	// cutAddress matches the rest of an address after the number at a name's end was cut off.
	cutAddress = regexp.MustCompile(`\d{1,3}(?:\.\d{1,3}){1,2}\.?$`)
	address6   = regexp.MustCompile(`[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,8}`)
	pathInText = regexp.MustCompile(`(^|file://|[\s"'=:,(\[@])((?:/[^/\s"'=:,;()\[\]]+)+)`)
	word       = regexp.MustCompile(`[\w][\w.@+-]*`)
	// hostName is a name in a domain: lower case, with one of the usual domains at its end.
	hostName = regexp.MustCompile(
		`^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.(?:com|org|net|edu|gov|io|dev|cloud|local|internal|lan|corp|intra|intranet|` +
			`home|svc|consul|eu|de|at|ch|uk|fr|nl|se|fi|pl|es|us|ca|au|jp|cn|br|ru|info|biz)$`)
	// of Java: a reversed domain
	packageName = regexp.MustCompile(`^(?:com|org|net|io|de|eu|dev|edu|gov|java|javax|jdk|sun)\.`)
)

// Text redacts a sentence: it replaces addresses, paths, names of hosts in a domain, and names that were seen before.
func (n *Names) Text(s string) string {
	return word.ReplaceAllStringFunc(n.addresses(s), func(w string) string {
		bare := strings.TrimRight(w, ".-")
		if known, ok := n.mentioned(bare); ok {
			return known + w[len(bare):]
		}
		return n.token(w)
	})
}

// Name redacts a name that a program chose for itself or a thread. It replaces only addresses, paths and hosts in a
// domain: a program may have the same name as its user.
func (n *Names) Name(s string) string {
	if !strings.ContainsAny(s, ".:/") {
		return s
	}
	return word.ReplaceAllStringFunc(n.addresses(s), n.token)
}

func (n *Names) addresses(s string) string {
	s = n.Code(s)
	return replace(s, address6, func(found string) string {
		// "::add" is C++
		if a, err := netip.ParseAddr(found); err == nil && strings.ContainsAny(found, "0123456789") {
			return n.Addr(a).String()
		}
		return found
	})
}

// Code redacts the name of a function, file or lock. It replaces only addresses and paths, as a function's name may
// look like a host's.
func (n *Names) Code(s string) string {
	if !strings.ContainsAny(s, "./") {
		return s
	}
	s = pathInText.ReplaceAllStringFunc(s, func(found string) string {
		at := strings.Index(strings.TrimPrefix(found, "file://"), "/") + len(found) -
			len(strings.TrimPrefix(found, "file://"))
		return found[:at] + n.Path(found[at:])
	})
	return replace(s, address4, func(found string) string {
		if a, err := netip.ParseAddr(found); err == nil {
			return n.Addr(a).String()
		}
		return found
	})
}

// Object redacts what a thread waits for: an address with a port as [Names.Endpoint] does, and a file, a lock or a
// program as [Names.Code] does.
func (n *Names) Object(s string) string {
	if _, err := netip.ParseAddrPort(s); err == nil {
		return n.Endpoint(s)
	}
	return n.Code(s)
}

// Wait redacts a kind of wait, a space, and its object: the class of a sample of waiting threads.
func (n *Names) Wait(s string) string {
	if kind, object, ok := strings.Cut(s, " "); ok {
		return kind + " " + n.Object(object)
	}
	return n.Code(s)
}

// Pool redacts the name of a pool of threads: a name without the number at its end, which may have been an address's.
func (n *Names) Pool(s string) string {
	return cutAddress.ReplaceAllStringFunc(n.Name(s), func(cut string) string { return n.Word("net", cut) })
}

// replace replaces matches that are not part of a longer number or name.
func replace(s string, what *regexp.Regexp, by func(string) string) string {
	var b strings.Builder
	last := 0
	for _, at := range what.FindAllStringIndex(s, -1) {
		if at[0] > 0 && partOf(s[at[0]-1]) || at[1] < len(s) && partOf(s[at[1]]) &&
			(s[at[1]] != '.' || at[1]+1 < len(s) && partOf(s[at[1]+1])) {
			continue
		}
		b.WriteString(s[last:at[0]] + by(s[at[0]:at[1]]))
		last = at[1]
	}
	return b.String() + s[last:]
}

// partOf reports whether a byte before or behind an address makes it a part of another word.
func partOf(c byte) bool {
	return c == '.' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// token redacts a word of a text.
func (n *Names) token(w string) string {
	bare := strings.TrimRight(w, ".-")
	name := bare[strings.LastIndexByte(bare, '@')+1:] // alice@host
	if !hostName.MatchString(name) || packageName.MatchString(name) {
		return w
	}
	user := ""
	if len(name) < len(bare) {
		user = n.User(bare[:len(bare)-len(name)-1]) + "@"
	}
	return user + n.host(name) + w[len(bare):]
}

// plainValue is a number with or without a unit, a truth value, or what was redacted before.
var plainValue = regexp.MustCompile(
	`^(?:[+-]?\d+(?:\.\d+)?(?:[kKmMgGtT]i?[bB]?|%|[munµ]?s|m|h|d)?|true|false|on|off|yes|no|\*\*\*|…)?$`)

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

var (
	mainClass  = regexp.MustCompile(`^(?:[\w.]+/)?(?:[A-Za-z_$][\w$]*\.)*[A-Z][\w$]*$`)
	optionName = regexp.MustCompile(`^--?[A-Za-z][\w.:+-]*$`)
	// joined are options with a long name behind one dash. In others that begin the same way, what follows the letter
	// may be a value.
	joined = regexp.MustCompile(
		`^-(?:D|X|ea|da|jar|cp|classpath|server|client|version|javaagent|agentlib|agentpath|verbose)`)
	letter   = regexp.MustCompile(`^-[A-Za-z].`)
	variable = regexp.MustCompile(`^[A-Za-z_][\w.-]{0,40}$`)
	schemes  = regexp.MustCompile(`^[a-z][a-z0-9+:-]{0,20}$`)
)

// Args redacts a command line: the program, the names of options, numbers and a main class of Java stay. Every other
// value gets a pseudonym, as it may name anything.
func (n *Names) Args(args []string) []string {
	if args == nil {
		return nil
	}
	out := slices.Clone(args)
	class := len(args) > 0 && strings.HasSuffix(args[0], "java") // one is to come
	for i, a := range args {
		switch {
		case i == 0:
			out[i] = n.Program(a)
		case strings.HasPrefix(a, "-"):
			out[i] = n.option(a)
			class = class && a != "-jar"
		case class && mainClass.MatchString(a):
			class = false
		default:
			out[i] = n.value(a)
		}
	}
	return out
}

func (n *Names) option(a string) string {
	from := 0
	if strings.HasPrefix(a, "-XX:") {
		from = len("-XX:")
	}
	at := strings.IndexAny(a[from:], "=:")
	if at >= 0 && optionName.MatchString(a[:from+at]) {
		name := a[:from+at+1]
		if strings.HasPrefix(name, "-agent") || name == "-javaagent:" {
			file, options, _ := strings.Cut(a[len(name):], "=")
			return strings.TrimSuffix(name+n.Program(file)+"="+n.value(options), "=")
		}
		return name + n.value(a[len(name):])
	}
	glued := !strings.HasPrefix(a, "--") && letter.MatchString(a) && !joined.MatchString(a)
	switch {
	case plainValue.MatchString(a):
		return a
	case glued:
		return a[:2] + n.value(a[2:])
	case optionName.MatchString(a):
		return a
	}
	return n.value(a)
}

// value redacts what may be an address, a URL, a path or a list of them, or else anything.
func (n *Names) value(s string) string {
	if name, v, ok := strings.Cut(s, "="); ok && variable.MatchString(name) {
		return name + "=" + n.value(v)
	}
	scheme, rest, isURL := strings.Cut(s, "://")
	_, addrErr := netip.ParseAddr(strings.Trim(s, "[]"))
	_, portErr := netip.ParseAddrPort(s)
	switch {
	case plainValue.MatchString(s):
		return s
	case isURL && schemes.MatchString(scheme):
		host, file, _ := strings.Cut(rest, "/")
		return scheme + "://" + n.Endpoint(host) + strings.TrimSuffix("/"+n.Path(file), "/")
	case addrErr == nil, portErr == nil:
		return n.Endpoint(s)
	case strings.HasPrefix(s, "/"):
		files := strings.Split(s, ":")
		for i := range files {
			files[i] = n.Path(files[i])
		}
		return strings.Join(files, ":")
	case strings.HasPrefix(s, ":") && isNumber(s[1:]):
		return s
	case hostName.MatchString(s) && !packageName.MatchString(s):
		return n.host(s)
	}
	if host, port, ok := strings.Cut(s, ":"); ok && isNumber(port) {
		return n.host(host) + ":" + port
	}
	return n.Word("arg", s)
}
