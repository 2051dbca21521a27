package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// binary is perfdoctor itself, for tests that depend on the process: signals, rights, file descriptors.
var binary string

func TestMain(m *testing.M) {
	testenv.DefaultSignals()
	code, err := withBinary(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withBinary builds perfdoctor where every user may read it.
func withBinary(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "perfdoctor-cli-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	binary = filepath.Join(dir, "perfdoctor")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/perfdoctor/perfdoctor/cmd/perfdoctor").
		CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("build perfdoctor: %w: %s", err, out)
	}
	return run(), nil
}

// process is a run of the binary.
type process struct {
	*exec.Cmd
	out, errs bytes.Buffer
}

func perfdoctor(t *testing.T, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	p := &process{Cmd: exec.CommandContext(ctx, binary, args...)}
	p.Dir = "/" // the working directory of a test may not be readable to another user
	p.Stdout, p.Stderr = &p.out, &p.errs
	return p
}

func (p *process) code(t *testing.T) int {
	t.Helper()
	err := p.Run()
	return p.exit(t, err)
}

func (p *process) exit(t *testing.T, err error) int {
	t.Helper()
	if p.ProcessState == nil || p.ProcessState.ExitCode() < 0 {
		t.Fatalf("perfdoctor %v did not exit: %v\n%s", p.Args[1:], err, p.errs.String())
	}
	if strings.Contains(p.errs.String(), "goroutine ") {
		t.Errorf("perfdoctor %v panicked:\n%s", p.Args[1:], p.errs.String())
	}
	return p.ProcessState.ExitCode()
}

// report is the part of the JSON report that the tests read.
type report struct {
	Exit   int `json:"exit_code"`
	Target struct {
		Kind, Name, Container string
		PID                   int
		ExitStatus            string `json:"exit_status"`
	}
	Window struct {
		Seconds float64
		Ended   string `json:"ended_early"`
	}
	Verdict struct{ Result string }
	Fine    []struct{ Check string }
}

func (p *process) report(t *testing.T) report {
	t.Helper()
	var r report
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %q, %s", err, p.out.String(), p.errs.String())
	}
	return r
}

// diagnose returns the arguments of a short diagnosis in JSON.
func diagnose(args ...string) []string {
	return append([]string{"diagnose", "-o", "json", "--duration", "400ms", "--interval", "100ms"}, args...)
}

// sleeper starts a process with a name of its own. It ends with the test.
func sleeper(t *testing.T, name string) int {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(sleep, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), link, "30")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func TestTargets(t *testing.T) {
	pid := sleeper(t, "pd-one")
	for _, args := range [][]string{
		diagnose("--pid", strconv.Itoa(pid)), diagnose("--comm", "pd-one"), diagnose("pd-one"),
		{strconv.Itoa(pid), "-o", "json", "-d", "400ms", "--interval", "100ms"},
		{"pd-one", "-o", "json", "-d", "400ms", "--interval", "100ms"},
		{"-o", "json", "-d", "400ms", "--interval", "100ms", "-p", strconv.Itoa(pid)},
	} {
		p := perfdoctor(t, args...)
		if code := p.code(t); code != 0 && code != 3 {
			t.Fatalf("%v: exit code %d: %s", args, code, p.errs.String())
		}
		if r := p.report(t); r.Target.PID != pid || r.Target.Name != "pd-one" || r.Target.Kind != "process" {
			t.Errorf("%v: target %+v, want pid %d", args, r.Target, pid)
		}
	}
	other := sleeper(t, "pd-one")
	for _, args := range [][]string{{"diagnose", "--comm", "pd-one"}, {"pd-one"}} {
		wantUsage(t, `2 processes that are not each other's children have the command name "pd-one"`, args...)
		wantUsage(t, fmt.Sprintf("%d of ", other), args...)
	}
}

// TestCompletesTargets: a shell completes a process by its id and by its name.
func TestCompletesTargets(t *testing.T) {
	pid := strconv.Itoa(sleeper(t, "pd-complete"))
	for _, test := range []struct{ want, typed string }{
		{"pd-complete\n", "diagnose pd-com"},
		{"pd-complete\n", "pd-com"},
		{"pd-complete\n", "preflight --comm pd-com"},
		{pid + "\tpd-complete\n", "diagnose --pid " + pid},
		{pid + "\tpd-complete\n", pid},
	} {
		code, stdout, stderr := run(t, append([]string{"__complete"}, strings.Fields(test.typed)...)...)
		if code != 0 || !strings.HasPrefix(stdout, test.want) {
			t.Errorf("%s: exit code %d, %q, want %q; %s", test.typed, code, stdout, test.want, stderr)
		}
	}
	if code, stdout, _ := run(t, "__complete", ""); code != 0 || strings.Contains(stdout, "pd-complete") {
		t.Errorf("processes hide the commands: exit code %d, %q", code, stdout)
	}
}

