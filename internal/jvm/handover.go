package jvm

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// VerifyLoaded makes sure that the target has mapped the very file that Place put there, and not one that somebody else put
// in its place. It is nil where that cannot be told: following /proc/PID/map_files needs CAP_SYS_ADMIN (proc(5)).
func (vm *VM) VerifyLoaded(f *File) error {
	var written unix.Stat_t
	if err := unix.Fstat(int(f.held.Fd()), &written); err != nil {
		return fmt.Errorf("stat the placed library: %w", err)
	}
	maps, err := os.ReadFile(vm.proc("maps"))
	if err != nil {
		return vm.unreadable(err)
	}
	for _, area := range areasOf(string(maps), f.name) {
		// The numbers in maps themselves are not those of stat(2) on btrfs, and on overlayfs before Linux 6.8.
		var mapped unix.Stat_t
		err := unix.Stat(vm.proc("map_files/"+area), &mapped)
		if errors.Is(err, unix.ENOENT) {
			continue // unmapped meanwhile
		}
		if err != nil {
			return nil //nolint:nilerr // it cannot be told
		}
		if !sameInode(mapped, written) {
			return vm.replaced(f, written, mapped)
		}
	}
	return nil
}

// Inode tells the placed file from every other on its file system; 0 where it cannot be told.
func (f *File) Inode() uint64 {
	var info unix.Stat_t
	if err := unix.Fstat(int(f.held.Fd()), &info); err != nil {
		return 0
	}
	return info.Ino
}

// areasOf gives the address ranges at which a file by this name is mapped, as maps has them.
func areasOf(maps, name string) []string {
	var areas []string
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		if len(fields) < 6 || path.Base(fields[5]) != name {
			continue
		}
		areas = append(areas, fields[0])
	}
	return areas
}

func (vm *VM) replaced(f *File, written, mapped unix.Stat_t) error {
	return vm.refuse(Replaced, fmt.Sprintf("somebody swapped the library that perfdoctor placed as %s: inode %d was written, and "+
		"the JVM has loaded inode %d of uid %d, whose code ran in it", f.Path, written.Ino, mapped.Ino, mapped.Uid),
		"treat the JVM as taken over: find out who can write to that directory, and restart the JVM")
}
