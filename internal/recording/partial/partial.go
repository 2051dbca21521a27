// Package partial writes files and directories that are there as a whole or not at all.
//
// What is being written has a name of its own beside the final one, and is locked as long as its writer lives. What a
// killed writer left behind nobody holds: the next one that writes into the directory removes it.
package partial

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// own matches the names of what is being written: that of the result, and the writer's process id.
var own = regexp.MustCompile(`^\..+\.\d+\.perfdoctor\.partial$`)

func nameOf(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d.perfdoctor.partial", filepath.Base(path), os.Getpid()))
}

// File writes the new file at path, which only its owner may read. What is there already is not overwritten.
func File(path string, write func(*os.File) error) error {
	return whole(path, func(tmp string) (*os.File, error) {
		return os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}, func(f *os.File, _ string) error { return first(write(f), f.Sync()) })
}

// Dir writes the new directory at path, which only its owner may enter. What is there already is not overwritten.
func Dir(path string, write func(dir string) error) error {
	return whole(path, func(tmp string) (*os.File, error) {
		if err := os.Mkdir(tmp, 0o700); err != nil {
			return nil, err
		}
		return os.Open(tmp)
	}, func(f *os.File, tmp string) error { return first(write(tmp), f.Sync()) })
}

func whole(path string, create func(string) (*os.File, error), write func(*os.File, string) error) error {
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
		err = write(f, tmp)
	}
	if err == nil {
		err = rename(tmp, path)
	}
	if err == nil {
		return nil
	}
	if removeErr := os.RemoveAll(tmp); removeErr != nil {
		return fmt.Errorf("%w; %s is left behind: %w", err, tmp, removeErr)
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

// rename gives the result its name unless something has it already. Some file systems cannot tell (NFS, FUSE).
func rename(tmp, path string) error {
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
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || int(st.Uid) != os.Geteuid() || st.Mode&unix.S_IFMT != unix.S_IFREG &&
		st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.RemoveAll(path) // see sweep
	}
}
