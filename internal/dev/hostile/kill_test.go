package hostile_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

const (
	// killsVar and seedVar set the number of killed runs, and repeat a test's choices.
	killsVar = "PERFDOCTOR_KILLS"
	seedVar  = "PERFDOCTOR_KILL_SEED"
	// defaultKills is what continuous integration has time for: each command twice.
	defaultKills = 22
)

// victim is a command to be killed.
type victim struct {
	name string
	args []string
	span time.Duration // how long it runs by itself: kills are within this time after the start
}

// fate is the outcome of a run.
type fate struct {
	signal syscall.Signal
	ended  bool // before the signal
}

// TestKilled ends runs of every command that measures or writes, at random moments, by every signal that ends programs.
// Nothing of them is left, or only what the next run removes. A run that has ended when its signal comes is repeated.
func TestKilled(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Java)
	t.Parallel()
	kills, seed := number(t, killsVar, defaultKills), number(t, seedVar, uint64(time.Now().UnixNano()))
	t.Logf("%s=%d %s=%d", killsVar, kills, seedVar, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	java, out := startOpenJVM(t, "1777"), t.TempDir()
	list := victims(t, sleeper(t), java, out)
	fates := map[string][]fate{}
	before := ours(t)
	left, killed := 0, 0
	for i := 0; killed < int(kills) && i < 4*int(kills); i++ {
		v := &list[killed%len(list)]
		signal := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}[random.IntN(4)]
		after := time.Duration(random.Int64N(int64(v.span)))
		args := slices.Clone(v.args)
		for j := range args {
			args[j] = strings.ReplaceAll(args[j], "NUMBER", strconv.Itoa(i))
		}
		f := kill(t, args, after, signal)
		fates[v.name] = append(fates[v.name], f)
		if f.ended {
			v.span = v.span * 3 / 4 // it took longer when that was measured
		} else {
			killed++
		}
		if diff := before.changed(ours(t)); diff != "" {
			t.Errorf("%q, %v after %v: %s", args, signal, after, diff)
		}
		if len(leftIn(t, java)) > 0 {
			left++
		}
		if t.Failed() {
			break
		}
	}
	report(t, list, fates)
	if killed < int(kills) && !t.Failed() {
		t.Errorf("%d of %d runs were killed: the others had ended", killed, 4*kills)
	}
	t.Logf("%d runs were followed by files in the JVM's /tmp", left)
	wholeFiles(t, out)
	nothingLeft(t, java, out)
}

