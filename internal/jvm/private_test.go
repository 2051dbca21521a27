package jvm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// Attack 2: a library is placed only where no other user can rename a file over it.
func TestPlaceOnlyWhereNobodyCanSwap(t *testing.T) {
	testenv.Need(t, testenv.Root)
	const stranger = 12345
	for _, test := range []struct {
		name             string
		rootMode, mode   os.FileMode
		rootOwner, owner int
		link             bool // /tmp is a link to /inner
		want             string
	}{
		{name: "sticky", rootMode: 0o755, mode: 0o777 | os.ModeSticky},
		{name: "sticky behind a link", rootMode: 0o755, mode: 0o777 | os.ModeSticky, link: true},
		{name: "for root alone", rootMode: 0o755, mode: 0o755},
		{name: "not sticky", rootMode: 0o755, mode: 0o777, want: "mode 0777, which is not sticky"},
		{
			name: "not sticky behind a link", rootMode: 0o755, mode: 0o777, link: true,
			want: "mode 0777, which is not sticky",
		},
		{name: "for a group", rootMode: 0o755, mode: 0o775, want: "mode 0775, which is not sticky"},
		{
			name: "sticky of a stranger", rootMode: 0o755, mode: 0o777 | os.ModeSticky, owner: stranger,
			want: "uid 12345",
		},
		{
			name: "below one that is not sticky", rootMode: 0o777, mode: 0o777 | os.ModeSticky,
			want: "mode 0777, which is not sticky",
		},
		{
			name: "below a stranger's", rootMode: 0o755, mode: 0o777 | os.ModeSticky, rootOwner: stranger,
			want: "uid 12345",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "tmp")
			if test.link {
				dir = filepath.Join(root, "inner")
				if err := os.Symlink("/inner", filepath.Join(root, "tmp")); err != nil {
					t.Fatal(err)
				}
			}
			err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, test.owner, test.owner), os.Chmod(dir, test.mode),
				os.Chown(root, test.rootOwner, test.rootOwner), os.Chmod(root, test.rootMode))
			if err != nil {
				t.Fatal(err)
			}
			vm := hostile(t, root)
			tree, err := vm.enter()
			if err != nil {
				t.Fatal(err)
			}
			defer tree.close()
			f, err := tree.places()[0].create("lib.so", []byte("x"), 0o600)
			if err == nil {
				err = f.Remove()
			}
			if test.want == "" && err != nil {
				t.Errorf("not placed: %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("placed or refused for another reason: %v, want %q", err, test.want)
			}
		})
	}
}

// The mapped library is told apart from the one that was written.
func TestVerifyLoaded(t *testing.T) {
	testenv.Need(t, testenv.Root)
	for _, swap := range []bool{false, true} {
		path := t.TempDir()
		dir, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f, err := createIn(dir, "lib.so", make([]byte, os.Getpagesize()), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f.Path = filepath.Join(path, f.name)
		if swap {
			other := filepath.Join(path, "other")
			err := errors.Join(os.WriteFile(other, make([]byte, os.Getpagesize()), 0o600), os.Rename(other, f.Path))
			if err != nil {
				t.Fatal(err)
			}
		}
		loaded, err := os.Open(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		area, err := unix.Mmap(int(loaded.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		known, err := (&VM{PID: os.Getpid()}).VerifyLoaded(f, true)
		if !known {
			t.Errorf("swapped %v: it could not be told", swap)
		}
		var r *Refusal
		if got := errors.As(err, &r) && r.Cause == Replaced; got != swap {
			t.Errorf("swapped %v: %v", swap, err)
		}
		f.as = credentials{uid: os.Geteuid(), gid: os.Getegid()}
		if err := errors.Join(unix.Munmap(area), loaded.Close(), f.Remove()); err != nil {
			t.Error(err)
		}
	}
}

func TestNamespaceRoot(t *testing.T) {
	for _, test := range []struct {
		text string
		want int
		ok   bool
	}{
		{"         0          0 4294967295\n", 0, true},
		{"0 100000 65536\n", 100000, true},
		{"1000 5 1\n0 7 1\n", 7, true},
		{"1000 1000 1\n", 0, false},
		{"0 x 1\n", 0, false},
		{"", 0, false},
	} {
		if got, ok := namespaceRoot(test.text); got != test.want || ok != test.ok {
			t.Errorf("%q: %d, %v", test.text, got, ok)
		}
	}
}
