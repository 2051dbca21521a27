package jvm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// owners returns the users who may own a directory that leads to a file for the target: root, the target's user, and
// the root of the target's user namespace. Each of them controls the target anyway.
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

// namespaceRoot returns the user who is uid 0 in a user namespace, from its uid_map (user_namespaces(7)).
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

// guarded makes sure that only the owners can rename an entry of the directory: it belongs to one of them, and others
// cannot write to it or it is sticky. The owner of a sticky directory may rename other users' entries (inode(7)).
func (t *tree) guarded(dir unix.Stat_t) error {
	if !slices.Contains(t.owners, int(dir.Uid)) {
		return fmt.Errorf("uid %d, who owns it or a directory above it, could swap the file", dir.Uid)
	}
	// An access control list that lets others write shows as the group's bit (acl(5)).
	if dir.Mode&0o022 != 0 && dir.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("other users could swap the file: it or a directory above it has mode %04o, which is "+
			"not sticky",
			dir.Mode&0o7777)
	}
	return nil
}

// private opens a directory by its path if nobody else can swap a file in it.
func (t *tree) private(name string) (int, error) { return t.root.DirectoryBy(name, t.guarded) }

// privateCwd opens the working directory if nobody else can swap a file in it. The target reaches it by a kernel
// link, /proc/self/cwd, so that the directories above it do not matter.
func (t *tree) privateCwd() (int, error) {
	if t.cwd == nil {
		return -1, errNoDirectory
	}
	return t.cwd.DirectoryBy(".", t.guarded)
}

// errNoDirectory says that the working directory was not opened, such as one that is gone.
var errNoDirectory = errors.New("cannot be opened")

func sameInode(a, b unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }
