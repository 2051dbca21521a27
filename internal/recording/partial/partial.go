// Package partial writes files and directories that are there as a whole or not at all.
//
// What is being written has a name of its own beside the final one, and is locked as long as its writer lives. What a
// killed writer left behind nobody holds: the next one that writes into the directory removes it.
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

// own matches the names of what is being written: that of the result, and the writer's process id.
var own = regexp.MustCompile(`^\..+\.\d+\.perfdoctor\.partial$`)

func nameOf(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d.perfdoctor.partial", filepath.Base(path), os.Getpid()))
}

// How says what is done about a file that is there already, and whose the new one is.
type How struct {
	Over  bool   // a file that is there is replaced; anything else never is
	Owner *Owner // who is given what was made; nil leaves it to the user who runs this
}

// Owner is a user and a group, by number.
type Owner struct{ UID, GID int }

// File is that of the zero [How].
func File(path string, write func(*os.File) error) error { return How{}.File(path, write) }

// File writes the file at path, which only its owner may read. What is there already is not overwritten, unless h says
// so.
func (h How) File(path string, write func(*os.File) error) error {
	return h.whole(path, func(tmp string) (*os.File, error) {
		return os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}, func(f *os.File) error { return first(write(f), f.Sync(), h.give(f)) })
}

// Dir writes the new directory at path, which only its owner may enter. What is there already is never overwritten.
func (h How) Dir(path string, write func(*os.Root) error) error {
	h.Over = false // to empty a directory of someone else's is more than a flag may ask for
	return h.whole(path, newDir, func(f *os.File) error {
		// by the descriptor: whoever owns the directory above may have put another one under its name meanwhile
		root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			return err
		}
		defer root.Close()
		return first(write(root), f.Sync(), h.giveAll(root), h.give(f))
	})
}

// closed is the mode of a directory: its owner's alone. Until it has its name it is sticky, too, by which the next run
// knows it: whoever owns the directory above can give our kind of name to any other one in it, but no such mode to one
// of another user.
const closed = 0o700

func newDir(path string) (*os.File, error) {
	if err := os.Mkdir(path, closed|os.ModeSticky); err != nil {
		return nil, err
	}
	return openNew(path)
}

// openNew opens the directory that was just made. Meanwhile whoever owns the directory above can have put another one
// under its name: what is opened is refused unless it is empty, this user's, and closed to all others, as a new one is.
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

// give makes a file the owner's. By its descriptor, it is the one that was made here, whatever has its name by now.
func (h How) give(f *os.File) error {
	if h.Owner == nil {
		return nil
	}
	return f.Chown(h.Owner.UID, h.Owner.GID)
}

// giveAll makes all below a directory the owner's, before it is the owner's itself and others can enter it.
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

// finish takes from a directory what says that it is being written.
func finish(f *os.File) error {
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = f.Chmod(closed)
	}
	return err
}

// empty removes all below a directory, by its descriptor: something else may have its name by now.
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

// first gives the first error: those after it are mostly the same full disk again.
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
	case errors.Is(err, unix.EWOULDBLOCK): // another run sweeps at this moment
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

// rename gives the result its name unless something has it already that may not be replaced. Some file systems cannot
// tell (NFS, FUSE).
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

// sweep removes what killed runs of this user left in a directory. What cannot be removed is no reason not to write.
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
	// O_NONBLOCK: opening a FIFO by such a name would wait for a writer.
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

// isOwn tells whether a run of this user may have made it: a regular file, or a directory with the mode of [newDir].
func isOwn(st fs.FileInfo) bool {
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Geteuid() {
		return false
	}
	return st.Mode().IsRegular() || st.Mode() == fs.ModeDir|fs.ModeSticky|closed
}