// TestStartedWithoutCommand: `perfdoctor -- PROGRAM` starts it, diagnoses it and ends it.
func TestStartedWithoutCommand(t *testing.T) {
	p := perfdoctor(t, "-o", "json", "-d", "400ms", "--interval", "100ms", "--delay", "100ms", "--", "sleep", "30")
	code := p.code(t)
	r := p.report(t)
	if code != r.Exit || r.Target.Kind != "command" || !strings.HasPrefix(r.Target.ExitStatus, "still running; ended") {
		t.Errorf("exit code %d, %+v", code, r.Target)
	}
	awaitGone(t, r.Target.PID)
}

// TestBehindSudo: files that root writes for the user of sudo belong to that user.
func TestBehindSudo(t *testing.T) {
	testenv.Need(t, testenv.Root)
	dir := t.TempDir()
	for _, save := range []string{"rec.zip", "rec"} {
		p := perfdoctor(t, "report", fromHere(t, "../checks/limits/testdata/cpu-throttled/firing-real.txtar"),
			"--html", filepath.Join(dir, save+".html"))
		p.Env = append(os.Environ(), "SUDO_UID=65534", "SUDO_GID=65533")
		if code := p.code(t); code != 3 {
			t.Fatalf("exit code %d: %s", code, p.errs.String())
		}
		p = perfdoctor(t, diagnose("--check", "governor", "--save", filepath.Join(dir, save))...)
		p.Env = append(os.Environ(), "SUDO_UID=65534", "SUDO_GID=65533")
		if code := p.code(t); code == 1 || code == 2 {
			t.Fatalf("exit code %d: %s", code, p.errs.String())
		}
	}
	for _, path := range []string{"rec.zip", "rec.zip.html", "rec", "rec/meta.json"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, path), &st); err != nil || st.Uid != 65534 || st.Gid != 65533 {
			t.Errorf("%s is of user %d and group %d, %v", path, st.Uid, st.Gid, err)
		}
	}
}

// fromHere returns the whole path of a file, for a process in another directory.
func fromHere(t *testing.T, path string) string {
	t.Helper()
	whole, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

func TestInterrupt(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			save := filepath.Join(t.TempDir(), "rec.zip")
			p := perfdoctor(t, "diagnose", "-o", "json", "--save", save)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(700 * time.Millisecond)
			if err := p.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			sent := time.Now()
			code := p.exit(t, p.Wait())
			if took := time.Since(sent); took > 2*time.Second {
				t.Errorf("it went on for %v", took)
			}
			r := p.report(t)
			if code != r.Exit || !strings.HasPrefix(r.Window.Ended, "interrupted after ") || r.Window.Seconds > 5 {
				t.Errorf("exit code %d, %+v", code, r)
			}
			if code, _, stderr := run(t, "diagnose", "--from", save); code != r.Exit {
				t.Errorf("the recording of an interrupted run: exit code %d, %s", code, stderr)
			}
		})
	}
}

// TestInterruptBeforeStart sends the signal during the delay of a command. Nothing was seen, and nothing is left of the
// command.
func TestInterruptBeforeStart(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	p := perfdoctor(t, "diagnose", "--", "sh", "-c", `echo $$ > "$0"; sleep 30`, pidFile)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	pid := awaitPID(t, pidFile)
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(t, p.Wait()); code != 1 || !strings.Contains(p.errs.String(),
		"interrupted before the diagnosis began") {
		t.Errorf("exit code %d, %s", code, p.errs.String())
	}
	awaitGone(t, pid)
}

