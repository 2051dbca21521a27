package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// run runs one command line in this process.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(t.Context(), "v1.2.3", args, command.Streams{Out: &out, Err: &errs})
	return code, out.String(), errs.String()
}

// wantUsage expects exit code 2, one line that holds want, and no standard output.
func wantUsage(t *testing.T, want string, args ...string) {
	t.Helper()
	code, stdout, stderr := run(t, args...)
	if code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	if stdout != "" {
		t.Errorf("the standard output is the report's, got %q", stdout)
	}
	if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "perfdoctor: ") ||
		!strings.Contains(stderr, want) {
		t.Errorf("got %q, want one line with %q", stderr, want)
	}
}

// TestUsageErrors has every wrong call. The message says what would be right.
func TestUsageErrors(t *testing.T) {
	const quota = "testdata/cures/quota-closed-loop-as-is.txtar"
	const cliff = "testdata/cures/port-cliff-as-is.txtar"
	dir := t.TempDir()
	c := checks.Suite()[0]
	for _, tt := range []struct {
		args string // split at spaces; '' is an empty argument
		want string
	}{
		{"diagnose --pid 0", "--pid 0 is not a process id: give a positive number"},
		{"diagnose --pid -1", "--pid -1 is not a process id: give a positive number"},
		{"diagnose --pid abc", `--pid "abc" is not a whole number`},
		{"diagnose --pid 99999999999999999999", `--pid "99999999999999999999" is not a whole number`},
		{"diagnose --pid 999999999", "no process with pid 999999999"},
		{"diagnose --pid", "flag needs an argument: --pid"},
		{"diagnose --comm no-such-command", `no process has the command name "no-such-command"`},
		{"diagnose --comm ''", "--comm is empty"},
		{"diagnose --cgroup /no/such/group", "no cgroup /no/such/group"},
		{"diagnose --cgroup ''", "--cgroup is empty"},
		{"diagnose --jvm-events gpu", `unknown event "gpu": use cpu, wall, alloc and lock`},
		{"diagnose --jvm-events ''", "--jvm-events is empty"},
		{"diagnose --jvm-interval 10us", "--jvm-interval 10µs: give a time between 1ms and 1s"},
		{"diagnose --async-profiler ''", "--async-profiler is empty"},
		{"diagnose --async-profiler /no/such.so", "--async-profiler /no/such.so: no such file"},
		{"diagnose --no-jvm --jvm-events cpu", "--no-jvm takes no profile"},
		{"diagnose --from x.zip --no-jvm", "--from reads a recording: what was profiled of a JVM is in it"},
		{"diagnose --container my-app", "no running container of Docker's is named \"my-app\", and it is no id of " +
			"one: give 4 to 64 hexadecimal digits"},
		{"diagnose --container 0123456789abcdef", "no process is in a container whose id begins with 0123456789abcdef"},
		{"diagnose --container ''", "--container is empty"},
		{"diagnose --pid 1 --comm init", "give one of --pid, --comm, --cgroup and --container"},
		{"ping", "give the address and port of the destination"},
		{"ping 192.0.2.1", `"192.0.2.1": want ADDRESS:PORT`},
		{"ping 192.0.2.1:80 --as there", `as "there": want here, neighbour, outside`},
		{"ping 192.0.2.1:80 --interval 1ms", "an interval of 1ms: give at least 50ms"},
		{"ping 192.0.2.1:80 --duration 2h", "a duration of 2h0m0s: give at least the interval"},
		{"ping 192.0.2.1:80 --save /no/such/place.zip", "there is no directory /no/such"},
		{"diagnose --duration ten", "a time with its unit, such as 10s"},
		{"diagnose --duration 9999", "is longer than 1h0m0s"}, // seconds
		{"diagnose --duration 0", "--duration 0s: give a positive time"},
		{"diagnose --duration -5s", "--duration -5s: give a positive time"},
		{"diagnose --duration 500ms", "--duration 500ms is shorter than --interval 1s"},
		{"diagnose --duration 61m", "is longer than 1h0m0s"},
		{"diagnose --duration 9999999h", `--duration "9999999h" is not a time`},
		{"diagnose --duration 30m --interval 100ms", "more than 3600 samples: give a longer --interval"},
		{"diagnose --interval 1ms", "--interval 1ms is too short: give at least 100ms"},
		{"diagnose --interval 0", "--interval 0s is too short"},
		{"diagnose --check no-such-check", "`perfdoctor checks list` names all"},
		{"diagnose --check " + c.Name[:len(c.Name)-1], "did you mean " + c.Name + "?"},
		{"diagnose --check ''", "--check is empty"},
		{"diagnose --set 5", `--set "5" is not CHECK.PARAMETER=VALUE`},
		{"diagnose --set a=5", `--set "a=5" is not CHECK.PARAMETER=VALUE`},
		{"diagnose --set no-such-check.x=5", `unknown check "no-such-check"`},
		{"diagnose --set " + c.Name + ".nothing=5", "check " + c.Name + " has no parameter"},
		{"diagnose --set retransmits.warn-share=few", `"few" is not a number`},
		{"diagnose --set retransmits.warn-share=NaN", `"NaN" is not a number`},
		{"diagnose --set retransmits.warn-share=Inf", `"Inf" is not a number`},
		{"diagnose --set retransmits.warn-share=-1", `"-1" is not a number of zero or more`},
		{
			"diagnose --check reset-storm --set retransmits.warn-share=1",
			"retransmits is not among the checks of --check",
		},
		{"diagnose -o xml", `unknown output format "xml": use text, json, markdown, junit or html`},
		{"compare a.zip", "give two recordings, that of before and that of after"},
		{"compare a.zip b.zip c.zip", "give two recordings"},
		{"compare -o xml a.zip b.zip", `unknown output format "xml": use text, json, markdown or html`},
		{"compare --fail-on gain a.zip b.zip", `--fail-on "gain": use regression`},
		{"compare --requests 5 a.zip b.zip", `--requests "5": give two values`},
		{"compare --requests 5,0 a.zip b.zip", `"0" is no positive number`},
		{"compare --requests 5,NaN a.zip b.zip", `"NaN" is no positive number`},
		{"compare --p99 5ms,x a.zip b.zip", `"x" is no time`},
		{"compare --color sometimes a.zip b.zip", `--color "sometimes": use auto, always or never`},
		{"compare " + dir + "/none.zip b.zip", "no such file or directory"},
		{"diagnose --what-if quota=4", "--what-if is about a recording: it goes with --from"},
		{"diagnose --from x.zip --what-if quota", `--what-if "quota": give METHOD=0.5`},
		{"diagnose --from x.zip --what-if quota=0", `--what-if "quota=0": give METHOD=0.5`},
		{"diagnose --from x.zip --what-if pool=NaN", `--what-if "pool=NaN": give METHOD=0.5`},
		{"diagnose --from x.zip --what-if f=-1", `--what-if "f=-1": give METHOD=0.5`},
		{"diagnose --from x.zip --what-if pool=2 -o html", "--what-if goes with -o text or -o json"},
		{"experiment qota", "did you mean `perfdoctor experiment quota`?"},
		{"experiment quota", "give a target to measure"},
		{"experiment quota --pid 0", "--pid 0 is not a process id"},
		{"experiment quota --pid 1 --to -1", "--to -1: give a number of CPUs"},
		{"experiment quota --pid 1 --to NaN", "--to NaN: give a number of CPUs"},
		{"experiment quota --pid 1 -d 2h", "--duration 2h0m0s: give a time from 500ms to 1m0s"},
		{"experiment quota --pid 1 -d 10ms", "--duration 10ms: give a time"},
		{"experiment quota --pid 1 -o html", `unknown output format "html": use text or json`},
		{"experiment pause --pid 1", "give either --suspect-pid or --suspect-cgroup"},
		{"experiment pause --pid 1 --suspect-pid 2 --suspect-cgroup /a", "give either --suspect-pid or"},
		{"experiment pause --pid 1 --suspect-pid -2", "--suspect-pid -2 is not a process id"},
		{"experiment pause --pid 1 --suspect-cgroup ''", "--suspect-cgroup is empty"},
		{"disprove", "give a recording, and perhaps a second one"},
		{"disprove a b c", "give a recording, and perhaps a second one"},
		{"disprove " + dir + "/none.zip", "no such file or directory"},
		{"disprove a.zip b.zip --pid 1", "give a second recording or a target to observe, not both"},
		{"disprove a.zip --duration 5s", "--duration goes with a target to observe"},
		{"disprove a.zip --pid 0", "--pid 0 is not a process id"},
		{"disprove a.zip --check ''", "--check is empty"},
		{"disprove a.zip --check no-such-check", "`perfdoctor checks list` names all"},
		{"disprove a.zip -o html", `unknown output format "html": use text or json`},
		{"disprove " + quota + " " + quota, "both are one recording"},
		{"disprove " + quota + " " + cliff, "different programs, pd-server and pd-client"},
		{"trend", "give a directory of recordings"},
		{"trend " + dir + "/none", "no such file or directory"},
		{"trend " + dir, "a trend needs 4"},
		{"diagnose --watch", "--watch needs a terminal"},
		{"diagnose --watch --save x.zip", "it goes with no --save"},
		{"diagnose --watch -o json", "it goes with no --output"},
		{"diagnose --watch -- true", "--watch looks at what runs"},
		{"preflight -o xml", `unknown output format "xml": use text or json`},
		{"metrics -o xml", `unknown output format "xml": use text or json`},
		{"diagnose --color sometimes", `--color "sometimes": use auto, always or never`},
		{"diagnose --from " + dir + "/none", "no such file or directory"},
		{"diagnose --from ''", "--from is empty"},
		{"diagnose --from x.zip --pid 1", "it goes with no target"},
		{"diagnose --from x.zip --save y.zip", "it goes with --save only to keep a redacted one (--redact)"},
		{"diagnose --from x.zip --budget 3", "--deep and --budget are what they were"},
		{"diagnose --budget 101", "--budget 101: give percent of the host's CPUs, from 0 (no limit) to 100"},
		{"diagnose --redact=/no/such/key", "--redact: stat /no/such/key: no such file"},
		{"exporter --budget -1", "--budget -1: give percent"},
		{"diagnose --from x.zip --duration 5s", "--from reads a recording: its --duration"},
		{"diagnose --from x.zip -- true", "it goes with no target or command"},
		{"diagnose --save " + dir, "exists: choose another name"},
		{"diagnose --force --save " + dir, "it is no file that --force could overwrite"},
		{"diagnose --save /etc/passwd", "exists: choose another name"},
		{"diagnose --force --save /etc/passwd", "exists: choose another name"}, // a directory is to be saved there
		{"diagnose --html /etc/passwd", "/etc/passwd exists: choose another name, or overwrite it with --force"},
		{"diagnose --save " + dir + "/", "exists: choose another name"},
		{"diagnose --save " + dir + "/no/file.zip", "there is no directory " + dir + "/no"},
		{"diagnose --save ''", "--save is empty"},
		{"diagnose --delay 1s", "--delay goes with a command"},
		{"diagnose --delay -1s -- true", "--delay -1s: give a time between"},
		{"diagnose --pid 1 -- true", "a command after -- or a target, not both"},
		{"diagnose --", "give the command to diagnose after --"},
		{"diagnose 0", "0 is not a process id"},
		{"diagnose 99999999999", "99999999999 is not a process id"},
		{"diagnose 999999999", "no process with pid 999999999"},
		{"diagnose 1 2", `unexpected argument "2": name one target`},
		{"diagnose 1 --pid 1", `unexpected argument "1": a flag names the target already`},
		{"diagnose ''", "the target is empty"},
		{"diagnose ./server", "to start it and diagnose it put -- before it"},
		{"diagnose no-such-process", `no process has the command name "no-such-process"`},
		{"diagnose 1 --from x.zip", "--from reads a recording: it goes with no target"},
		{"diagnose x -- true", "a command after -- or a target, not both"},
		{"999999999 -d 1", "no process with pid 999999999"},
		{"-p 999999999", "no process with pid 999999999"},
		{"./server --port 80", "unknown flag --port"},
		{"./server serve", "to start it and diagnose it put -- before it"},
		{"--", "give the command to diagnose after --"},
		{"-- no-such-command", "cannot start no-such-command: executable file not found"},
		{"--pdi 1", "unknown flag --pdi: did you mean --pid?"},
		{"repot incident.zip", "did you mean `perfdoctor report`?"},
		{"diagnose -- no-such-command", "cannot start no-such-command: executable file not found"},
		{"diagnose -- /etc/passwd", "cannot start /etc/passwd: permission denied"},
		{"diagnose --pdi 1", "unknown flag --pdi: did you mean --pid?"},
		{"diagnose --no-such-flag", "unknown flag --no-such-flag: see `perfdoctor diagnose --help`"},
		{"diagnose -x", "unknown shorthand flag"},
		{"diagnos", "did you mean `perfdoctor diagnose`?"},
		{"no-such-command", "unknown command \"no-such-command\": see `perfdoctor --help`"},
		{"no-such-command", `no process has the command name "no-such-command"`},
		{"checks lits", "did you mean `perfdoctor checks list`?"},
		{"checks explain", "give the name of a check"},
		{"checks explain no-such-check", `unknown check "no-such-check"`},
		{"checks case " + c.Name, "give --from RECORDING and --comment"},
		{
			"checks case nic-errors --from ../checks/path/testdata/nic-errors/firing.txtar --comment x --edit " +
				"net_device_error_total=1",
			"did you mean net_device_errors_total?",
		},
		{"checks list x", `unexpected argument "x"`},
		{"checks causes -o svg", "dot"},
		{"checks case", "give the name of a check"},
		{"version x", `unexpected argument "x"`},
		{"help no-such-command", `unknown command "no-such-command"`},
		{"help checks no-such-command", `unknown command "no-such-command"`},
		{"completion", "give a shell: bash, zsh or fish"},
		{"completion csh", `unknown shell "csh"`},
		{"completion bash x", "give a shell"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			args := strings.Fields(tt.args)
			for i := range args {
				args[i] = strings.TrimPrefix(args[i], "''")
			}
			wantUsage(t, tt.want, args...)
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestEditedCase cuts the quiet case of a rule from the one that fires.
func TestEditedCase(t *testing.T) {
	code, stdout, stderr := run(t, "checks", "case", "nic-errors", "--from",
		"../checks/path/testdata/nic-errors/firing.txtar",
		"--comment", "just below one packet in a thousand", "--edit", "net_device_errors_total{device=eth1}=190")
	if code != 0 || !strings.HasPrefix(stdout,
		"just below one packet in a thousand\nEdited: net_device_errors_total{device=eth1}=190\n") {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	fsys, err := txtar.FS(txtar.Parse([]byte(stdout)))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cli.FindCheck(checks.Suite(), "nic-errors")
	if err != nil {
		t.Fatal(err)
	}
	o := check.Run(rec, []*check.Check{c}, check.Options{}).Outcomes[0]
	if want := "190 packets / 200190 packets"; o.State != check.Fine || !strings.Contains(fmt.Sprint(o.Read), want) {
		t.Errorf("%s: %v, want %q and fine", o.State, o.Read, want)
	}
}

// TestAnswers checks the output of every command: it is on the standard output, within 80 columns, with exit code 0.
func TestAnswers(t *testing.T) {
	name := checks.Suite()[0].Name
	for args, want := range map[string]string{
		"":                              "Usage:",
		"--help":                        "diagnose ",
		"help":                          "diagnose ",
		"help checks explain":           "perfdoctor checks explain NAME",
		"diagnose --help":               "--duration",
		"preflight --help":              "--pid",
		"checks":                        "explain",
		"checks list":                   name,
		"checks explain " + name:        "Source: http",
		"checks case --help":            "txtar",
		"checks causes":                 "softnet-drops:\n  nic-drops ",
		"checks causes -o dot":          `"Java code" -> "gc-overhead" [`,
		"checks causes --help":          "consequences",
		"checks explain gc-overhead":    "May be explained by:\n",
		"__complete checks causes -o ":  "text\njson\ndot\n",
		"metrics":                       "cpu_",
		"metrics --help":                "--output",
		"licenses":                      "Apache License",
		"licenses --help":               "licences",
		"version":                       "perfdoctor v1.2.3 (",
		"--version":                     "perfdoctor v1.2.3",
		"completion bash":               "__complete",
		"completion zsh":                "__complete",
		"completion fish":               "__complete",
		"completion --help":             "bash-completion",
		"__complete diagnose --color a": "auto\nalways\nnever\n",
		"__complete preflight -o ":      "text\njson\n",
		"__complete diagnose --check ":  name + "\t" + checks.Suite()[0].Title() + "\n",
		"__complete checks explain ":    name + "\t" + checks.Suite()[0].Title() + "\n",
		"__complete diagnose --check cpu-hog," + name: "cpu-hog," + name + "\t",
		"__complete diagnose --set ":                  "cpu-hog.",
		"__complete nginx -o ":                        "text\njson\n",
		"__complete ":                                 "diagnose\t",
		"__complete completion ":                      "bash\nzsh\nfish\n",
	} {
		t.Run(args, func(t *testing.T) {
			words := strings.Fields(args)
			if strings.HasSuffix(args, " ") {
				words = append(words, "")
			}
			code, stdout, stderr := run(t, words...)
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("exit code %d, %q; want %q in %q", code, stderr, want, stdout)
			}
			if strings.Contains(args, "--help") || args == "" || strings.HasPrefix(args, "help") {
				fits(t, stdout)
			}
		})
	}
}

// fits expects lines of at most 80 columns, except for commands to copy and examples.
func fits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		command := strings.HasPrefix(strings.TrimSpace(line), "$ ") || strings.HasPrefix(strings.TrimSpace(line),
			"perfdoctor ")
		if n := utf8.RuneCountInString(line); n > 80 && !command {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestPreflight(t *testing.T) {
	code, text, stderr := run(t, "preflight")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	fits(t, text)
	for _, want := range []string{"RIGHTS AND KERNEL FEATURES", "COLLECTORS", "CHECKS"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	code, out, _ := run(t, "preflight", "-o", "json", "--pid", fmt.Sprint(os.Getpid()))
	var p struct {
		Assessable []string                    `json:"checks_assessable"`
		Blind      []struct{ Checks []string } `json:"checks_not_assessable"`
	}
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v", code, err)
	}
	n := len(p.Assessable)
	for _, b := range p.Blind {
		n += len(b.Checks)
	}
	if n != len(checks.Suite()) {
		t.Errorf("preflight speaks of %d checks, there are %d", n, len(checks.Suite()))
	}
}

// TestSaveAndFrom: a saved recording gives the report of the live run again, byte for byte, in both forms of recording.
func TestSaveAndFrom(t *testing.T) {
	for _, name := range []string{"rec", "rec.zip", "dir/"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := dir + "/" + name
			code, live, stderr := run(t, "diagnose", "--duration", "300ms", "--interval", "100ms", "-o", "json",
				"--save", path)
			if code != 0 && code != 3 && code != 4 || stderr != "" { // 4: a busy host, where samples are lost
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			code2, again, stderr := run(t, "diagnose", "--from", path, "-o", "json")
			if code2 != code || stderr != "" {
				t.Errorf("exit code %d, the live run's was %d: %s", code2, code, stderr)
			}
			if live != again {
				t.Errorf("live:\n%s\nagain:\n%s", live, again)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

// TestPing: round trips measured while a host was diagnosed are part of its recording, and of no other recording.
func TestPing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir, pinged := t.TempDir(), make(chan string, 1)
	go func() {
		_, stdout, stderr := run(t, "ping", l.Addr().String(), "--as", "outside", "--duration", "2s", "--save",
			dir+"/outside.zip")
		pinged <- stdout + stderr
	}()
	if code, _, stderr := run(t, "diagnose", "--duration", "1s", "--check", "governor", "--save",
		dir+"/host.zip"); code == 1 {
		t.Fatal(stderr)
	}
	if out := <-pinged; !strings.Contains(out, "as outside: ") || !strings.Contains(out, "; 0 unanswered\n") {
		t.Errorf("ping says %q", out)
	}
	code, _, stderr := run(t, "diagnose", "--from", dir+"/host.zip", "--vantage", dir+"/outside.zip")
	if code == 1 || code == 2 || stderr != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	code, stdout, stderr := run(t, "diagnose", "--from", "../checks/path/testdata/path-rtt-under-load/quiet.txtar",
		"--vantage", dir+"/outside.zip")
	if code != 2 || stdout == "" || !strings.Contains(stderr, "not recorded at the same time") {
		t.Errorf("another day: exit code %d: %s", code, stderr)
	}
	code, stdout, stderr = run(t, "diagnose", "--from", dir+"/host.zip", "--vantage", dir+"/gone.zip")
	if code != 2 || stdout == "" || !strings.Contains(stderr, "--vantage: open recording") {
		t.Errorf("no file: exit code %d: %s", code, stderr)
	}
}

// TestExitCodeIsTheReports expects the exit code that the report itself has, in every format.
func TestExitCodeIsTheReports(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		code, out, stderr := run(t, "diagnose", "--duration", "200ms", "--interval", "100ms", "-o", format)
		if code != 0 && code != 3 && code != 4 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		found := strings.Contains(out, `"exit_code": 3`) || strings.Contains(out, "WARNING  ") ||
			strings.Contains(out, "CRITICAL  ")
		if found != (code == 3) {
			t.Errorf("-o %s: exit code %d for\n%s", format, code, out)
		}
	}
}

// TestTooShort ends the observation before two samples are far enough apart for a rate. No report is better than a
// random one.
func TestTooShort(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var out, errs bytes.Buffer
	code := cli.Run(ctx, "v1.2.3", []string{"diagnose"}, command.Streams{Out: &out, Err: &errs})
	if want := "too short to say anything about the host"; code != 1 || out.Len() > 0 ||
		!strings.Contains(errs.String(), want) {
		t.Errorf("exit code %d, %q, %q, want %q", code, out.String(), errs.String(), want)
	}
}

// TestFromBadFile opens files that are not a recording, or not one of ours.
func TestFromBadFile(t *testing.T) {
	meta := func(m recording.Meta) string {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	fine := meta(recording.Meta{Schema: recording.SchemaVersion, Duration: 10})
	for name, tt := range map[string]struct{ file, want string }{
		"empty.zip":     {"", "not a usable recording"},
		"text.zip":      {"hello", "not a usable recording"},
		"nothing.txtar": {"hello", "meta.json"},
		"newer.txtar": {
			"-- meta.json --\n" + meta(recording.Meta{Schema: recording.SchemaVersion + 1}),
			"use a newer perfdoctor",
		},
		"no-schema.txtar": {"-- meta.json --\n{}\n", "schema"},
		"half.txtar":      {"-- meta.json --\n" + fine, "samples.jsonl"},
		"cut.txtar": {
			"-- meta.json --\n" + fine + "\n-- samples.jsonl --\n" + `{"t":1,"m":{"cpu`,
			"samples.jsonl line 1",
		},
		"outside.txtar": {"-- ../../etc/passwd --\nx\n", "not a usable recording"},
		"control.txtar": {"-- meta.json --\n\x1b[2J\n", "not a usable recording"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			wantUsage(t, tt.want, "diagnose", "--from", path)
			_, _, stderr := run(t, "diagnose", "--from", path)
			if strings.ContainsRune(stderr, '\x1b') {
				t.Errorf("an escape sequence of the file reaches the terminal: %q", stderr)
			}
			wantUsage(t, tt.want, "checks", "case", checks.Suite()[0].Name, "--from", path, "--comment", "x")
		})
	}
}

// TestCase cuts a recording into a case file that opens again.
func TestCase(t *testing.T) {
	rec := filepath.Join(t.TempDir(), "rec.zip")
	if code, _, stderr := run(t, "diagnose", "--duration", "200ms", "--interval", "100ms", "--save", rec); code != 0 &&
		code != 3 && code != 4 {
		t.Fatal(stderr)
	}
	name := checks.Suite()[0].Name
	code, out, stderr := run(t, "checks", "case", name, "--from", rec, "--comment", "this machine")
	if code != 0 || !strings.HasPrefix(out, "this machine\n") {
		t.Fatalf("exit code %d, %s: %s", code, stderr, out)
	}
	path := filepath.Join(t.TempDir(), "case.txtar")
	if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr = run(t, "diagnose", "--from", path, "--check", name, "-v")
	if code != 0 && code != 3 || !strings.Contains(out, name) {
		t.Errorf("exit code %d, %s: %s", code, stderr, out)
	}
}

// TestCausesAsJSON reads the table back.
func TestCausesAsJSON(t *testing.T) {
	_, stdout, _ := run(t, "checks", "causes", "-o", "json")
	var got check.Causes
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(checks.Causes(), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
