package hostile_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// TestFakeJVMs: a process that maps a libjvm.so need not be a JVM. It costs the JVM's collectors, with a reason, and
// nothing else.
func TestFakeJVMs(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.Tool("gcc"))
	binary := compiled(t, "fakejvm.c", "java")
	for kind, want := range map[string]string{
		"silent":     "did not answer",
		"endless":    "longer than",
		"escapes":    "",
		"code":       "does not begin with a code",
		"link":       "not a socket of its own",
		"mapped":     "counters",
		"truncated":  "counters",
		"long-entry": "counters",
		"no-length":  "counters",
		"changes":    "",
		"huge":       "HotSpot's",
		"fifo":       "no regular file",
		"device":     "no regular file",
		"secret":     "counters",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			pid := startFake(t, binary, kind)
			const window = 2 * time.Second
			saved := filepath.Join(t.TempDir(), "saved.zip")
			for format, o := range map[string]outcome{
				"text": perfdoctor(t, window, "diagnose", "-v", "--pid", pid, "--duration", window.String(),
					"--save", saved),
				"json": perfdoctor(t, toRead, "diagnose", "-v", "-o", "json", "--from", saved),
			} {
				if o.code != 0 && o.code != 3 && o.code != 4 || strings.Contains(o.stderr, "panic") {
					t.Errorf("exit code %d:\n%s", o.code, o.stderr)
				}
				if words := strings.Join(strings.Fields(o.stdout), " "); !strings.Contains(words, want) {
					t.Errorf("the report does not say %q:\n%s", want, o.stdout)
				}
				if strings.Contains(o.stdout+o.stderr, secret) {
					t.Errorf("the report has the secret:\n%s%s", o.stdout, o.stderr)
				}
				harmless(t, format, o.stdout+o.stderr)
			}
		})
	}
}

// compiled builds a program of testdata under this name.
func compiled(t *testing.T, source, name string, flags ...string) string {
	t.Helper()
	binary := filepath.Join(openDir(t), name)
	args := append(append([]string{"-O1"}, flags...), "-o", binary, filepath.Join("testdata", source))
	if output, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return binary
}

func startFake(t *testing.T, binary, kind string) string {
	t.Helper()
	dir := openDir(t)
	lib, shadow := filepath.Join(dir, "libjvm.so"), filepath.Join(dir, "shadow")
	if err := os.Link(binary, lib); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(shadow, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return started(t, exec.Command(binary, kind, lib, shadow), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS})
}

// started starts a program, waits until it says that it is ready and returns its pid. The program lives as long as the
// test.
func started(t *testing.T, cmd *exec.Cmd, as *syscall.SysProcAttr) string {
	t.Helper()
	cmd.SysProcAttr, cmd.Stderr = as, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the program said %q: %v", line, err)
	}
	return strconv.Itoa(cmd.Process.Pid)
}

// harmless fails the test if an output contains anything that a terminal or a reader acts on.
func harmless(t *testing.T, format, text string) {
	t.Helper()
	for i, r := range text {
		if r == '\n' || r == '\t' || r == '\u00a0' || unicode.IsPrint(r) {
			continue
		}
		t.Errorf("%s has %U: %q", format, r, text[max(0, i-60):min(len(text), i+60)])
		return
	}
}

// evil is what a name may hold: an escape sequence, a line of its own, a change of direction and markup.
const evil = "\x1b]0;owned\x07\x1b[2J\nCRITICAL\u202e</script><b>|`$(reboot)`"

// formats are all outputs of a report.
var formats = []string{"text", "json", "markdown", "junit"}

// fenced is a block of code in Markdown.
var fenced = regexp.MustCompile("(?ms)^```.*?^```")

// everyFormat renders a recording in all formats, and its page.
func everyFormat(t *testing.T, saved string) {
	t.Helper()
	page := filepath.Join(t.TempDir(), "page.html")
	for _, format := range formats {
		args := []string{"report", saved, "-o", format}
		if format == "text" {
			args = append(args, "--html", page)
		}
		o := perfdoctor(t, toRead, args...)
		if o.code != 0 && o.code != 3 && o.code != 4 || strings.Contains(o.stderr, "panic") {
			t.Fatalf("%s: exit code %d: %s", format, o.code, o.stderr)
		}
		harmless(t, format, o.stdout+o.stderr)
		// In a fenced block markup is text, and a command needs the name as it is.
		if strings.Contains(o.stdout, "\nCRITICAL\u202e") || format == "markdown" &&
			strings.Contains(fenced.ReplaceAllString(o.stdout, ""), "</script><b>") {
			t.Errorf("%s: a name makes lines or markup of its own:\n%s", format, o.stdout)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "</script><b>") {
		t.Error("the page has markup of a name")
	}
}

// TestEvilNamesOfProcesses: a program file, a process, a thread, a function, an interface and a cgroup with evil names.
func TestEvilNamesOfProcesses(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Tool("gcc"), testenv.Tool("ip"))
	binary := compiled(t, "victim.c", strings.ReplaceAll(evil, "/", "_"))
	pid := started(t, exec.Command(binary, "names", evil), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
	t.Cleanup(func() { _ = os.Remove("/tmp/perf-" + pid + ".map") })
	const device = "e\x1b[2J\u202e$(x)" // 15 bytes, no blank (dev_valid_name)
	if out, err := exec.Command("nsenter", "-t", pid, "-n", "ip", "link", "set", "lo", "name", device).
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	joinEvilCgroup(t, pid)
	saved := filepath.Join(t.TempDir(), "saved.zip")
	const window = 2 * time.Second
	o := perfdoctor(t, window, "diagnose", "-v", "--pid", pid, "--duration", window.String(), "--save", saved)
	harmless(t, "text", o.stdout+o.stderr)
	everyFormat(t, saved)
}

// joinEvilCgroup puts the process into a group with an evil name, where a hierarchy can be written to.
func joinEvilCgroup(t *testing.T, pid string) {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"} {
		// a newline is refused (cgroup_mkdir)
		dir := filepath.Join(root, strings.NewReplacer("/", "_", "\n", "").Replace(evil))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil { // a tmpfs, above those of version 1
			_ = os.Remove(dir)
			continue
		}
		t.Cleanup(func() {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			_ = syscall.Kill(n, syscall.SIGKILL) // what has ended is in no group
			for range 50 {
				if os.Remove(dir) == nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Errorf("%q is left", dir)
		})
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0o600); err == nil {
			return
		}
	}
	t.Log("no hierarchy of cgroups can be written to here")
}

