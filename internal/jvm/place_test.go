package jvm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// What a killed run left goes. What lives, belongs to others or is not what it seems stays.
func TestCleanLeftovers(t *testing.T) {
	testenv.Need(t, testenv.Root)
	tg := setup{uid: nobody}.start(t)
	vm := tg.inspect(t)
	kill := func(args ...string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], append([]string{strconv.Itoa(tg.pid)}, args...)...)
		cmd.Env = append(os.Environ(), childVar+"=place and be killed")
		return cmd
	}
	out, err := kill().Output()
	if err == nil || !strings.HasPrefix(string(out), "/tmp/"+ownPrefix) {
		t.Fatalf("the child was not killed: %s", out)
	}
	left := strings.TrimSpace(string(out))

	file, err := vm.Place("held", []byte("x"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Remove()
	outside := filepath.Join(t.TempDir(), "outside")
	random := ownPrefix + strings.Repeat("0", 32) + "-"
	link, strange, directory := filepath.Join(tg.cwd, random+"link"), "/tmp/"+random+"strange",
		filepath.Join(tg.cwd, random+"dir")
	defer os.Remove(strange)
	err = errors.Join(os.WriteFile(outside, nil, 0o666), os.Symlink(outside, link), os.Lchown(link, nobody, nobody),
		os.WriteFile(strange, nil, 0o666), os.Chown(strange, 12345, 12345), os.Mkdir(directory, 0o777),
		os.Chown(directory, nobody, nobody))
	if err != nil {
		t.Fatal(err)
	}

	found, err := vm.CleanLeftovers()
	removed := found.Removed
	if err != nil {
		t.Fatal(err)
	}
	nspid := strconv.Itoa(vm.NSPid)
	for _, want := range []string{left, "/tmp/perf-" + nspid + ".map", "/proc/self/cwd/.attach_pid" + nspid} {
		if !strings.Contains(strings.Join(removed, "\n"), want) {
			t.Errorf("%s was not removed; removed were %v", want, removed)
		}
	}
	if len(removed) != 3 {
		t.Errorf("removed: %v", removed)
	}
	for _, path := range []string{link, outside, strange, directory, file.Path} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("what is not a leftover was removed: %v", err)
		}
	}
	// Not ours: the trigger of another tool, and a map that the user had written.
	trigger, userMap := filepath.Join(tg.cwd, ".attach_pid"+nspid), "/tmp/perf-"+nspid+".map"
	defer os.Remove(userMap)
	for _, path := range []string{trigger, userMap} {
		if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chown(path, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := vm.CleanLeftovers(); err != nil || len(left.Removed) != 0 {
		t.Errorf("removed %v, %v", left.Removed, err)
	}
	if _, err := vm.PerfMap(within(t, 10*time.Second), false); err != nil {
		t.Errorf("with a map of the user's own: %v", err)
	}
	for _, path := range []string{trigger, userMap} {
		if text, err := os.ReadFile(path); err != nil || len(text) != 0 {
			t.Errorf("what is another's was changed: %q, %v", text, err)
		}
	}
}

// What a living perfdoctor holds is not a leftover, even if it is in another process.
func TestCleanLeavesTheLiving(t *testing.T) {
	testenv.Need(t, testenv.Root)
	tg := setup{uid: nobody}.start(t)
	cmd := exec.Command(os.Args[0], strconv.Itoa(tg.pid), "wait")
	cmd.Env = append(os.Environ(), childVar+"=place and be killed")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil || !bytes.HasPrefix(line, []byte("/tmp/"+ownPrefix)) {
		t.Fatalf("%s %v", line[:n], err)
	}
	if left, err := tg.inspect(t).CleanLeftovers(); err != nil || len(left.Removed) != 0 || len(left.Held) != 3 {
		t.Errorf("while its perfdoctor lives: %+v, %v", left, err)
	}
	in.Close()
	cmd.Wait()
	if left, err := tg.inspect(t).CleanLeftovers(); err != nil || len(left.Removed) != 3 {
		t.Errorf("removed after its perfdoctor was killed: %v, %v", left.Removed, err)
	}
	tg.unharmed(t)
}

// inChroot is a process with another root that does nothing.
func inChroot(dir string) int {
	if err := errors.Join(unix.Chroot(dir), unix.Chdir("/")); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin) //nolint:errcheck // until the test ends
	return 0
}

// hostile returns a process whose root is dir.
func hostile(t *testing.T, dir string) *VM {
	t.Helper()
	testenv.Need(t, testenv.Root)
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), childVar+"=chroot")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	line := make([]byte, 100)
	if n, err := out.Read(line); err != nil || string(line[:n]) != "ready\n" {
		t.Fatalf("%s %v", line[:n], err)
	}
	vm := &VM{PID: cmd.Process.Pid}
	if err := errors.Join(vm.readStatus(), vm.check()); err != nil {
		t.Fatal(err)
	}
	return vm
}

