package door_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// target is a directory of /proc with a root, for a program of this uid.
func target(t *testing.T, uid int) (dir, root string) {
	t.Helper()
	dir = t.TempDir()
	root = filepath.Join(dir, "root")
	check(t, os.MkdirAll(filepath.Join(root, "tmp"), 0o755))
	check(t, os.Chmod(dir, 0o755))
	check(t, os.WriteFile(filepath.Join(dir, "status"), fmt.Appendf(nil, "Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", uid),
		0o600))
	return dir, root
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOpenOwn is attacks 1 and 6 and the swap of hsperfdata: what is under the name of a program's own file.
func TestOpenOwn(t *testing.T) {
	testenv.Need(t, testenv.Root)
	const uid = 12345
	dir, root := target(t, uid)
	at := func(name string) string { return filepath.Join(root, "tmp", name) }
	own := func(name string, mode os.FileMode) {
		check(t, os.WriteFile(at(name), []byte("own"), mode))
		check(t, os.Chmod(at(name), mode))
		check(t, os.Chown(at(name), uid, uid))
	}
	own("good", 0o600)
	own("open to all", 0o666)
	own("two names", 0o600)
	check(t, os.Link(at("two names"), at("second")))
	check(t, os.WriteFile(at("root's"), []byte("secret"), 0o600))
	check(t, os.WriteFile(at("everybody's"), []byte("public"), 0o644))
	check(t, os.Symlink("root's", at("link to root's")))
	check(t, os.Symlink("../../../tmp/../tmp/good", at("link to good")))
	check(t, os.Symlink("loop", at("loop")))
	check(t, os.Symlink(filepath.Join(dir, "status"), at("out")))
	check(t, unix.Mkfifo(at("pipe"), 0o666))
	check(t, unix.Mknod(at("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(10, 130)))) // watchdog: opening it arms it
	check(t, os.Mkdir(at("locked"), 0o700))
	check(t, os.WriteFile(at("locked/file"), []byte("secret"), 0o644))
	for _, c := range []struct {
		name      string
		own, read bool
	}{
		{"good", true, true},
		{"link to good", true, true},
		{"open to all", false, true},
		{"second", false, true},
		{"root's", false, false},
		{"everybody's", false, true},
		{"link to root's", false, false},
		{"loop", false, false},
		{"out", false, false},
		{"pipe", false, false},
		{"device", false, false},
		{"locked/file", false, false},
		{"none", false, false},
	} {
		r, err := door.Enter(dir)
		check(t, err)
		f, err := r.OpenOwn("/tmp/" + c.name)
		if got := err == nil; got != c.own {
			t.Errorf("%s as its own: opened %v, want %v: %v", c.name, got, c.own, err)
		}
		_ = f.Close()
		f, err = r.Open("/tmp/" + c.name)
		if got := err == nil; got != c.read {
			t.Errorf("%s: opened %v, want %v: %v", c.name, got, c.read, err)
		}
		_ = f.Close()
		r.Close()
	}
	r, err := door.Enter(dir)
	check(t, err)
	defer r.Close()
	if _, err := r.OpenOwn("/tmp/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestOpenUnlinked: a path that a stranger could have redirected opens nothing, whoever may read its target.
func TestOpenUnlinked(t *testing.T) {
	testenv.Need(t, testenv.Root)
	dir, root := target(t, 0)
	at := func(name string) string { return filepath.Join(root, "tmp", name) }
	check(t, os.WriteFile(at("good"), []byte("{}"), 0o600))
	check(t, os.WriteFile(at("first"), []byte("{}"), 0o600))
	check(t, os.Link(at("first"), at("second")))
	check(t, os.Symlink("good", at("link")))
	check(t, os.Symlink(".", at("here")))
	check(t, unix.Mkfifo(at("pipe"), 0o600))
	r, err := door.Enter(dir)
	check(t, err)
	defer r.Close()
	for name, want := range map[string]bool{
		"good": true, "second": false, "link": false, "here/good": false,
		"pipe": false,
	} {
		f, err := r.OpenUnlinked("/tmp/" + name)
		if got := err == nil; got != want {
			t.Errorf("%s: opened %v, want %v: %v", name, got, want, err)
		}
		_ = f.Close()
	}
}

// TestRead is attack 3: a command line of 20 GiB.
func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "cmdline")
	check(t, os.WriteFile(name, []byte("java\x00"), 0o600))
	if text, cut, err := door.Read(name, 100); err != nil || cut || string(text) != "java\x00" {
		t.Errorf("a short one: %q, %v, %v", text, cut, err)
	}
	check(t, os.Truncate(name, 20<<30))
	text, cut, err := door.Read(name, door.MaxArguments)
	if err != nil || !cut || len(text) != door.MaxArguments || !bytes.HasPrefix(text, []byte("java\x00")) {
		t.Errorf("a long one: %d bytes, cut %v, %v", len(text), cut, err)
	}
}

// TestMaps ends with a whole line, however many there are.
func TestMaps(t *testing.T) {
	dir := t.TempDir()
	line := "7f0000000000-7f0000001000 r-xp 00000000 00:00 0 \n"
	check(t, os.WriteFile(filepath.Join(dir, "maps"), bytes.Repeat([]byte(line), door.MaxMaps/len(line)+10), 0o600))
	maps, err := door.Maps(dir)
	check(t, err)
	defer maps.Close()
	want := int64(door.MaxMaps / len(line) * len(line))
	if n, err := io.Copy(io.Discard, maps); err != nil || n != want {
		t.Errorf("maps: %d bytes, want %d, %v", n, want, err)
	}
}

// TestDescriptors: descriptors are listed. The result is a link's text, not the file it leads to.
func TestDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	check(t, err)
	defer r.Close()
	defer w.Close()
	name := fmt.Sprint(r.Fd())
	names, err := door.Descriptors("/proc/self", 1000)
	check(t, err)
	if !slices.Contains(names, name) {
		t.Errorf("descriptors %v, want %s among them", names, name)
	}
	if text, err := door.Descriptor("/proc/self", name); err != nil || !strings.HasPrefix(text, "pipe:[") {
		t.Errorf("descriptor %s: %q, %v, want a pipe", name, text, err)
	}
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "fd"), 0o700))
	check(t, os.Symlink("/nowhere", filepath.Join(dir, "fd", "7")))
	if text, err := door.Descriptor(dir, "7"); err != nil || text != "/nowhere" {
		t.Errorf("a link to nowhere: %q, %v", text, err)
	}
	if names, err := door.Descriptors(filepath.Join(dir, "none"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no process: %v, %v", names, err)
	}
}

// TestNames looks at a file in a directory without opening it, and returns a directory only for a directory.
func TestNames(t *testing.T) {
	testenv.Need(t, testenv.Root)
	dir, root := target(t, 0)
	check(t, os.WriteFile(filepath.Join(root, "tmp/file"), []byte("text"), 0o600))
	check(t, os.Symlink("file", filepath.Join(root, "tmp/link")))
	check(t, os.Symlink("/tmp", filepath.Join(root, "absolute")))
	r, err := door.Enter(dir)
	check(t, err)
	defer r.Close()
	if _, err := r.Directory("/tmp/file"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file as a directory: %v", err)
	}
	tmp, err := r.Directory("/absolute/../absolute")
	check(t, err)
	defer unix.Close(tmp)
	if st, err := door.StatIn(tmp, "file"); err != nil || st.Size != 4 {
		t.Errorf("%d bytes, %v", st.Size, err)
	}
	if _, err := door.OpenIn(tmp, "link", 0); err == nil {
		t.Error("a link was followed")
	}
	if _, err := door.OpenIn(tmp, "file", 1); err == nil {
		t.Error("another's file was opened")
	}
	check(t, os.Symlink(root, filepath.Join(dir, "cwd")))
	cwd, err := door.EnterWorkingDirectory(dir)
	check(t, err)
	defer cwd.Close()
	for _, name := range []string{"../status", "absolute/file"} {
		if _, err := cwd.Open(name); err == nil || !strings.Contains(err.Error(), "leads out") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOtherFileSystem refuses what the kernel does not serve by itself: a magic link in procfs could lead anywhere.
func TestOtherFileSystem(t *testing.T) {
	r, err := door.Enter("/proc/self")
	check(t, err)
	defer r.Close()
	f, err := r.Open("/proc/self/status")
	if err == nil {
		_ = f.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "of type proc") {
		t.Errorf("a file of procfs: %v", err)
	}
}
