package recording

import (
	"regexp"
	"strings"
)

const redacted = "***"

// maxArg bounds one kept argument: a class path can be 100 KiB long and tells a reader nothing past its start.
const maxArg = 200

// maxArgs bounds the arguments kept; the first ones name the program.
const maxArgs = 40

var (
	// secretName matches an option or variable whose value is kept out of a recording.
	secretName = regexp.MustCompile(`(?i)(passw|passphrase|pwd|secret|token|api[-_.]?key|access[-_.]?key|private[-_.]?key|credential|auth|bearer|signature|session|cookie|dsn|salt|\bkey$|\bpin$)`)
	// urlUserInfo matches the user:password@ of a URL.
	urlUserInfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/@\s]+@`)
	// longBlob matches what looks like a key or token by itself: 32 and more characters of base64 or hex without a separator of paths.
	longBlob = regexp.MustCompile(`\b[A-Za-z0-9+_=-]{32,}\b`)
	// header matches an HTTP header given as one argument, such as curl -H "Authorization: Bearer x".
	header = regexp.MustCompile(`(?i)^(authorization|proxy-authorization|cookie|x-[a-z-]*(?:key|token|auth)[a-z-]*)\s*:.*`)
)

// Redact takes secrets out of a command line, so that they never enter a recording: values of options and variables named like
// secrets (--password x, -Dpassword=x, TOKEN=x), user info of URLs, authorisation headers, and long key-like words. It errs on the side of too much.
func Redact(args []string) []string {
	out := make([]string, 0, min(len(args), maxArgs))
	hideNext := false
	for i, a := range args {
		if i == maxArgs {
			return append(out, "…")
		}
		isOption := strings.HasPrefix(a, "-")
		if hideNext && !isOption {
			out = append(out, redacted)
			hideNext = false
			continue
		}
		out = append(out, redactArg(a))
		hideNext = isOption && !strings.ContainsAny(a, "=:") && (secretName.MatchString(a) || a == "-p" || a == "-u" || a == "-a")
	}
	return out
}

func redactArg(a string) string {
	if header.MatchString(a) {
		name, _, _ := strings.Cut(a, ":")
		return name + ": " + redacted
	}
	if name, _, ok := strings.Cut(a, "="); ok && secretName.MatchString(name) {
		return name + "=" + redacted
	}
	if secretName.MatchString(a) && strings.ContainsAny(a, "?&;") { // a URL or DSN with a secret in its query
		a = a[:strings.IndexAny(a, "?&;")+1] + redacted
	}
	a = urlUserInfo.ReplaceAllString(a, "${1}"+redacted+"@")
	if !strings.ContainsAny(a, "/.") { // paths, class names and host names are long and harmless
		a = longBlob.ReplaceAllString(a, redacted)
	}
	if len(a) > maxArg {
		a = strings.ToValidUTF8(a[:maxArg], "") + "…"
	}
	return a
}
