package jvm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// ownPrefix begins the name of every file that perfdoctor places in a target, so that a later run knows them.
const ownPrefix = ".perfdoctor-"

// ownFileName is the prefix, 128 random bits, and what the file is for.
var ownFileName = regexp.MustCompile(`^\.perfdoctor-[0-9a-f]{32}-(.+)$`)

// ownFile returns what a placed file is for, by its name.
func ownFile(name string) (purpose string, ok bool) {
	m := ownFileName.FindStringSubmatch(name)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// IsOwnFile reports whether perfdoctor placed a file of this name, in whichever run.
func IsOwnFile(name string) bool {
	_, ok := ownFile(name)
	return ok
}

// File is a file of perfdoctor's inside a target. It belongs to the target's user. It is locked as long as it is open
// here (flock(2)): an unlocked file of that kind is the leftover of a killed perfdoctor.
type File struct {
	Path string // as the target sees it

	dir  int // O_PATH of its directory
	name string
	held *os.File // open for reading, holds the lock
	as   credentials
}

// places returns the directories in which a file can lie, in order of preference. /var/tmp is on a disk and outlives
// a boot. The working directory is last because it may be watched or backed up.
func (t *tree) places() []place {
	var all []place
	for _, dir := range []string{"/tmp", "/dev/shm", "/var/tmp", "/run/user/" + strconv.Itoa(t.as.uid)} {
		all = append(all, t.named(dir))
	}
	return append(all, t.workingDirectory())
}

// named returns a place by its path.
func (t *tree) named(dir string) place {
	return place{dir, func() (int, error) { return t.directory(dir) }, func() (int, error) { return t.private(dir) }}
}

func (t *tree) workingDirectory() place {
	return place{"/proc/self/cwd", func() (int, error) {
		if t.cwd == nil {
			return -1, errNoDirectory
		}
		return t.cwd.Directory(".")
	}, t.privateCwd}
}

type place struct {
	path string // as the target sees it
	open func() (int, error)
	// openPrivate opens it for a file that the target is to trust. It refuses a directory in which others could swap
	// the file.
	openPrivate func() (int, error)
}

// Place puts a file with this content into the target's file system, where only the target and root can use it. name
// says what it is for and ends the file's name, which is otherwise random. A file with an executable mode such as
// 0o500 goes to the first of places where the target can map it to run it, so not to a noexec mount. For a file that
// the target is to write, pass no content and mode 0o600.
//
// The caller must remove it. Its errors are a *Refusal, with cause NoPlace if no directory serves.
func (vm *VM) Place(name string, content []byte, mode fs.FileMode) (*File, error) {
	if name == "" || strings.ContainsAny(name, "/\x00\n") {
		return nil, fmt.Errorf("place a file in process %d: bad name %q", vm.PID, name)
	}
	t, err := vm.enter()
	if err != nil {
		return nil, err
	}
	defer t.close()
	var file *File
	var failed []error
	err = t.as.do(func() error {
		for _, p := range t.places() {
			f, err := p.create(name, content, mode.Perm())
			if err == nil {
				f.as = t.as
				file = f
				return nil
			}
			failed = append(failed, fmt.Errorf("%s: %w", p.path, err))
		}
		return errors.Join(failed...)
	})
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, errSwitch):
		return nil, vm.explain(err, "place a file")
	}
	r := vm.refuse(NoPlace, "no directory of the target can hold a file for it: "+strings.ReplaceAll(err.Error(), "\n",
		", "),
		"give the target a /tmp that it can write to, that is not mounted noexec, and that is sticky (chmod +t) where "+
			"others can "+
			"write to it too")
	r.Err = err
	return nil, r
}

func (p place) create(name string, content []byte, mode fs.FileMode) (*File, error) {
	dir, err := p.openPrivate()
	if err != nil {
		return nil, err
	}
	f, err := createIn(dir, name, content, mode)
	if err != nil {
		closeQuietly(dir)
		return nil, err
	}
	f.Path = p.path + "/" + f.name
	return f, nil
}

// createIn creates the file as the calling thread's user. If it succeeds, the file owns dir.
func createIn(dir int, name string, content []byte, mode fs.FileMode) (*File, error) {
	if mode&0o111 != 0 {
		if err := mayExecute(dir); err != nil {
			return nil, err
		}
	}
	return createNamed(dir, ownName(name), content, mode)
}

// ownName returns a new name for a file of ours.
func ownName(purpose string) string {
	var random [16]byte
	rand.Read(random[:]) // it never fails (crypto/rand)
	return ownPrefix + hex.EncodeToString(random[:]) + "-" + purpose
}