func awaitPID(t *testing.T, file string) int {
	t.Helper()
	for range 100 {
		data, err := os.ReadFile(file)
		if pid, perr := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && perr == nil {
			return pid
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the command did not start")
	return 0
}

// awaitGone waits until the process is gone, or only a zombie that its parent has to reap.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for range 100 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("process %d outlives perfdoctor", pid)
}

// TestKill: nothing outlives a SIGKILL of perfdoctor, neither the command it started nor a file.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	pidFile := filepath.Join(t.TempDir(), "pid")
	p := perfdoctor(t, "diagnose", "--delay", "100ms", "--save", dir+"/rec", "--", "sh", "-c",
		`echo $$ > "$0"; exec sleep 30`, pidFile)
	p.Stdout, p.Stderr = nil, nil
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	pid := awaitPID(t, pidFile)
	time.Sleep(500 * time.Millisecond)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	awaitGone(t, pid)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestCommand(t *testing.T) {
	for name, tt := range map[string]struct {
		script     string
		exitStatus string
		ended      string
	}{
		"runs on": {
			"echo to stdout; exec sleep 30", "still running; ended by perfdoctor (signal: terminated)",
			"",
		},
		"deaf":           {"trap '' TERM; for i in 1 2; do sleep 30; done", "ended by perfdoctor (signal: ", ""},
		"ends meanwhile": {"echo to stdout; sleep 0.7; exit 7", "exit status 7", "sh ended (exit status 7)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := perfdoctor(t, diagnose("--duration", "2s", "--delay", "200ms", "--", "sh", "-c", tt.script)...)
			code := p.code(t)
			r := p.report(t)
			if code != r.Exit || r.Target.Kind != "command" || !strings.Contains(r.Target.ExitStatus, tt.exitStatus) {
				t.Errorf("exit code %d, target %+v, want status %q", code, r.Target, tt.exitStatus)
			}
			if !strings.HasPrefix(r.Window.Ended, tt.ended) || tt.ended == "" && r.Window.Ended != "" {
				t.Errorf("ended early %q, want %q", r.Window.Ended, tt.ended)
			}
			if strings.Contains(tt.script, "echo") && !strings.Contains(p.errs.String(), "to stdout") {
				t.Errorf("the command's output is not on the standard error: %q", p.errs.String())
			}
			awaitGone(t, r.Target.PID)
		})
	}
	t.Run("ends during the delay", func(t *testing.T) {
		p := perfdoctor(t, diagnose("--delay", "3s", "--", "sh", "-c", "exit 4")...)
		code := p.code(t)
		want := "sh ended (exit status 4) within the --delay of 3s"
		if code != 1 || !strings.Contains(p.errs.String(), want) || p.out.Len() > 0 {
			t.Errorf("exit code %d, %q, %q, want %q", code, p.out.String(), p.errs.String(), want)
		}
	})
}

// TestCommandGroup: what the command started ends with it.
func TestCommandGroup(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	p := perfdoctor(t, diagnose("--delay", "200ms", "--", "sh", "-c",
		`sh -c 'echo $$ > "$0"; exec sleep 30' "$0" & sleep 0.4`, pidFile)...)
	if code := p.code(t); code != 0 && code != 3 {
		t.Errorf("exit code %d: %s", code, p.errs.String())
	}
	awaitGone(t, awaitPID(t, pidFile))
}

func TestTargetEndsMeanwhile(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "0.6")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	p := perfdoctor(t, diagnose("--duration", "5s", "--pid", strconv.Itoa(cmd.Process.Pid))...)
	code := p.code(t)
	r := p.report(t)
	if want := fmt.Sprintf("process %d (sleep) ended after ", cmd.Process.Pid); code != r.Exit ||
		!strings.HasPrefix(r.Window.Ended, want) {
		t.Errorf("exit code %d, ended early %q, want %q", code, r.Window.Ended, want)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNoReader closes the pipe of the report. A reader that stops has read enough, and the recording is still saved.
func TestNoReader(t *testing.T) {
	save := filepath.Join(t.TempDir(), "rec.zip")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := perfdoctor(t, diagnose("--save", save)...)
	p.Stdout = w
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	code := p.code(t)
	_ = w.Close()
	if code != 0 && code != 3 && code != 4 || p.errs.Len() > 0 { // as on the host
		t.Errorf("exit code %d, %q", code, p.errs.String())
	}
	if _, err := os.Stat(save); err != nil {
		t.Errorf("the recording was lost with the reader: %v", err)
	}
}

func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	p := perfdoctor(t, diagnose()...)
	p.Stdout = full
	want := "perfdoctor: write to the standard output: no space left on device\n"
	if code := p.code(t); code != 1 || p.errs.String() != want {
		t.Errorf("exit code %d, %q, want %q", code, p.errs.String(), want)
	}
}

// TestFullDisk saves onto a file system that is too small: the report is printed, and no part of a recording stays.
func TestFullDisk(t *testing.T) {
	testenv.Need(t, testenv.Root)
	for _, name := range []string{"rec", "rec.zip"} {
		p := perfdoctor(t, "unshare", "--mount")
		p.Path, p.Args = "/bin/sh", []string{"sh", "-c", `mount -t tmpfs -o size=64k none "$2" || exit 99
			head -c 64k /dev/zero > "$2/filler"
			"$0" diagnose --duration 300ms --interval 100ms --save "$2/$1"; code=$?
			ls -A -I filler "$2" >&2; exit $code`, binary, name, t.TempDir()}
		p.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // private, because Go makes it so
		code := p.code(t)
		want := []string{"save recording to ", "no space left on device"}
		for _, w := range want {
			if code != 1 || !strings.Contains(p.errs.String(), w) {
				t.Errorf("%s: exit code %d, %q, want %q", name, code, p.errs.String(), w)
			}
		}
		if strings.Count(p.errs.String(), "\n") != 1 {
			t.Errorf("%s: more than one line, or files left behind: %q", name, p.errs.String())
		}
		if !strings.Contains(p.out.String(), "PERFDOCTOR ITSELF") {
			t.Errorf("%s: the full disk cost the report: %q", name, p.out.String())
		}
	}
}

