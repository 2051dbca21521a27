package jvm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// tree is the file system as the target sees it, held by doors to its root and its working directory.
type tree struct {
	root, cwd *door.Root // cwd is nil if it cannot be opened
	as        credentials
	owners    []int // see VM.owners
}

// enter opens the target's root. Only this needs perfdoctor's own rights (PTRACE_MODE_READ, ptrace(2)).
func (vm *VM) enter() (*tree, error) {
	root, err := door.Enter(vm.proc(""))
	if err != nil {
		return nil, vm.unreadable(err)
	}
	cwd, err := door.EnterWorkingDirectory(vm.proc(""))
	if err != nil {
		cwd = nil
	}
	t := &tree{root: root, cwd: cwd, as: credentials{vm.UID, vm.GID, vm.Groups}, owners: vm.owners()}
	// Was it the root of the process that was inspected?
	if err := vm.check(); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *tree) close() {
	t.root.Close()
	if t.cwd != nil {
		t.cwd.Close()
	}
}

// closeQuietly closes a handle to which nothing was written, so that nothing can be lost.
func closeQuietly(fd int) { _ = unix.Close(fd) }

// directory opens a directory, by its path in the target.
func (t *tree) directory(name string) (int, error) {
	return t.root.Directory(name)
}

// openInTarget opens a regular file for reading, by its path in the target. The target must be able to read it, and
// with own it must have written it.
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

// readTargetFile reads a regular file of at most limit bytes by its path in the target, as the target's user. A
// relative path begins at the target's working directory, which need not be the one it was started in.
func (vm *VM) readTargetFile(name string, limit int64) (string, error) {
	t, err := vm.enter()
	if err != nil {
		return "", err
	}
	defer t.close()
	from := t.root
	if !path.IsAbs(name) {
		from = t.cwd
	}
	if from == nil {
		return "", errors.New("the working directory cannot be opened")
	}
	var text []byte
	err = t.as.do(func() error {
		f, err := from.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, limit+1))
		return err
	})
	if err == nil && int64(len(text)) > limit {
		return "", fmt.Errorf("%s in the target is larger than %d bytes", name, limit)
	}
	return string(text), err
}
