package jvm

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// owners are the users who may own a directory that leads to a file for the target: root, the target's user, and the root of
// the target's user namespace. Each of them rules the target anyway.
func (vm *VM) owners() []int {
	owners := []int{0, vm.UID}
	text, err := os.ReadFile(vm.proc("uid_map"))
	if err != nil {
		return owners // stricter than need be
	}
	if root, ok := namespaceRoot(string(text)); ok {
		owners = append(owners, root)
	}
	return owners
}

// namespaceRoot gives the user who is uid 0 in a user namespace, from its uid_map (user_namespaces(7)).
func namespaceRoot(uidMap string) (int, bool) {
	for line := range strings.Lines(uidMap) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "0" {
			continue
		}
		root, err := strconv.Atoi(fields[1])
		return root, err == nil
	}
	return 0, false
}

// straight opens a directory along a path that holds no link, except that the last component of a path of one component may
// be one: /tmp is a link on some systems. So the directories above the one it opens are all that the path leads through.
func (t *tree) straight(name string) (int, error) {
	link := make([]byte, unix.PathMax)
	first := strings.TrimPrefix(name, "/")
	if !strings.Contains(first, "/") {
		if n, err := unix.Readlinkat(t.root, first, link); err == nil {
			name = path.Clean("/" + string(link[:n]))
		}
	}
	return openStepwise(t.root, name, unix.O_PATH|unix.O_DIRECTORY)
}

// maxDepth bounds the way up to the target's root: PATH_MAX has room for no more components.
const maxDepth = unix.PathMax / 2

// guarded says whether nobody but the owners can put another file in the place of one that lies in dir: neither in dir nor
// in a directory above it, up to the target's root.
func (t *tree) guarded(dir int) error {
	var root, here unix.Stat_t
	if err := unix.Fstat(t.root, &root); err != nil {
		return fmt.Errorf("stat the root: %w", err)
	}
	at, err := openPath(dir, ".", unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { closeQuietly(at) }()
	for range maxDepth {
		if err := t.guardedItself(at); err != nil {
			return err
		}
		if err := unix.Fstat(at, &here); err != nil {
			return err
		}
		up, err := openPath(at, "..", unix.O_DIRECTORY)
		if err != nil {
			return fmt.Errorf("the directory above: %w", err)
		}
		var above unix.Stat_t
		err = unix.Fstat(up, &above)
		closeQuietly(at)
		at = up
		if err != nil || sameInode(here, root) || sameInode(here, above) {
			return err
		}
	}
	return errors.New("too deep below the root")
}

func sameInode(a, b unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// guardedItself says whether nobody but the owners can rename an entry of the directory: it is theirs, and others cannot write
// to it or it is sticky. The owner of a sticky directory may rename what is not his (inode(7)).
func (t *tree) guardedItself(dir int) error {
	var info unix.Stat_t
	if err := unix.Fstat(dir, &info); err != nil {
		return err
	}
	if !slices.Contains(t.owners, int(info.Uid)) {
		return fmt.Errorf("uid %d, who owns it or a directory above it, could swap the file", info.Uid)
	}
	// An access control list that lets others write shows as the group's bit (acl(5)).
	if info.Mode&0o022 != 0 && info.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("other users could swap the file: it or a directory above it has mode %04o, which is not sticky",
			info.Mode&0o7777)
	}
	return nil
}

// private opens a directory by its path where nobody can swap a file in it.
func (t *tree) private(name string) (int, error) {
	dir, err := t.straight(name)
	if err != nil {
		return -1, err
	}
	return checked(dir, t.guarded)
}

// privateCwd opens the working directory where nobody can swap a file in it. The target reaches it by a link of the kernel,
// /proc/self/cwd, so that the directories above it do not matter.
func (t *tree) privateCwd() (int, error) {
	if t.cwd < 0 {
		return -1, errors.New("cannot be opened")
	}
	dir, err := openPath(t.cwd, ".", unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	return checked(dir, t.guardedItself)
}

// checked closes the directory where the check fails.
func checked(dir int, check func(int) error) (int, error) {
	if err := check(dir); err != nil {
		closeQuietly(dir)
		return -1, err
	}
	return dir, nil
}