// TestEvilNamesInRecordings: every label of a recording has an evil name, in findings of several kinds.
func TestEvilNamesInRecordings(t *testing.T) {
	for _, name := range []string{
		"cpu-throttled/firing-own", "nic-drops/firing", "fd-limit/firing", "no-keepalive/firing",
	} {
		t.Run(filepath.Dir(name), func(t *testing.T) {
			content, err := os.ReadFile(checktest.Find(t, name)[0])
			if err != nil {
				t.Fatal(err)
			}
			meta, rest, _ := strings.Cut(string(content), "-- samples.jsonl --\n")
			_, meta, _ = strings.Cut(meta, "-- meta.json --\n")
			samples, _, _ := strings.Cut(rest, "\n-- ")
			var out strings.Builder
			for line := range strings.Lines(samples) {
				var sample struct {
					T float64            `json:"t"`
					M map[string][][]any `json:"m"`
				}
				if err := json.Unmarshal([]byte(line), &sample); err != nil {
					t.Fatal(err)
				}
				for _, rows := range sample.M {
					for _, row := range rows {
						for i, cell := range row {
							if text, ok := cell.(string); ok && strings.ContainsAny(text, "/:.") {
								row[i] = text + evil
							}
						}
					}
				}
				b, err := json.Marshal(sample)
				if err != nil {
					t.Fatal(err)
				}
				out.Write(append(b, '\n'))
			}
			name, err := json.Marshal("java" + evil)
			if err != nil {
				t.Fatal(err)
			}
			meta = strings.Replace(meta, `"name": "java"`, `"name": `+string(name), 1)
			everyFormat(
				t, zipOf(t, map[string][]byte{"meta.json": []byte(meta), "samples.jsonl": []byte(out.String())}))
		})
	}
}

// TestChroot: the root of a process has a /tmp that is a link. Followed from the host, the link leads elsewhere.
func TestChroot(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Tool("gcc"))
	for name, target := range map[string]func(host string) string{
		"absolute": func(host string) string { return host },
		"upwards":  func(host string) string { return "../../../../../../.." + host },
		"procfs":   func(host string) string { return "/proc/self/root" + host },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binary := compiled(t, "victim.c", "victim", "-static")
			root, host := filepath.Dir(binary), openDir(t)
			if err := os.Symlink(target(host), filepath.Join(root, "tmp")); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/victim", "spin")
			cmd.Dir = "/"
			pid := started(t, cmd, &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{
				Uid: nobody,
				Gid: nobody,
			}})
			text := "0 7fffffffffff " + secret + "\n"
			if err := os.WriteFile(filepath.Join(host, "perf-"+pid+".map"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			if o := diagnose(t, n); strings.Contains(o.stdout+o.stderr, secret) {
				t.Errorf("the report has the host's file:\n%s%s", o.stdout, o.stderr)
			}
		})
	}
}

// TestProfileIsSwapped: the JVM's user replaces the file into which the JVM's profiler writes, as soon as it exists.
func TestProfileIsSwapped(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root)
	for name, forge := range map[string]func(path, shadow string) error{
		"fifo":   func(path, _ string) error { return syscall.Mkfifo(path, 0o666) },
		"link":   func(path, shadow string) error { return os.Symlink(shadow, path) },
		"device": func(path, _ string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|5) }, // zero(4)
		"huge": func(path, _ string) error {
			if err := os.WriteFile(path, []byte("FLR\x00"), 0o666); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pid := startOpenJVM(t, "1777")
			shadow := filepath.Join(tmpOf(pid), "shadow")
			if err := os.WriteFile(shadow, []byte(secret), 0o600); err != nil {
				t.Fatal(err)
			}
			end, swapped := time.Now().Add(6*grace), 0
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for i := 0; time.Now().Before(end); i++ {
					time.Sleep(100 * time.Microsecond) // other tests run beside it
					select {
					case <-stop:
						return
					default:
					}
					found, _ := filepath.Glob(filepath.Join(tmpOf(pid), ".perfdoctor-*.jfr"))
					for _, file := range found {
						other := filepath.Join(tmpOf(pid), "other"+strconv.Itoa(i))
						if forge(other, "/tmp/shadow") == nil && os.Lchown(other, nobody, nobody) == nil &&
							os.Rename(other, file) == nil {
							swapped++
						}
					}
				}
			}()
			const window = 2 * time.Second
			o := perfdoctor(t, window, "diagnose", "-v", "--pid", pid, "--duration", window.String())
			close(stop)
			<-done
			if o.code != 0 && o.code != 3 && o.code != 4 || strings.Contains(o.stderr, "panic") ||
				strings.Contains(o.stdout, secret) {
				t.Errorf("exit code %d:\n%s%s", o.code, o.stdout, o.stderr)
			}
			if swapped == 0 {
				t.Error("nothing was swapped: the attack is none")
			}
		})
	}
}
