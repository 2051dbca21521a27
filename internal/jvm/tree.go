package jvm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/door"
)

// tree is the file system as the target sees it, held by handles to its root and its working directory. Those two are
// links that the kernel makes; all paths below them are the target's, and are resolved so that none leads out.
type tree struct {
	root, cwd int // O_PATH; cwd is -1 where it cannot be had
	as        credentials
}

// enter opens the target's root. Only this needs perfdoctor's own rights (PTRACE_MODE_READ, ptrace(2)).
func (vm *VM) enter() (*tree, error) {
	root, err := openPath(unix.AT_FDCWD, vm.proc("root"), unix.O_DIRECTORY)
	if err != nil {
		return nil, vm.unreadable(&os.PathError{Op: "open", Path: vm.proc("root"), Err: err})
	}
	cwd, err := openPath(unix.AT_FDCWD, vm.proc("cwd"), unix.O_DIRECTORY)
	if err != nil {
		cwd = -1
	}
	t := &tree{root: root, cwd: cwd, as: credentials{vm.UID, vm.GID, vm.Groups}}
	// Was it the root of the process that was inspected?
	if err := vm.check(); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *tree) close() {
	closeQuietly(t.root)
	if t.cwd >= 0 {
		closeQuietly(t.cwd)
	}
}

// closeQuietly closes a handle nothing was written to, so that there is nothing to lose.
func closeQuietly(fd int) { _ = unix.Close(fd) }

func openPath(dir int, name string, flags int) (int, error) {
	return retry(func() (int, error) { return unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC|flags, 0) })
}

// retry repeats an open that a signal interrupted, or that openat2 gave up because a directory was renamed at that
// moment (EAGAIN, openat2(2)); the bound is for a target that renames for ever.
func retry(open func() (int, error)) (int, error) {
	fd, err := open()
	for range 100 {
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
		fd, err = open()
	}
	return fd, err
}

// directory opens a directory, by its path in the target.
func (t *tree) directory(name string) (int, error) {
	return t.resolve(t.root, name, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT)
}

// openInTarget opens a regular file for reading, at a path as the target has it, that the target may read. With own it must be
// one that the target wrote.
func (vm *VM) openInTarget(name string, own bool) (*os.File, fs.FileInfo, error) {
	root, err := door.Enter(vm.proc(""))
	if err != nil {
		return nil, nil, vm.unreadable(err)
	}
	defer root.Close()
	// Was it the root of the process that was inspected?
	if err := vm.check(); err != nil {
		return nil, nil, err
	}
	open := root.Open
	if own {
		open = root.OpenOwn
	}
	file, err := open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// resolve opens a path below dir, through the target's own links but never out, nor through a magic link such as
// those of its /proc. Before Linux 5.6, which brought openat2, no link is followed at all.
func (t *tree) resolve(dir int, name string, flags int, how uint64) (int, error) {
	request := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: how | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := retry(func() (int, error) { return unix.Openat2(dir, name, &request) })
	// A seccomp filter older than the call answers EPERM.
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return openStepwise(dir, name, flags)
	}
	return fd, err
}

// openStepwise goes down one component at a time and follows no link.
func openStepwise(dir int, name string, flags int) (int, error) {
	at, err := openPath(dir, ".", unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	parts := strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/")
	for _, part := range parts[:len(parts)-1] {
		next, err := openPath(at, part, unix.O_DIRECTORY|unix.O_NOFOLLOW)
		closeQuietly(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	defer func() { closeQuietly(at) }()
	last := parts[len(parts)-1]
	if last == "" {
		last = "."
	}
	return retry(func() (int, error) { return unix.Openat(at, last, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0) })
}

// readTargetFile reads a regular file of at most limit bytes by its path in the target, as the target's user. A
// relative path begins at the target's working directory, which need not be the one it was started in.
func (vm *VM) readTargetFile(name string, limit int64) (string, error) {
	t, err := vm.enter()
	if err != nil {
		return "", err
	}
	defer t.close()
	var text []byte
	err = t.as.do(func() error {
		dir, how := t.root, uint64(unix.RESOLVE_IN_ROOT)
		if !path.IsAbs(name) {
			dir, how = t.cwd, unix.RESOLVE_BENEATH
		}
		if dir < 0 {
			return errors.New("the working directory cannot be opened")
		}
		// Without O_NONBLOCK opening a FIFO would wait for a writer.
		fd, err := t.resolve(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, how)
		if err != nil {
			return &os.PathError{Op: "open", Path: name + " in the target", Err: err}
		}
		text, err = readRegular(fd, name, limit)
		return err
	})
	return string(text), err
}

// readRegular reads and closes fd.
func readRegular(fd int, name string, limit int64) ([]byte, error) {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s in the target is not a regular file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("%s in the target is larger than %d bytes", name, limit)
	}
	return text, err
}