// TestUnprivileged diagnoses the host and another user's process without rights. The host can be assessed. Most of the
// process cannot, and the exit code says so unless there is a finding.
func TestUnprivileged(t *testing.T) {
	testenv.Need(t, testenv.Unprivileged)
	pid := strconv.Itoa(sleeper(t, "pd-other"))
	for _, test := range []struct {
		args []string
		want int
	}{{diagnose(), 0}, {diagnose("--pid", pid), 4}, {[]string{"preflight", "-o", "json", "--pid", pid}, 0}} {
		args := test.args
		p := perfdoctor(t, args...)
		testenv.Drop(p.Cmd)
		if code := p.code(t); code != test.want && code != 3 {
			t.Errorf("%v: exit code %d: %s%s", args, code, p.errs.String(), p.out.String())
			continue
		}
		if r := p.report(t); args[0] == "diagnose" && (r.Verdict.Result == "nothing assessed" || len(r.Fine) == 0) {
			t.Errorf("%v: nothing could be assessed: %s", args, p.out.String())
		}
	}
	p := perfdoctor(t, "diagnose", "--save", "/etc/perfdoctor-test.zip")
	testenv.Drop(p.Cmd)
	if code := p.code(t); code != 2 || !strings.Contains(p.errs.String(),
		"cannot write to the directory /etc: permission denied") {
		t.Errorf("exit code %d, %s", code, p.errs.String())
	}
}

// TestHiddenProcesses runs without rights in a pid namespace whose /proc hides other users' processes.
func TestHiddenProcesses(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("setpriv"))
	inside := func(args ...string) *process {
		p := perfdoctor(t)
		p.Path = "/bin/sh"
		p.Args = append([]string{"sh", "-c", `mount -t proc -o hidepid=2 proc /proc || exit 99
			setpriv --reuid 65534 --regid 65534 --clear-groups "$0" "$@"`, binary}, args...)
		p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
		return p
	}
	p := inside(diagnose()...)
	if code := p.code(t); code != 0 && code != 3 {
		t.Fatalf("exit code %d: %s", code, p.errs.String())
	}
	if want := "perfdoctor runs in a pid namespace of its own: it sees part of the host"; !strings.Contains(
		p.errs.String(), want) {
		t.Errorf("got %q, want %q", p.errs.String(), want)
	}
	if r := p.report(t); r.Verdict.Result == "nothing assessed" {
		t.Error("nothing could be assessed")
	}
	for _, args := range [][]string{{"diagnose", "--pid", "1"}, {"diagnose", "--comm", "sh"}} {
		p := inside(args...)
		if code := p.code(t); code != 2 || !strings.Contains(p.errs.String(), "hidepid") {
			t.Errorf("%v: exit code %d, %q does not name hidepid", args, code, p.errs.String())
		}
	}
	p = inside("preflight")
	if code := p.code(t); code != 0 || !strings.Contains(p.out.String(), "hidepid") {
		t.Errorf("preflight: exit code %d, %s%s", code, p.out.String(), p.errs.String())
	}
}

// TestTerminal runs on a pseudo-terminal: there is colour, and a progress line that is erased again.
func TestTerminal(t *testing.T) {
	read := func(env ...string) string {
		master, slave := openTerminal(t)
		p := perfdoctor(t, "diagnose", "--duration", "300ms", "--interval", "100ms")
		p.Stdout, p.Stderr = slave, slave
		p.Env = append(os.Environ(), env...)
		text := make(chan string)
		go func() {
			var b bytes.Buffer
			_, _ = b.ReadFrom(master) // EIO when the last writer is gone
			text <- b.String()
		}()
		_ = p.code(t)
		_ = slave.Close()
		return <-text
	}
	colored := read("TERM=xterm", "NO_COLOR=")
	for _, want := range []string{"\x1b[1", "░  starting the collectors", "\r\x1b[K"} {
		if !strings.Contains(colored, want) {
			t.Errorf("no colour or progress, which would have %q: %q", want, colored)
		}
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if plain := read("TERM=xterm", "NO_COLOR=", env); strings.Contains(plain, "\x1b[1") {
			t.Errorf("colour in spite of %s: %q", env, plain)
		}
	}
	code, out, errs := run(t, "diagnose", "--duration", "200ms", "--interval", "100ms")
	if strings.ContainsAny(out+errs, "\x1b\r") || errs != "" {
		t.Errorf("exit code %d: colour or progress without a terminal: %q %q", code, out, errs)
	}
}

// openTerminal makes a pseudo-terminal (pty(7)).
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}
