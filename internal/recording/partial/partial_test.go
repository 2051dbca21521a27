package partial

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func put(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestWholeOrNothing(t *testing.T) {
	full := errors.New("no space left on device")
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "a.zip"), filepath.Join(dir, "b")
	writeFile := func(err error) error {
		return File(file, func(f *os.File) error { return first(err, os.WriteFile(f.Name(), []byte("x"), 0o600)) })
	}
	writeDir := func(err error) error {
		return How{}.Dir(folder+"/", func(root *os.Root) error {
			return first(root.WriteFile("meta.json", []byte("x"), 0o600), err)
		})
	}
	if err := errors.Join(writeFile(full), writeDir(full)); !errors.Is(err, full) || len(names(t, dir)) > 0 {
		t.Errorf("error %v, left: %v", err, names(t, dir))
	}
	if err := errors.Join(writeFile(nil), writeDir(nil)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(writeFile(nil)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second file: %v", err)
	}
	if err := errors.Join(writeDir(nil)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second directory: %v", err)
	}
	if diff := cmp.Diff([]string{"a.zip", "b"}, names(t, dir)); diff != "" {
		t.Error(diff)
	}
	for path, want := range map[string]fs.FileMode{file: 0o600, folder: fs.ModeDir | 0o700} {
		if st, err := os.Stat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: mode %v, %v", path, st.Mode(), err)
		}
	}
}

// What a killed run left is removed. What another run writes, another program owns, or only looks like it, is not.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		".old.zip.12.perfdoctor.partial", ".old.12.perfdoctor.partial/profiles/cpu.pb.gz",
		".living.zip.13.perfdoctor.partial",
		".other.12.partial", "target",
	} {
		put(t, filepath.Join(dir, name))
	}
	if err := os.Chmod(filepath.Join(dir, ".old.12.perfdoctor.partial"), closed|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, ".foreign.12.perfdoctor.partial/precious")) // a directory of this user's, renamed
	if err := os.Symlink("target", filepath.Join(dir, ".link.12.perfdoctor.partial")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, ".fifo.12.perfdoctor.partial"), 0o600); err != nil {
		t.Fatal(err)
	}
	living, err := os.Open(filepath.Join(dir, ".living.zip.13.perfdoctor.partial"))
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close()
	if err := lock(living); err != nil {
		t.Fatal(err)
	}
	want := []string{
		".fifo.12.perfdoctor.partial", ".foreign.12.perfdoctor.partial", ".link.12.perfdoctor.partial",
		".living.zip.13.perfdoctor.partial",
		".other.12.partial", "target",
	}
	if os.Geteuid() == 0 {
		stranger := filepath.Join(dir, ".stranger.12.perfdoctor.partial")
		put(t, stranger)
		if err := os.Chown(stranger, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		want = append(want[:5:5], ".stranger.12.perfdoctor.partial", "target")
	}
	if err := File(filepath.Join(dir, "zz"), func(*os.File) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(want, "zz"), names(t, dir)); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(filepath.Join(dir, ".foreign.12.perfdoctor.partial/precious")); err != nil {
		t.Error(err)
	}
}

// A file is replaced only on request, and nothing but a file ever is.
func TestOver(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("file"))
	put(t, at("folder/x"))
	put(t, at("target"))
	if err := os.Symlink("target", at("link")); err != nil {
		t.Fatal(err)
	}
	over := How{Over: true}
	write := func(f *os.File) error { _, err := f.WriteString("new"); return err }
	for name, want := range map[string]error{"file": nil, "none": nil, "folder": fs.ErrExist, "link": fs.ErrExist} {
		if err := over.File(at(name), write); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", name, err, want)
		}
	}
	for _, name := range []string{"file", "folder", "link"} {
		if err := over.Dir(at(name), func(*os.Root) error { return nil }); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a directory over %s: %v", name, err)
		}
	}
	for name, want := range map[string]string{"file": "new", "none": "new", "folder/x": "x", "target": "x"} {
		if got, err := os.ReadFile(at(name)); string(got) != want || err != nil {
			t.Errorf("%s holds %q, want %q; %v", name, got, want, err)
		}
	}
	if diff := cmp.Diff([]string{"file", "folder", "link", "none", "target"}, names(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// What root makes for someone else belongs to them down to the last file. What root did not make does not.
func TestOwner(t *testing.T) {
	testenv.Need(t, testenv.Root)
	dir := t.TempDir()
	nobody := How{Owner: &Owner{65534, 65534}}
	file, folder := filepath.Join(dir, "a.zip"), filepath.Join(dir, "b")
	err := errors.Join(nobody.File(file, func(*os.File) error { return nil }),
		nobody.Dir(folder, func(root *os.Root) error {
			return first(root.MkdirAll("profiles", 0o700), root.WriteFile("profiles/cpu.pb.gz", nil, 0o600))
		}))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]uint32{
		file: 65534, folder: 65534, folder + "/profiles": 65534, folder + "/profiles/cpu.pb.gz": 65534, dir: 0,
	} {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Uid != want || st.Gid != want {
			t.Errorf("%s is of user %d and group %d, want %d; %v", path, st.Uid, st.Gid, want, err)
		}
	}
}

// A directory that something else put in the place of the new one is not written to.
func TestForeignDir(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"full": func(path string) error { return os.WriteFile(filepath.Join(path, "x"), nil, 0o600) },
		"open": func(path string) error { return os.Chmod(path, 0o755) },
		"link": func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc", path)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "new")
			if err := errors.Join(os.Mkdir(path, 0o700), put(path)); err != nil {
				t.Fatal(err)
			}
			if f, err := openNew(path); err == nil {
				t.Errorf("opened %s", f.Name())
			}
		})
	}
}
