package jvm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// SwappedError says that the target has mapped another file in place of perfdoctor's.
type SwappedError struct {
	Path    string // of the library, as the target sees it
	Written uint64 // inode that perfdoctor wrote; 0 if an earlier run wrote it
	Loaded  uint64 // inode that is mapped; 0 if it is mapped by another name
	UID     int    // whose file that is; -1 if it is not known
}

// Error says what was swapped, without a remedy.
func (e *SwappedError) Error() string {
	text := fmt.Sprintf("the library at %s was swapped", e.Path)
	if e.Written != 0 {
		text += fmt.Sprintf(": inode %d was written", e.Written)
	}
	if e.Loaded != 0 {
		text += fmt.Sprintf(", and inode %d of uid %d is what the JVM has loaded", e.Loaded, e.UID)
	}
	return text
}

// VerifyLoaded makes sure that the target has mapped the very file that Place put there, and not one that somebody
// else put in its place. answered says that the target has loaded something. known is false where that cannot be
// verified: following /proc/PID/map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE (proc(5)). A swap is a
// *Refusal with cause Replaced.
func (vm *VM) VerifyLoaded(f *File, answered bool) (known bool, err error) {
	var written unix.Stat_t
	if err := unix.Fstat(int(f.held.Fd()), &written); err != nil {
		return false, fmt.Errorf("stat the placed library: %w", err)
	}
	areas, err := vm.areas()
	if err != nil {
		return false, err
	}
	var swapped *SwappedError
	for _, a := range areas {
		// The numbers in maps itself are not those of stat(2) on btrfs, and on overlayfs before Linux 6.8.
		mapped, err := door.StatMagic(vm.proc(""), "map_files/"+a.span)
		switch {
		case errors.Is(err, unix.ENOENT): // unmapped meanwhile
		case errors.Is(err, door.ErrServer): // the placed file does not lie there
			if a.name == f.name {
				swapped = &SwappedError{f.Path, written.Ino, 0, -1}
			}
		case err != nil:
			return false, nil //nolint:nilerr // it cannot be told
		case sameInode(mapped, written):
			return true, nil
		case a.name == f.name:
			swapped = &SwappedError{f.Path, written.Ino, mapped.Ino, int(mapped.Uid)}
		}
	}
	if swapped == nil && answered && vm.check() == nil {
		swapped = &SwappedError{f.Path, written.Ino, 0, -1}
	}
	if swapped == nil {
		return false, nil
	}
	return true, vm.replaced(swapped)
}

// VerifyMapped makes sure that the library that the target has mapped by a path has this content. It is for a library
// that an earlier run placed and whose file is gone.
func (vm *VM) VerifyMapped(library string, content []byte) (known bool, err error) {
	areas, err := vm.areas()
	if err != nil {
		return false, err
	}
	for _, a := range areas {
		if a.name != path.Base(library) {
			continue
		}
		same, info, err := vm.holds(a, content)
		if err != nil {
			return false, nil //nolint:nilerr // it cannot be told
		}
		if !same {
			return true, vm.replaced(&SwappedError{library, 0, info.Ino, int(info.Uid)})
		}
		known = true
	}
	return known, nil
}

// holds reports whether the mapped file has this content.
func (vm *VM) holds(a area, content []byte) (same bool, info unix.Stat_t, err error) {
	f, err := door.OpenMagic(vm.proc(""), "map_files/"+a.span)
	if err != nil {
		return false, info, err
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &info); err != nil || info.Size != int64(len(content)) {
		return false, info, err
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(len(content))+1))
	return bytes.Equal(text, content), info, err
}

// Inode identifies the placed file on its file system; it is 0 if it is not known.
func (f *File) Inode() uint64 {
	var info unix.Stat_t
	if err := unix.Fstat(int(f.held.Fd()), &info); err != nil {
		return 0
	}
	return info.Ino
}

// area is a part of a file that is mapped.
type area struct {
	span string // its addresses, as map_files names them
	name string // last component of the file's path
}

// maxAreas bounds what is read of a target's maps, in bytes: 262,144 areas, as Elasticsearch asks for, take some 28
// MB.
const maxAreas = 32 << 20

// errAreas says that not all of a target's areas were read, so that an area that was not seen may still exist.
var errAreas = errors.New("the process has too many memory areas")

func (vm *VM) areas() ([]area, error) {
	text, cut, err := door.Read(vm.proc("maps"), maxAreas)
	if err == nil && cut {
		err = errAreas
	}
	if err != nil {
		return nil, vm.unreadable(err)
	}
	return areasOf(string(text)), nil
}

// areasOf returns the first area of each file in the text of maps, for each name that it is mapped by.
func areasOf(maps string) []area {
	var areas []area
	seen := map[[3]string]bool{}
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasPrefix(fields[5], "/") {
			continue
		}
		file := [3]string{fields[3], fields[4], fields[5]}
		if seen[file] {
			continue
		}
		seen[file] = true
		areas = append(areas, area{fields[0], path.Base(fields[5])})
	}
	return areas
}

func (vm *VM) replaced(e *SwappedError) error {
	r := vm.refuse(Replaced, e.Error(), "treat the JVM as taken over: find out who can write to that directory, and "+
		"restart the JVM")
	r.Err = e
	return r
}
