// Package partial writes files and directories that appear as a whole or not at all.
//
// While a file is being written it has a separate name beside the final one, and it is locked as long as its writer
// lives. Nobody holds what a killed writer left behind: the next writer in the directory removes it.
package partial

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"golang.org/x/sys/unix"
)

// own matches the names of unfinished files: the name of the result, and the writer's process id.
var own = regexp.MustCompile(`^\..+\.\d+\.perfdoctor\.partial$`)

func nameOf(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d.perfdoctor.partial", filepath.Base(path), os.Getpid()))
}

// How says what to do about an existing file, and who owns the new one.
type How struct {
	Over  bool   // replace an existing file; anything else is never replaced
	Owner *Owner // who gets the result; nil leaves it to the user who runs this
}

// Owner is a user and a group, by number.
type Owner struct{ UID, GID int }

// File is [How.File] of the zero How.
func File(path string, write func(*os.File) error) error { return How{}.File(path, write) }

// File writes the file at path, which only its owner may read. It does not overwrite an existing file, unless h says
// so.
func (h How) File(path string, write func(*os.File) error) error {
	return h.whole(path, func(tmp string) (*os.File, error) {
		return os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}, func(f *os.File) error { return first(write(f), f.Sync(), h.give(f)) })
}

// Dir writes the new directory at path, which only its owner may enter. It never overwrites what exists.
func (h How) Dir(path string, write func(*os.Root) error) error {
	h.Over = false // emptying somebody else's directory is more than a flag may ask for
	return h.whole(path, newDir, func(f *os.File) error {
		// by the descriptor: the owner of the directory above may have put another one under this name meanwhile
		root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			return err
		}
		defer root.Close()
		return first(write(root), f.Sync(), h.giveAll(root), h.give(f))
	})
}

// closed is the mode of a directory that only its owner can use. Until it has its final name it is also sticky, and
// the next run knows it by that: the owner of the directory above can give our kind of name to any other directory in
// it, but cannot give this mode to a directory of another user.
const closed = 0o700

func newDir(path string) (*os.File, error) {
	if err := os.Mkdir(path, closed|os.ModeSticky); err != nil {
		return nil, err
	}
	return openNew(path)
}

// openNew opens the directory that was just made. Meanwhile the owner of the directory above can have put another one
// under its name. So openNew refuses the directory unless it is empty, belongs to this user, and is closed to all
// others, as a new one is.
func openNew(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	_, readErr := f.ReadDir(1)
	isNew := errors.Is(readErr, io.EOF) && int(st.Uid) == os.Geteuid() && st.Mode&uint32(fs.ModePerm)&^closed == 0
	if err == nil && !isNew {
		err = fmt.Errorf("%s is not the directory that was made: something else changes %s", path, filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// give returns a file to the owner. It uses the descriptor: that is the file made here, whatever has its name by now.
func (h How) give(f *os.File) error {
	if h.Owner == nil {
		return nil
	}
	return f.Chown(h.Owner.UID, h.Owner.GID)
}

// giveAll returns everything below a directory to the owner, before the owner gets the directory and others can enter
// it.
func (h How) giveAll(root *os.Root) error {
	if h.Owner == nil {
		return nil
	}
	return fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return root.Lchown(name, h.Owner.UID, h.Owner.GID)
	})
}

func (h How) whole(path string, create func(string) (*os.File, error), write func(*os.File) error) error {
	path = filepath.Clean(path) // "out/" would have its partial name below itself
	sweep(filepath.Dir(path))
	tmp := nameOf(path)
	f, err := create(tmp)
	if err != nil {
		return err
	}
	defer f.Close() // its content is synced; it keeps the lock until the file has its name
	err = lock(f)
	if err == nil {
		err = write(f)
	}
	if err == nil {
		err = h.rename(tmp, path)
	}
	if err == nil {
		return finish(f)
	}
	if removeErr := errors.Join(empty(f), os.Remove(tmp)); removeErr != nil {
		return fmt.Errorf("%w; %s is left behind: %w", err, tmp, removeErr)
	}
	return err
}

// finish removes the mark of a directory that is being written.
func finish(f *os.File) error {
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = f.Chmod(closed)
	}
	return err
}

// empty removes everything below a directory, by its descriptor: something else may have its name by now.
func empty(f *os.File) error {
	if st, err := f.Stat(); err != nil || !st.IsDir() {
		return err
	}
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, root.RemoveAll(e.Name()))
	}
	return err
}

// first returns the first error: those after it are mostly the same full disk again.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// lock marks a file as being written. A file system without locks has no sweep either.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK): // another run sweeps right now
		return fmt.Errorf("%s was taken for one that a killed run had left: try again", f.Name())
	case err != nil && !unlockable(err):
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

func unlockable(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOLCK) ||
		errors.Is(err, unix.EINVAL)
}

// rename returns the result its name, unless something that may not be replaced has it already. Some file systems
// cannot check that (NFS, FUSE).
func (h How) rename(tmp, path string) error {
	if st, err := os.Lstat(path); h.Over && err == nil && st.Mode().IsRegular() {
		return os.Rename(tmp, path)
	}
	err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		if _, statErr := os.Lstat(path); statErr != nil {
			return os.Rename(tmp, path)
		}
		err = unix.EEXIST
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: tmp, New: path, Err: err}
	}
	return nil
}

// sweep removes what killed runs of this user left in a directory. It ignores what cannot be removed: that is no
// reason not to write.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if own.MatchString(e.Name()) {
			abandoned(filepath.Join(dir, e.Name()))
		}
	}
}

// abandoned removes a file or directory of this user if no writer holds it.
func abandoned(path string) {
	// O_NONBLOCK: opening a FIFO of such a name would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !isOwn(st) || unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	_ = errors.Join(empty(f), os.Remove(path)) // see sweep
}

// isOwn reports whether a run of this user may have made it: a regular file, or a directory with the mode of
// [newDir].
func isOwn(st fs.FileInfo) bool {
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Geteuid() {
		return false
	}
	return st.Mode().IsRegular() || st.Mode() == fs.ModeDir|fs.ModeSticky|closed
}