// Links inside a target do not lead out of it: neither absolute ones, nor .., nor magic ones.
func TestLinksDoNotLeadOut(t *testing.T) {
	// Not below /tmp, whose name is taken by the link.
	outside, err := os.MkdirTemp("/var/tmp", "perfdoctor-jvm-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(outside) })
	for _, test := range []struct {
		name, link string
		prepare    string // a directory to make inside
		want       string // where the file lies, from the target's root; "" for no place
	}{
		{"absolute, there only outside", outside, "", ""},
		{"absolute, there inside too", outside, outside, outside},
		{"upwards", "../../../../../../../.." + outside, "", ""},
		{"upwards, there inside", "../../../../../../../../inner", "/inner", "/inner"},
		{"itself", "/tmp", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			if err := errors.Join(os.MkdirAll(root+test.prepare, 0o777),
				os.Symlink(test.link, root+"/tmp")); err != nil {
				t.Fatal(err)
			}
			vm := hostile(t, root)
			tree, err := vm.enter()
			if err != nil {
				t.Fatal(err)
			}
			defer tree.close()
			f, err := tree.places()[0].create("x", []byte("x"), 0o600)
			if (err == nil) != (test.want != "") {
				t.Errorf("placed: %+v, %v", f, err)
			}
			if err == nil {
				if _, err := os.Stat(root + test.want + "/" + f.name); err != nil {
					t.Errorf("not where it should be: %v", err)
				}
				if err := f.Remove(); err != nil {
					t.Error(err)
				}
			}
			if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
				t.Errorf("outside has %v, %v", entries, err)
			}
		})
	}
}

func TestMagicLinkIsNotFollowed(t *testing.T) {
	testenv.Need(t, testenv.Root)
	vm := &VM{PID: os.Getpid()}
	if err := errors.Join(vm.readStatus(), vm.check()); err != nil {
		t.Fatal(err)
	}
	tree, err := vm.enter()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	for _, path := range []string{"/proc/1/root/tmp", "/proc/self/root/tmp"} {
		if fd, err := tree.directory(path); err == nil || !strings.Contains(err.Error(), "of type proc") {
			t.Errorf("followed a magic link to %d: %v", fd, err)
		}
	}
	for _, path := range []string{"/", "/usr/lib", "usr/lib", "/usr/../usr//lib/"} {
		fd, err := tree.directory(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		closeQuietly(fd)
	}
}

// Files that would block or deceive a reader.
func TestReadTargetFile(t *testing.T) {
	root := t.TempDir()
	err := errors.Join(os.WriteFile(root+"/file", []byte("text"), 0o644), unix.Mkfifo(root+"/fifo", 0o644),
		os.Symlink("/file", root+"/link"), os.Symlink("/etc/passwd", root+"/out"))
	if err != nil {
		t.Fatal(err)
	}
	vm := hostile(t, root)
	for _, test := range []struct{ path, want, wantErr string }{
		{"/file", "text", ""},
		{"file", "text", ""},
		{"/link", "text", ""},
		{"/out", "", "no such file"},
		{"../etc/passwd", "", "in the target"},
		{"/fifo", "", "no regular file"},
		{"/", "", "no regular file"},
	} {
		got, err := vm.readTargetFile(test.path, 10)
		if got != test.want || (err == nil) != (test.wantErr == "") ||
			(err != nil && !strings.Contains(err.Error(), test.wantErr)) {
			t.Errorf("%s: %q, %v", test.path, got, err)
		}
	}
	if _, err := vm.readTargetFile("/file", 3); err == nil || !strings.Contains(err.Error(), "larger than 3 bytes") {
		t.Errorf("too large: %v", err)
	}
}

// A file cannot be read through a name that the target gave to something else.
func TestOpenDistrusts(t *testing.T) {
	testenv.Need(t, testenv.Root)
	root := t.TempDir()
	if err := os.Mkdir(root+"/tmp", 0o777); err != nil {
		t.Fatal(err)
	}
	vm := hostile(t, root)
	f, err := vm.Place("out", []byte("ours"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || string(text) != "ours" {
		t.Errorf("%q, %v", text, err)
	}
	r.Close()
	path := root + f.Path
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, replace := range []func() error{
		func() error { return os.Symlink("/etc/passwd", path) },
		func() error { return unix.Mkfifo(path, 0o600) },
		func() error { return os.Mkdir(path, 0o700) },
	} {
		if err := errors.Join(os.Remove(path), replace()); err != nil {
			t.Fatal(err)
		}
		if r, err := f.Open(); err == nil {
			t.Errorf("opened %s", r.Name())
		}
	}
	if err := f.Remove(); err == nil {
		t.Error("a directory in its place was removed")
	}
	for _, name := range []string{"", "a/b", "a\x00"} {
		if _, err := vm.Place(name, nil, 0o600); err == nil {
			t.Errorf("placed %q", name)
		}
	}
}
