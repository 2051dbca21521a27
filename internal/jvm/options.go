package jvm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// Flag is the value of a -XX flag and where it was given.
type Flag struct {
	Value  string // true or false for -XX:+F and -XX:-F, else what follows the equals sign
	Source string // command line, JAVA_TOOL_OPTIONS, @file, ...
}

// Options is what the JVM was told at its start, as far as that can be read from outside: the command line, the
// argument files it names, and three environment variables. It lacks what a program itself passes to
// JNI_CreateJavaVM, and what the JVM chose; VM.flags over [VM.Jcmd] has both.
type Options struct {
	// by name, as "UseSerialGC"; the last one given wins, as in HotSpot. -Xrs is ReduceSignalUsage
	Flags map[string]Flag
	// options of the JDWP agent, such as "transport=dt_socket,server=y,suspend=y"; "" without it
	Debugger string
	Notes    []string // which of the sources could not be read
}

func (o *Options) lookup(name string) (Flag, bool) {
	f, ok := o.Flags[name]
	return f, ok
}

// isTrue reports whether a flag was given and is on.
func (o *Options) isTrue(name string) bool { return o.Flags[name].Value == "true" }

// Bounds on what is read of a target's texts. ARG_MAX is 2 MB by default (include/uapi/linux/limits.h, fs/exec.c);
// argument files are a few lines.
const (
	maxCmdline = 2 << 20
	maxArgFile = 1 << 20
)

// readOptions fills in Options in the order in which HotSpot applies them (Arguments::parse in
// src/hotspot/share/runtime/arguments.cpp): JAVA_TOOL_OPTIONS, command line, _JAVA_OPTIONS.
func (vm *VM) readOptions() {
	o := &vm.Options
	o.Flags = map[string]Flag{}
	env := vm.environment()
	o.apply(splitOptions(env["JAVA_TOOL_OPTIONS"]), "JAVA_TOOL_OPTIONS")
	if err := vm.applyCommandLine(env["JDK_JAVA_OPTIONS"]); err != nil {
		o.Notes = append(o.Notes, err.Error())
	}
	o.apply(splitOptions(env["_JAVA_OPTIONS"]), "_JAVA_OPTIONS")
}

// environment returns the three variables that HotSpot and its launcher read, as they were when the program started.
func (vm *VM) environment() map[string]string {
	text, cut, err := door.Read(vm.proc("environ"), door.MaxArguments)
	if cut {
		err = fmt.Errorf("longer than %d bytes", door.MaxArguments)
	}
	if err != nil {
		vm.Options.Notes = append(vm.Options.Notes, "environment: "+err.Error())
		return nil
	}
	env := map[string]string{}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS":
			env[name] = value
		}
	}
	return env
}

func (vm *VM) applyCommandLine(launcherOptions string) error {
	text, cut, err := door.Read(vm.proc("cmdline"), maxCmdline)
	if err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	if cut {
		return fmt.Errorf("command line: longer than %d bytes", maxCmdline)
	}
	argv := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	exe, _ := os.Readlink(vm.proc("exe"))
	if baseName(exe) != "java" {
		// A custom launcher: it is not known which arguments it hands on, but what looks like a flag is one.
		vm.Options.apply(argv[1:], "command line")
		return nil
	}
	read := func(file string) (string, error) { return vm.readTargetFile(file, maxArgFile) }
	given, end, err := expandArguments(splitOptions(launcherOptions), read)
	vm.Options.apply(given, "JDK_JAVA_OPTIONS")
	if err != nil || end {
		return err
	}
	given, _, err = expandArguments(argv[1:], read)
	vm.Options.apply(given, "command line")
	return err
}

// apply takes options in order.
func (o *Options) apply(args []string, source string) {
	for _, arg := range args {
		if arg == "-Xrs" {
			o.Flags["ReduceSignalUsage"] = Flag{"true", source}
		}
		for _, prefix := range []string{"-agentlib:jdwp=", "-Xrunjdwp:"} {
			if options, ok := strings.CutPrefix(arg, prefix); ok {
				o.Debugger = options
			}
		}
		if name, value, ok := parseFlag(arg); ok {
			o.Flags[name] = Flag{value, source}
		}
	}
}

// parseFlag splits -XX:+Name, -XX:-Name and -XX:Name=value.
func parseFlag(arg string) (name, value string, ok bool) {
	rest, ok := strings.CutPrefix(arg, "-XX:")
	if !ok || rest == "" {
		return "", "", false
	}
	switch rest[0] {
	case '+':
		return rest[1:], "true", len(rest) > 1
	case '-':
		return rest[1:], "false", len(rest) > 1
	}
	name, value, ok = strings.Cut(rest, "=")
	return name, value, ok && name != ""
}