// createNamed creates and locks a file by this very name, which must be new.
func createNamed(dir int, name string, content []byte, mode fs.FileMode) (*File, error) {
	f := &File{dir: dir, name: name}
	// Only O_EXCL makes sure that the file did not exist; with it the last component is not followed either
	// (open(2)).
	fd, err := unix.Openat(dir, f.name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	f.held = os.NewFile(uintptr(fd), f.name)
	if err := f.fill(content, mode); err != nil {
		return nil, errors.Join(err, unix.Unlinkat(dir, f.name, 0), f.held.Close())
	}
	return f, nil
}

func (f *File) fill(content []byte, mode fs.FileMode) error {
	if err := unix.Flock(int(f.held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if _, err := f.held.Write(content); err != nil {
		return err
	}
	// The mode of open(2) is subject to the umask.
	return f.held.Chmod(mode)
}

func mayExecute(dir int) error {
	var info unix.Statfs_t
	if err := unix.Fstatfs(dir, &info); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	if info.Flags&unix.ST_NOEXEC != 0 {
		return errors.New("mounted noexec")
	}
	return nil
}

// Open opens the file for reading, whatever the target did to its name since: it is the file that Place created,
// unless the target put another of its own in its place.
func (f *File) Open() (r *os.File, err error) {
	err = f.as.do(func() error {
		r, err = door.OpenIn(f.dir, f.name, f.as.uid)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s in the target: %w", f.Path, err)
	}
	return r, nil
}

// Remove removes the file and lets go of it. A file that is gone already is no error.
func (f *File) Remove() error {
	err := f.as.do(func() error { return unix.Unlinkat(f.dir, f.name, 0) })
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("remove %s in the target: %w", f.Path, err)
	}
	closeQuietly(f.dir)
	return errors.Join(err, f.held.Close())
}

// trigger is the file .attach_pid<pid>.
type trigger struct {
	dir  int
	name string
	held *os.File // locked; nil for the leftover of another tool, which stays
}

// errOthersTrigger says that another perfdoctor or another tool is making the JVM listen at this moment.
var errOthersTrigger = errors.New("another attaches")

// triggerText is the trigger's content, which HotSpot does not read: it distinguishes our file from the empty one of
// the JDK's tools.
const triggerText = "perfdoctor\n"

// placeTrigger creates the trigger where HotSpot looks first, in the working directory, else in /tmp. If another's is
// there already, the error is errOthersTrigger, unless takeOver says that it has been there for too long.
func (t *tree) placeTrigger(nspid int, takeOver bool) (tr *trigger, err error) {
	name := ".attach_pid" + strconv.Itoa(nspid)
	var failed []error
	err = t.as.do(func() error {
		for _, p := range t.triggerPlaces() {
			tr, err = p.createTrigger(name, t.as.uid, takeOver)
			if err == nil || errors.Is(err, errOthersTrigger) {
				return err
			}
			failed = append(failed, fmt.Errorf("%s: %w", p.path, err))
		}
		return errors.Join(failed...)
	})
	return tr, err
}

// triggerPlaces returns the places where HotSpot looks for its trigger, in its order.
func (t *tree) triggerPlaces() []place {
	return []place{t.workingDirectory(), t.named("/tmp")}
}

func (p place) createTrigger(name string, uid int, takeOver bool) (*trigger, error) {
	dir, err := p.open()
	if err != nil {
		return nil, err
	}
	tr, err := newTrigger(dir, name)
	if err == nil {
		return tr, nil
	}
	if errors.Is(err, unix.EEXIST) && belongsTo(dir, name, uid) {
		if takeOver {
			return &trigger{dir: dir, name: name}, nil
		}
		err = errOthersTrigger
	}
	closeQuietly(dir)
	return nil, err
}

// newTrigger creates the trigger under a name of ours, and renames it once it is locked and marked: a perfdoctor that
// is killed in between leaves a file that the next one knows. If it fails, it leaves dir open.
func newTrigger(dir int, name string) (*trigger, error) {
	f, err := createNamed(dir, ownName("attach"), []byte(triggerText), 0o660)
	if err != nil {
		return nil, err
	}
	err = unix.Renameat2(dir, f.name, dir, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) {
		// A file system such as NFS cannot rename that way (rename(2)). A link does the same, but the file is then
		// visible under two names.
		err = unix.Linkat(dir, f.name, dir, name, 0)
		if err == nil {
			err = unix.Unlinkat(dir, f.name, 0)
		}
	}
	if err != nil {
		return nil, errors.Join(err, unix.Unlinkat(dir, f.name, 0), f.held.Close())
	}
	return &trigger{dir: dir, name: name, held: f.held}, nil
}

// belongsTo reports whether HotSpot would take this file for a trigger.
func belongsTo(dir int, name string, uid int) bool {
	info, err := door.StatIn(dir, name)
	return err == nil && (int(info.Uid) == uid || info.Uid == 0)
}

// remove runs as the target's user.
func (tr *trigger) remove() error {
	defer closeQuietly(tr.dir)
	if tr.held == nil {
		return nil
	}
	return errors.Join(unix.Unlinkat(tr.dir, tr.name, 0), tr.held.Close())
}

// Leftovers are paths, as the target sees them, of files that runs of perfdoctor placed in its directories.
type Leftovers struct {
	Removed []string // of runs that were killed
	Held    []string // of runs that live, also this one: a lock belongs to an open file, not to a process (flock(2))
}

// CleanLeftovers removes what a killed perfdoctor left in the directories of this target: regular files with our own
// names that belong to the target's user, have no other name, and are held by no living perfdoctor. Its error says
// what could not be looked at or removed.
func (vm *VM) CleanLeftovers() (Leftovers, error) {
	var all Leftovers
	t, err := vm.enter()
	if err != nil {
		return all, err
	}
	defer t.close()
	var failed []error
	err = t.as.do(func() error {
		for _, p := range t.places() {
			found, err := p.clean(vm, t.as.uid)
			for _, name := range found.Removed {
				all.Removed = append(all.Removed, p.path+"/"+name)
			}
			for _, name := range found.Held {
				all.Held = append(all.Held, p.path+"/"+name)
			}
			// A directory that is missing, or closed to the target, holds nothing of ours.
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
				failed = append(failed, fmt.Errorf("%s: %w", p.path, err))
			}
		}
		return errors.Join(failed...)
	})
	if err != nil {
		return all, vm.explain(err, "remove what an earlier run left")
	}
	return all, nil
}

// clean removes what was left in one directory.
func (p place) clean(vm *VM, uid int) (found Leftovers, err error) {
	dir, err := p.open()
	if err != nil {
		return found, err
	}
	defer closeQuietly(dir)
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return found, err
	}
	list := os.NewFile(uintptr(fd), p.path)
	defer list.Close()
	names, err := list.Readdirnames(-1)
	if err != nil {
		return found, err
	}
	var failed []error
	for _, name := range names {
		isOurs := vm.leftoverTest(name)
		if isOurs == nil {
			continue
		}
		gone, err := removeLeftover(dir, name, uid, isOurs)
		switch {
		case gone:
			found.Removed = append(found.Removed, name)
		case errors.Is(err, errHeld):
			found.Held = append(found.Held, name)
			continue
		}
		failed = append(failed, err)
	}
	return found, errors.Join(failed...)
}

// errHeld says that the perfdoctor that placed a file is still alive.
var errHeld = errors.New("the file is locked")

// leftoverTest returns the test that recognises a file of ours by this name, or nil if no file of ours has such a
// name.
func (vm *VM) leftoverTest(name string) func(*os.File, unix.Stat_t) bool {
	if _, own := ownFile(name); own {
		return func(*os.File, unix.Stat_t) bool { return true }
	}
	switch name {
	case ".attach_pid" + strconv.Itoa(vm.NSPid):
		return func(f *os.File, _ unix.Stat_t) bool { return isOwnTrigger(f) }
	case vm.defaultMapName():
		return func(_ *os.File, info unix.Stat_t) bool { return isMarkedMap(info.Mode) }
	}
	return nil
}

// removeLeftover removes the file if it is ours and nobody holds it. Its error is errHeld if somebody does.
func removeLeftover(dir int, name string, uid int, isOurs func(*os.File, unix.Stat_t) bool) (bool, error) {
	f, err := door.OpenIn(dir, name, uid)
	if err != nil {
		return false, nil // a link, a directory, or a stranger's file by our name is not ours
	}
	defer f.Close()
	var opened unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &opened); err != nil || opened.Nlink != 1 {
		return false, err
	}
	if !isOurs(f, opened) {
		return false, nil
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, errHeld
		}
		return false, fmt.Errorf("lock %s: %w", name, err)
	}
	named, err := door.StatIn(dir, name)
	if err != nil || named.Ino != opened.Ino || named.Dev != opened.Dev {
		return false, nil // removed or replaced meanwhile: no longer the one that was looked at
	}
	if err := unix.Unlinkat(dir, name, 0); err != nil {
		return false, fmt.Errorf("remove %s: %w", name, err)
	}
	return true, nil
}

func isOwnTrigger(f *os.File) bool {
	var text [len(triggerText)]byte
	n, err := f.ReadAt(text[:], 0)
	return err == nil && string(text[:n]) == triggerText
}
