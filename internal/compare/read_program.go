package compare

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Different says why two recordings are of different programs; empty if they may be of one. Numbers in names differ
// from one run to the next, and versions in file names from one version to the next.
func Different(before, after *recording.Recording) string {
	x, y := before.Meta.Target, after.Meta.Target
	if keyOf(before.Meta.Redacted) != keyOf(after.Meta.Redacted) {
		return "" // pseudonyms under two keys cannot be compared
	}
	switch p, q := programOf(x), programOf(y); {
	case x.Kind != y.Kind:
		return fmt.Sprintf("one recording is of a %s, the other of a %s", x.Kind, y.Kind)
	case changing.ReplaceAllString(x.Name, "#") != changing.ReplaceAllString(y.Name, "#"):
		return fmt.Sprintf("the recordings are of different programs, %s and %s", x.Name, y.Name)
	case p != q && p != "" && q != "":
		return fmt.Sprintf("the recordings are of different programs, %s and %s", p, q)
	}
	return ""
}

// changing are the parts of a name that differ from one run of the same program to the next: process ids, numbers of
// containers and of runs, addresses of locks.
var changing = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]{12,}|\d+`)

// version matches the version in a file name.
var version = regexp.MustCompile(`-\d.*`)

// keyOf returns the key of a recording's pseudonyms; empty without any.
func keyOf(r *recording.Redaction) string {
	if r == nil {
		return ""
	}
	return r.Key
}

// jvmValues are the java options that take the next argument as their value (java(1)).
var jvmValues = []string{
	"-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules", "--add-opens",
	"--add-exports", "--add-reads",
}

// programOf returns the main class or the jar that a JVM runs, because all JVMs are called java; empty if the target
// is not a JVM, or its command line does not show it.
func programOf(t recording.Target) string {
	if t.Runtime != "jvm" || len(t.Cmdline) == 0 {
		return ""
	}
	args := t.Cmdline[1:]
	for len(args) > 0 {
		switch arg := args[0]; {
		case arg == "-jar" && len(args) > 1:
			return version.ReplaceAllString(strings.TrimSuffix(path.Base(args[1]), ".jar"), "")
		case slices.Contains(jvmValues, arg) && len(args) > 1:
			args = args[2:]
		case strings.HasPrefix(arg, "-"), strings.HasPrefix(arg, "@"):
			args = args[1:]
		default:
			return arg
		}
	}
	return ""
}