func number(t *testing.T, name string, unset uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// victims are all commands that measure or write. For those that read, a recording is made under as many names as a
// trend needs.
func victims(t *testing.T, process, java, out string) []victim {
	t.Helper()
	recordings := t.TempDir()
	saved := []string{filepath.Join(recordings, "0.zip")}
	perfdoctor(t, time.Second, "diagnose", "--duration", "1s", "--save", saved[0])
	for i := range 3 {
		saved = append(saved, filepath.Join(recordings, fmt.Sprintf("%d.zip", i+1)))
		if err := os.Link(saved[0], saved[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(name string, args ...string) victim {
		warm := slices.Clone(args)
		for i := range warm {
			warm[i] = strings.ReplaceAll(warm[i], "NUMBER", "warm")
		}
		return victim{name: name, args: args, span: perfdoctor(t, toRead, warm...).took}
	}
	diagnose := func(name string, more ...string) victim {
		return ends(name, slices.Concat([]string{"diagnose", "--duration", "1s", "--interval", "250ms"}, more)...)
	}
	return []victim{
		diagnose("diagnose --pid", "--pid", process),
		diagnose("diagnose"),
		diagnose("diagnose of a JVM", "--pid", java),
		diagnose("diagnose --deep", "--deep"),
		diagnose("diagnose --save", "--pid", process, "--save", filepath.Join(out, "NUMBER.zip")),
		diagnose("diagnose --save of a JVM", "--pid", java, "--save", filepath.Join(out, "NUMBER")),
		{
			"exporter", // it opens what it has within a second, and does not end
			[]string{"exporter", "--window", "5s", "--interval", "1s", "--web.listen-address", "127.0.0.1:0"},
			2 * time.Second,
		},
		ends("preflight", "preflight"),
		ends("report", "report", saved[0], "--html", filepath.Join(out, "NUMBER.html")),
		ends("compare", "compare", saved[0], saved[1]),
		ends("trend", "trend", recordings),
	}
}

// kill runs a command, sends it a signal after a while, and checks that it ends with everything that it started.
func kill(t *testing.T, args []string, after time.Duration, signal syscall.Signal) fate {
	t.Helper()
	command := exec.Command(program, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it starts is known by its group
	var said bytes.Buffer
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	pid, done := command.Process.Pid, make(chan struct{})
	go func() {
		_ = command.Wait() // that a signal ended it
		close(done)
	}()
	held := objects{}
	end := time.After(after)
	for f := (fate{signal: signal}); ; {
		select {
		case <-done:
			f.ended = true
			gone(t, args, pid, held)
			return f
		case <-end:
			held.add(pid)
			if err := command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Error(err)
			}
			select {
			case <-done:
			case <-time.After(grace): // its report and its cleanup
				t.Errorf("%q still runs %v after %v", args, grace, signal)
				_ = command.Process.Kill()
				<-done
			}
			if strings.Contains(said.String(), "goroutine ") {
				t.Errorf("%q, %v after %v: %s", args, signal, after, &said)
			}
			gone(t, args, pid, held)
			return f
		case <-time.After(50 * time.Millisecond):
			held.add(pid)
		}
	}
}

// report prints how many runs of each command met each signal.
func report(t *testing.T, list []victim, fates map[string][]fate) {
	t.Helper()
	for _, v := range list {
		counts, ended := map[syscall.Signal]int{}, 0
		for _, f := range fates[v.name] {
			if f.ended {
				ended++
				continue
			}
			counts[f.signal]++
		}
		t.Logf("%-26s %3d runs: SIGKILL %d, SIGTERM %d, SIGINT %d, SIGHUP %d, ended before %d", v.name,
			len(fates[v.name]),
			counts[syscall.SIGKILL], counts[syscall.SIGTERM], counts[syscall.SIGINT], counts[syscall.SIGHUP], ended)
	}
}

// wholeFiles checks that every file with its final name is complete.
func wholeFiles(t *testing.T, out string) {
	t.Helper()
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	whole, parts := 0, 0
	for _, e := range entries {
		path := filepath.Join(out, e.Name())
		var err error
		switch {
		case strings.HasSuffix(e.Name(), ".partial"):
			parts++
			continue
		case e.IsDir():
			_, err = os.Stat(filepath.Join(path, "samples.jsonl"))
		case strings.HasSuffix(e.Name(), ".zip"):
			var z *zip.ReadCloser
			if z, err = zip.OpenReader(path); err == nil {
				err = z.Close()
			}
		default:
			var page []byte
			if page, err = os.ReadFile(path); err == nil && !bytes.HasSuffix(bytes.TrimSpace(page), []byte("</html>")) {
				err = errors.New("half a page")
			}
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		whole++
	}
	t.Logf("%d files and directories are complete, %d were left half written", whole, parts)
}

// nothingLeft runs perfdoctor twice more. Then everything that killed runs left is gone, and the JVM can be profiled.
func nothingLeft(t *testing.T, java, out string) {
	t.Helper()
	perfdoctor(t, time.Second, "diagnose", "--duration", "1s", "--save", filepath.Join(out, "last.zip"))
	if files, err := filepath.Glob(filepath.Join(out, ".*.partial")); err != nil || len(files) > 0 {
		t.Errorf("a run has left %v, %v", files, err)
	}
	if files := leftIn(t, java); len(files) > 0 {
		t.Errorf("a diagnosis of the host has left in the JVM's /tmp: %v", files)
	}
	profiled := filepath.Join(out, "profiled")
	o := perfdoctor(t, 2*time.Second, "diagnose", "--pid", java, "--duration", "2s", "--save", profiled)
	if files := leftIn(t, java); len(files) > 0 {
		t.Errorf("a diagnosis of the JVM has left %v", files)
	}
	if _, err := os.Stat(filepath.Join(profiled, "profiles", "alloc.pb.gz")); err != nil {
		t.Errorf("the JVM is not profiled any more: %v\n%s\n%s", err, o.stdout, o.stderr)
	}
	if list := perfEventsOf(java); list > 0 {
		t.Errorf("the JVM has %d perf events", list)
	}
}

// leftIn returns perfdoctor's files in the directories that a JVM can be given files in.
func leftIn(t *testing.T, java string) (files []string) {
	t.Helper()
	for _, dir := range []string{"tmp", "dev/shm", "var/tmp"} {
		found, err := filepath.Glob(filepath.Join("/proc", java, "root", dir, ".perfdoctor-*"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return files
}
