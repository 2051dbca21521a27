package partial

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
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
		return Dir(folder+"/", func(tmp string) error { put(t, filepath.Join(tmp, "meta.json")); return err })
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

// What a killed run left is removed; not what another one writes, another program owns, or only looks like it.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		".old.zip.12.perfdoctor.partial", ".old.12.perfdoctor.partial/profiles/cpu.pb.gz",
		".living.zip.13.perfdoctor.partial",
		".other.12.partial", "target",
	} {
		put(t, filepath.Join(dir, name))
	}
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
		".fifo.12.perfdoctor.partial", ".link.12.perfdoctor.partial", ".living.zip.13.perfdoctor.partial",
		".other.12.partial", "target",
	}
	if os.Geteuid() == 0 {
		stranger := filepath.Join(dir, ".stranger.12.perfdoctor.partial")
		put(t, stranger)
		if err := os.Chown(stranger, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		want = append(want[:4:4], ".stranger.12.perfdoctor.partial", "target")
	}
	if err := File(filepath.Join(dir, "zz"), func(*os.File) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(want, "zz"), names(t, dir)); diff != "" {
		t.Error(diff)
	}
}
