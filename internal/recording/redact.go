package recording

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

const redacted = "***"

// maxArg bounds one kept argument in bytes: a class path can be 100 KiB long, and only its start is of use to a
// reader.
const maxArg = 200

// maxLooked bounds the part of an argument that is searched for secrets, in bytes. The kernel allows 128 KiB
// (MAX_ARG_STRLEN), which would take tens of milliseconds each, and nothing behind the kept part is stored.
const maxLooked = 4096

// maxArgs bounds the arguments kept; the first ones name the program.
const maxArgs = 40

// secretWords are parts of a name that keep its value out of a recording.
const secretWords = `passw|passphrase|passcode|passkey|passin|passout|pass(?:[^a-z]|$)|pwd|secret|token|api[-_.]?key|access[-_.]?key|` +
	`private[-_.]?key|licen[sc]e[-_.]?key|credential|auth|bearer|signature|session|cookie|dsn|conn(?:ection)?[-_.]?str|salt`

// shortWords mark a name as a secret's only if they are its last, whole word: --key-buffer-size and --keyspace hold
// no secret.
const shortWords = `(?:key|pin|pw|[ht]?otp|creds?|sas|sig|jwt|licen[sc]e)`

var (
	// secretName matches an option or variable whose value is a secret. A property of Java has -D before its first
	// word.
	secretName = regexp.MustCompile(`(?i)` + secretWords + `|(?:^-D|^|[^a-z0-9])` + shortWords +
		`$|(?-i:[a-z](?:Key|Pin|Pw|Otp|Creds))$`)
	// secretText matches, inside a longer word, a secret's name and what stands between it and the value: "password="
	// in a DSN, "Authorization: " in a header, "--token " in a shell's command line. A name does not extend past a
	// slash or a dot, so a class path with auth.jar in it is kept.
	secretText = regexp.MustCompile(`(?i)(?:` + secretWords + `)[^=:\s&?;,/.]{0,40}(?:\s*[=:]\s*|\s+)|` +
		`(?:[^a-z0-9]D|^|[^a-z0-9])` + shortWords + `\s*[=:]\s*|(?:^|\s)--?(?:[a-z0-9]+[-_.])*` + shortWords + `\s+`)
	// urlUserInfo matches the user:password@ of a URL. A password may hold @ and /, so it reaches to the last @ of
	// the word.
	urlUserInfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)\S*@`)
	// oracleUser matches the user/password@ of jdbc:oracle:thin:user/password@host.
	oracleUser = regexp.MustCompile(`(?i)(jdbc:oracle:[a-z]+:)[^@\s]*@`)
	// knownKeys match tokens by their form: JSON web tokens (RFC 7519: base64 of `{"`), AWS key ids, tokens of
	// GitHub, GitLab, Slack and OpenAI, and private keys in PEM (RFC 7468) to the end of the word.
	knownKeys = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*|\bA(?:KIA|SIA)[A-Z0-9]{16}\b|` +
		`\bgh[oprsu]_[A-Za-z0-9]{8,}|\bgithub_pat_\w{8,}|\bglpat-[\w-]{8,}|\bxox[a-z]-[\w-]{8,}|\bsk-[\w-]{12,}|` +
		`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*`)
	// longBlob matches what may be a key by itself: 32 or more characters of base64 or hexadecimal.
	longBlob = regexp.MustCompile(`[A-Za-z0-9+_-]{32,}={0,2}`)
	// slashBlob matches a whole word or value that may be base64 with slashes, such as an AWS secret key.
	slashBlob = regexp.MustCompile(`(^|=)[A-Za-z0-9+][A-Za-z0-9+/]{31,}={0,2}$`)
)

// Redact removes secrets from a command line, so that they never enter a recording: values of options and variables
// named like secrets (--password x, -Dpassword=x, TOKEN=x), the short password options of well-known clients (mysql
// -px), user info of URLs, authorisation headers, and long key-like words. It errs on the side of too much, keeps at
// most 40 arguments of 200 bytes, and returns valid UTF-8. Redacting twice changes nothing.
func Redact(args []string) []string {
	if args == nil {
		return nil
	}
	joined, separate := shortOptions(args)
	out := make([]string, 0, min(len(args), maxArgs+1))
	hideNext := false
	for i, a := range args {
		if i == maxArgs {
			return append(out, "…")
		}
		a = strings.ToValidUTF8(a[:min(len(a), maxLooked)], "\uFFFD")
		if hideNext && isValue(a) {
			out = append(out, redacted)
			hideNext = false
			continue
		}
		out = append(out, redactArg(a, joined))
		hideNext = strings.HasPrefix(a, "-") && !strings.ContainsAny(a, "=:") &&
			(secretName.MatchString(a) || slices.Contains(separate, a))
	}
	return out
}

// isValue tells an option's value from the next option. Random secrets begin with a dash too: only a second dash, or
// a single letter behind the dash, makes an option.
func isValue(a string) bool {
	return !strings.HasPrefix(a, "--") && (!strings.HasPrefix(a, "-") || len(a) > 2)
}

// shortOptions returns the one-letter options that take a secret, in the same word (mysql -px) and in the next, for
// the programs named in the command line. -p, -u and -a hide the next word of any program.
func shortOptions(args []string) (joined, separate []string) {
	separate = []string{"-p", "-u", "-a"}
	for _, a := range args[:min(len(args), maxArgs)] {
		name := path.Base(a)
		switch {
		case strings.HasPrefix(name, "mysql"), strings.HasPrefix(name, "mariadb"), strings.HasPrefix(name, "mongo"),
			name == "sshpass", name == "7z", name == "7za", name == "zip", name == "unzip":
			joined = append(joined, "-p", "-P")
		case name == "curl", name == "wget":
			joined = append(joined, "-u", "-U", "-H")
		case strings.HasPrefix(name, "ldap"):
			joined, separate = append(joined, "-w"), append(separate, "-w")
		case name == "smbclient":
			joined, separate = append(joined, "-U"), append(separate, "-U")
		}
	}
	return joined, separate
}

func redactArg(a string, joined []string) string {
	for _, o := range joined {
		if strings.HasPrefix(a, o) && len(a) > len(o) {
			return o + redacted
		}
	}
	for _, sep := range []string{"=", ":"} {
		name, _, ok := strings.Cut(a, sep)
		if ok && (sep == "=" || strings.HasPrefix(a, "-")) && secretName.MatchString(name) {
			return shorten(redactText(name) + sep + redacted)
		}
	}
	return shorten(redactText(a))
}

func redactText(a string) string {
	if secretName.MatchString(a) && strings.ContainsAny(a, "?&;") { // a URL or DSN with a secret in its query
		a = a[:strings.IndexAny(a, "?&;")+1] + redacted
	}
	a = urlUserInfo.ReplaceAllString(a, "${1}"+redacted+"@")
	a = oracleUser.ReplaceAllString(a, "${1}"+redacted+"@")
	if at := secretText.FindStringIndex(a); at != nil && at[1] < len(a) {
		a = a[:at[1]] + redacted
	}
	a = knownKeys.ReplaceAllString(a, redacted)
	if at := slashBlob.FindStringSubmatchIndex(a); at != nil && mixed(a[at[3]:]) {
		return a[:at[3]] + redacted
	}
	// paths, class names, host names and JVM flags are long and harmless
	if strings.ContainsAny(a, "/.") || strings.HasPrefix(a, "-XX:") {
		return a
	}
	return longBlob.ReplaceAllStringFunc(a, func(blob string) string {
		if strings.ContainsAny(blob, "0123456789") { // a long option name has no digit, a random key always has
			return redacted
		}
		return blob
	})
}

// mixed tells random base64 from a relative path: base64 has digits and letters of both cases.
func mixed(s string) bool {
	return strings.ContainsAny(s, "0123456789") && strings.ToLower(s) != s && strings.ToUpper(s) != s
}

func shorten(a string) string {
	if len(a) <= maxArg {
		return a
	}
	return strings.ToValidUTF8(a[:maxArg], "") + "…"
}