// splitOptions splits an environment variable as HotSpot does (Arguments::parse_options_buffer): at white space
// outside of quotes, which are removed; there is no escape.
func splitOptions(text string) []string {
	var args []string
	var word strings.Builder
	inWord, quote := false, byte(0)
	for i := range len(text) {
		c := text[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inWord = c, true
		case quote == 0 && isSpace(c):
			if inWord {
				args = append(args, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		args = append(args, word.String())
	}
	return args
}

func isSpace(c byte) bool { return strings.IndexByte(" \t\n\r\f\v", c) >= 0 }

// withValue are the launcher's options whose value is the next argument (isWhiteSpaceOption in
// src/java.base/share/native/libjli/java.c).
var withValue = []string{
	"-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules",
	"--limit-modules", "--add-exports", "--add-opens", "--add-reads", "--patch-module", "--enable-native-access",
	"--source", "-d", "--describe-module",
}

// maxArguments bounds what argument files expand to; only memory bounds the launcher itself.
const maxArguments = 100_000

// expandArguments returns the launcher's options up to the main class, with the contents of argument files in place
// of @file. What follows the main class is the program's own. end says that the main class was found. If an argument
// file cannot be read, it returns the options so far. An argument file does not name others (args.c in libjli).
func expandArguments(argv []string, read func(string) (string, error)) (options []string, end bool, err error) {
	var l launcher
	for _, arg := range argv {
		if arg == "--disable-@files" {
			l.literal = true
			continue
		}
		args := []string{arg}
		if file, ok := l.argFile(arg); ok {
			text, err := read(file)
			if err != nil {
				return l.options, false, fmt.Errorf("argument file %s: %w", file, err)
			}
			args = splitArgFile(text)
		}
		if slices.ContainsFunc(args, l.take) {
			return l.options, true, nil
		}
	}
	return l.options, false, nil
}

// launcher is the state of the java command while it goes through its arguments.
type launcher struct {
	options []string
	value   bool // the next argument belongs to the option before it
	literal bool // @file means nothing
}

// argFile reports whether the argument names an argument file; @@ is a literal @.
func (l *launcher) argFile(arg string) (string, bool) {
	file, ok := strings.CutPrefix(arg, "@")
	return file, ok && !l.literal && !l.value && file != "" && file[0] != '@'
}

// take takes one argument and reports whether the options are over.
func (l *launcher) take(arg string) bool {
	switch {
	case l.value:
		l.value = false
		return false
	case arg == "-m" || arg == "--module" || !strings.HasPrefix(arg, "-"):
		return true
	}
	l.value = slices.Contains(withValue, arg)
	l.options = append(l.options, arg)
	return len(l.options) > maxArguments
}

// splitArgFile splits an argument file as the launcher does (nextToken in src/java.base/share/native/libjli/args.c):
// at white space outside of quotes; # begins a comment outside of quotes; a backslash escapes within quotes, and at
// the end of a line joins it with the next without its leading white space.
func splitArgFile(text string) []string { //nolint:cyclop // one state machine, as the original
	var args []string
	var word strings.Builder
	inWord, quote := false, byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0 && c == '\\' && i+1 < len(text):
			i++
			i = unescape(text, i, &word)
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inWord = c, true
		case quote == 0 && (c == '#' || isSpace(c)):
			if inWord {
				args = append(args, word.String())
			}
			word.Reset()
			inWord = false
			for c == '#' && i+1 < len(text) && text[i+1] != '\n' && text[i+1] != '\r' {
				i++
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		args = append(args, word.String())
	}
	return args
}

// unescape writes what the character at i means after a backslash, and returns the index of the last one it used.
func unescape(text string, i int, word *strings.Builder) int {
	switch text[i] {
	case 'n':
		word.WriteByte('\n')
	case 'r':
		word.WriteByte('\r')
	case 't':
		word.WriteByte('\t')
	case 'f':
		word.WriteByte('\f')
	case '\n', '\r':
		for i+1 < len(text) && isSpace(text[i+1]) {
			i++
		}
	default:
		word.WriteByte(text[i])
	}
	return i
}

// maxRelease bounds the file "release" of a JDK, which lists its modules on one line.
const maxRelease = 64 << 10

// releaseVersion reads the file that every JDK since 7 has in its home (JAVA_VERSION="17.0.9"). After an update in
// place it would describe another version than the one that runs.
func (vm *VM) releaseVersion() string {
	if strings.HasSuffix(vm.Library, deletedMark) {
		vm.Notes = append(vm.Notes, "version: "+vm.Library+" was replaced while the JVM runs")
		return ""
	}
	// <home>/lib/server/libjvm.so, before JDK 9 <home>/jre/lib/amd64/server/libjvm.so
	dir := path.Dir(path.Dir(vm.Library))
	for range 3 {
		dir = path.Dir(dir)
		text, err := vm.readTargetFile(dir+"/release", maxRelease)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			vm.Notes = append(vm.Notes, "version: "+err.Error())
			return ""
		}
		return parseRelease(text)
	}
	vm.Notes = append(vm.Notes, "version: no file named release above "+vm.Library)
	return ""
}

func parseRelease(text string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "JAVA_VERSION="); ok {
			return strings.Trim(value, "\"\r\n ")
		}
	}
	return ""
}

// majorOf returns 8 for 1.8.0_392, 17 for 17.0.9+9, and 0 for what is not a version.
func majorOf(version string) int {
	version = strings.TrimPrefix(version, "1.")
	n := 0
	for _, c := range []byte(version) {
		if c < '0' || c > '9' || n > 1000 {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}
