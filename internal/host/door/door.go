// Package door is the only way to what a process owns: the files below its root, the files that it maps, and the
// files below /proc/PID whose content or size the process chooses. The process may be hostile.
package door

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxLinks is how many links a path may lead through, like MAXSYMLINKS in include/linux/namei.h.
	maxLinks = 40
	// maxDepth is how many directories a path may lead through: more than any packager makes, and each holds a
	// descriptor.
	maxDepth = 64
	// maxMountinfo bounds /proc/PID/mountinfo: 100,000 mounts (fs.mount-max) of 160 bytes.
	maxMountinfo = 16 << 20
	// maxMountLine bounds a line of mountinfo: two paths of 4096 bytes, each byte escaped as four, and the options,
	// one page.
	maxMountLine = 64 << 10
	// maxStatus bounds /proc/PID/status: 64 Ki groups of up to 11 bytes (NGROUPS_MAX in include/uapi/linux/limits.h),
	// and 4 KiB.
	maxStatus = 65536*11 + 4096
)

// Root is the file system as a process sees it. It only opens what the process itself may read.
type Root struct {
	fd  int    // O_PATH
	dir string // /proc/PID
	who who

	beneath bool // no path may lead above fd, not even to restart at it
	noLinks bool // no path may lead through a link

	fits func(unix.Stat_t) error // what every directory on the way has to be; nil: anything
}

// who is a process's user and groups as this user namespace counts them.
type who struct {
	uid    uint32
	groups []uint32
}

// Enter opens the root of the process whose directory in /proc is dir.
func Enter(dir string) (*Root, error) { return enter(dir, "root") }

// EnterWorkingDirectory is [Enter] for paths that begin at the working directory of the process. No path leads out of
// it.
func EnterWorkingDirectory(dir string) (*Root, error) {
	r, err := enter(dir, "cwd")
	if err != nil {
		return nil, err
	}
	r.beneath = true
	return r, nil
}

func enter(dir, link string) (*Root, error) {
	w, err := readWho(filepath.Join(dir, "status"))
	if err != nil {
		return nil, err
	}
	fd, err := openPath(unix.AT_FDCWD, filepath.Join(dir, link), 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(dir, link), Err: err}
	}
	return &Root{fd: fd, dir: dir, who: w}, nil
}

// Close releases the root.
func (r *Root) Close() { closeQuietly(r.fd) }

// Open opens a regular file for reading, by its path as the process sees it. The process must be able to read it.
// Links are followed within the root of the process.
func (r *Root) Open(name string) (*os.File, error) {
	return r.open(name, func(unix.Stat_t) error { return nil })
}

// OpenOwn is [Root.Open] of a file that the process wrote: the file belongs to the process's user, has no other name,
// and nobody else may write to it.
func (r *Root) OpenOwn(name string) (*os.File, error) { return r.open(name, r.who.owns) }

// OpenUnlinked is [Root.Open] of a file that has one name and that no link leads to: it stands for no other file.
func (r *Root) OpenUnlinked(name string) (*os.File, error) {
	strict := *r
	strict.noLinks = true
	return strict.open(name, func(st unix.Stat_t) error {
		if st.Nlink != 1 {
			return fmt.Errorf("it has %d names", st.Nlink)
		}
		return nil
	})
}

func (r *Root) open(name string, fits func(unix.Stat_t) error) (*os.File, error) {
	fd, err := r.walk(name)
	if err != nil {
		return nil, fmt.Errorf("%s in the target: %w", name, err)
	}
	defer closeQuietly(fd)
	f, err := reopen(fd, name, func(st unix.Stat_t) error {
		if !r.who.may(st, 4) {
			return fmt.Errorf("uid %d, whose program this is, may not read it", r.who.uid)
		}
		return fits(st)
	})
	if err != nil {
		return nil, fmt.Errorf("%s in the target: %w", name, err)
	}
	return f, nil
}

// Locate returns a handle (O_PATH, open(2)) to whatever has this name. It does nothing to it but look at it.
func (r *Root) Locate(name string) (fd int, err error) {
	fd, err = r.walk(name)
	if err != nil {
		return -1, fmt.Errorf("%s in the target: %w", name, err)
	}
	return fd, nil
}

// Socket is [Root.Locate] of a unix socket that belongs to a user: in a directory that all may write to, a stranger's
// socket could wait for us.
func (r *Root) Socket(name string, uid int) (fd int, err error) {
	fd, err = r.Locate(name)
	if err != nil {
		return -1, err
	}
	var info unix.Stat_t
	if err = unix.Fstat(fd, &info); err != nil {
		err = fmt.Errorf("%s in the target: %w", name, err)
	} else if info.Mode&unix.S_IFMT != unix.S_IFSOCK || int(info.Uid) != uid {
		err = fmt.Errorf("%s in the target is not a socket of its own: mode %o, uid %d", name, info.Mode, info.Uid)
	}
	if err != nil {
		closeQuietly(fd)
		return -1, err
	}
	return fd, nil
}

// Directory is [Root.Locate] of a directory.
func (r *Root) Directory(name string) (fd int, err error) {
	fd, err = r.Locate(name)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		closeQuietly(fd)
		return -1, fmt.Errorf("%s in the target: %w", name, err)
	}
	return fd, nil
}

// DirectoryBy is [Root.Directory] of a directory that fits. Every directory that the path leads through must fit,
// too, including those that links lead through: whoever can write to one could lead the path elsewhere.
func (r *Root) DirectoryBy(name string, fits func(unix.Stat_t) error) (fd int, err error) {
	guarded := *r
	guarded.fits = fits
	if fd, err = guarded.Directory(name); err != nil {
		return -1, err
	}
	if err := guarded.passes(fd); err != nil {
		closeQuietly(fd)
		return -1, fmt.Errorf("%s in the target: %w", name, err)
	}
	return fd, nil
}

// passes returns an error unless a path may lead through a directory.
func (r *Root) passes(dir int) error {
	if r.fits == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	return r.fits(st)
}

// OpenMagic opens the regular file that a link below /proc/PID stands for: exe, or a link in map_files.
func OpenMagic(dir, link string) (*os.File, error) {
	fd, name, err := openMagic(dir, link)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(fd)
	f, err := reopen(fd, name, func(unix.Stat_t) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// openMagic returns a handle to what a link below /proc/PID stands for, if no other program has to answer for it, and
// the link's path. Links in map_files need the lock of the process's memory (proc_map_files_lookup in
// fs/proc/base.c).
func openMagic(dir, link string) (fd int, name string, err error) {
	name = filepath.Join(dir, link)
	open := func() (int, error) { return openPath(unix.AT_FDCWD, name, 0) }
	if filepath.Base(filepath.Dir(name)) == "map_files" {
		fd, err = patient(dir, open)
	} else {
		fd, err = open()
	}
	if err != nil {
		return -1, name, &os.PathError{Op: "open", Path: name, Err: err}
	}
	if err := served(fd, dir); err != nil {
		closeQuietly(fd)
		return -1, name, fmt.Errorf("%s: %w", name, err)
	}
	return fd, name, nil
}

// StatMagic looks at what a link below /proc/PID stands for, as stat(2) does, if no other program has to answer for
// it.
func StatMagic(dir, link string) (st unix.Stat_t, err error) {
	fd, _, err := openMagic(dir, link)
	if err != nil {
		return st, err
	}
	defer closeQuietly(fd)
	return st, unix.Fstat(fd, &st)
}

// OpenIn opens a regular file of this user in a directory that [Root.Directory] returned.
func OpenIn(dir int, name string, uid int) (*os.File, error) {
	fd, err := locateIn(dir, name)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(fd)
	return reopen(fd, name, func(st unix.Stat_t) error {
		if int(st.Uid) != uid {
			return fmt.Errorf("it belongs to uid %d, not %d", st.Uid, uid)
		}
		return nil
	})
}

// StatIn looks at a name in a directory that [Root.Directory] returned, and follows no link.
func StatIn(dir int, name string) (st unix.Stat_t, err error) {
	fd, err := locateIn(dir, name)
	if err != nil {
		return st, err
	}
	defer closeQuietly(fd)
	return st, unix.Fstat(fd, &st)
}

// locateIn returns a handle to a file on the same mount as its directory: the kernel serves that by itself.
func locateIn(dir int, name string) (int, error) {
	fd, err := openPath(dir, name, unix.O_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	same, err := sameMount(dir, fd)
	if err == nil && !same {
		err = fmt.Errorf("something is mounted on %s", name)
	}
	if err != nil {
		closeQuietly(fd)
		return -1, err
	}
	return fd, nil
}

// reopen opens what fd, an O_PATH, stands for. It looks at it first, since opening a device acts on the device.
func reopen(fd int, name string, fits func(unix.Stat_t) error) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("it is no regular file")
	}
	if err := fits(st); err != nil {
		return nil, err
	}
	read, err := retry(func() (int, error) {
		return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC,
			0)
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(read), name), nil
}

// walk goes down one component at a time. It looks at a component only once it knows that the kernel serves its file
// system by itself.
func (r *Root) walk(name string) (int, error) {
	w := walker{root: r}
	defer w.close()
	at, err := openPath(r.fd, ".", 0)
	if err != nil {
		return -1, err
	}
	w.stack = []int{at}
	if err := served(at, r.dir); err != nil {
		return -1, err
	}
	w.rest = components(name)
	for len(w.rest) > 0 {
		part := w.rest[0]
		w.rest = w.rest[1:]
		if err := w.step(part); err != nil {
			return -1, err
		}
	}
	last := len(w.stack) - 1
	fd := w.stack[last]
	w.stack = w.stack[:last]
	return fd, nil
}

func components(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}

// walker is the state of a walk: the handles from the root down, so that ".." never leads above the root, and what is
// to come.
type walker struct {
	root  *Root
	stack []int
	rest  []string
	links int
}

func (w *walker) close() {
	for _, fd := range w.stack {
		closeQuietly(fd)
	}
}

func (w *walker) step(part string) error {
	if part == ".." {
		return w.up()
	}
	if len(w.stack) > maxDepth {
		return fmt.Errorf("it lies below more than %d directories", maxDepth)
	}
	above := w.stack[len(w.stack)-1]
	if err := w.root.who.maySearch(above); err != nil {
		return err
	}
	if err := w.root.passes(above); err != nil {
		return err
	}
	fd, err := openPath(above, part, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = w.served(above, fd)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		closeQuietly(fd)
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		w.stack = append(w.stack, fd)
		return nil
	}
	defer closeQuietly(fd)
	return w.follow(fd)
}

// served is [served] of a component. A component on the mount of its directory needs no look at the list of mounts,
// which a target can make long.
func (w *walker) served(above, fd int) error {
	if same, err := sameMount(above, fd); err != nil || same {
		return err
	}
	return served(fd, w.root.dir)
}

func (w *walker) up() error {
	last := len(w.stack) - 1
	if last > 0 {
		closeQuietly(w.stack[last])
		w.stack = w.stack[:last]
		return nil
	}
	if w.root.beneath {
		return errLeads
	}
	return nil
}

// errLeads says that a path leaves the directory it has to stay in.
var errLeads = errors.New("it leads out of the working directory")

// follow puts the text of a link in front of what is to come.
func (w *walker) follow(fd int) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	if w.root.noLinks {
		return errors.New("a link lies on the way")
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", text)
	if err != nil {
		return err
	}
	if path.IsAbs(string(text[:n])) && w.root.beneath {
		return errLeads
	}
	if path.IsAbs(string(text[:n])) {
		for _, fd := range w.stack[1:] {
			closeQuietly(fd)
		}
		w.stack = w.stack[:1]
	}
	w.rest = append(components(string(text[:n])), w.rest...)
	return nil
}

func (w who) maySearch(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && !w.may(st, 1) {
		return fmt.Errorf("uid %d, whose program this is, may not search a directory on the way", w.uid)
	}
	return nil
}

// may reports whether the mode grants a right: 4 is to read, 1 to search (inode(7)). It ignores access control lists.
func (w who) may(st unix.Stat_t, right uint32) bool {
	switch {
	case w.uid == 0:
		return true
	case st.Uid == w.uid:
		// An owner can grant itself what the mode lacks.
		return true
	case slices.Contains(w.groups, st.Gid):
		return st.Mode>>3&right != 0
	}
	return st.Mode&right != 0
}

func (w who) owns(st unix.Stat_t) error {
	switch {
	case st.Uid != w.uid:
		return fmt.Errorf("it belongs to uid %d, and the program runs as uid %d", st.Uid, w.uid)
	case st.Nlink != 1:
		return fmt.Errorf("it has %d names", st.Nlink)
	case st.Mode&0o002 != 0:
		return errors.New("everybody may write to it")
	}
	return nil
}

func readWho(file string) (who, error) {
	text, _, err := Read(file, maxStatus)
	if err != nil {
		return who{}, err
	}
	w, found := who{}, false
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		ids := numbers(value)
		switch {
		case name == "Uid" && len(ids) == 4: // real, effective, saved, file system
			w.uid, found = ids[1], true
		case name == "Gid" && len(ids) == 4:
			w.groups = append(w.groups, ids[1])
		case name == "Groups":
			w.groups = append(w.groups, ids...)
		}
	}
	if !found {
		return who{}, fmt.Errorf("%s: no line Uid", file)
	}
	return w, nil
}

func numbers(text string) []uint32 {
	var out []uint32
	for _, word := range strings.Fields(text) {
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil
		}
		out = append(out, uint32(n))
	}
	return out
}

// servedByKernel returns the file systems that never wait for another program or another machine.
func servedByKernel() []string {
	return []string{
		"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "ramfs", "rootfs", "devtmpfs", "zfs", "f2fs", "squashfs",
		"erofs",
		"vfat", "iso9660", "bcachefs", "overlay",
	}
}

// ErrServer is why perfdoctor does not look at a file system that the kernel does not serve by itself.
var ErrServer = errors.New("whose server can keep perfdoctor from ending")

// served returns nil if the kernel by itself serves the file system on which fd, an O_PATH, lies. It does not ask the
// file system. As fd holds its mount, no other mount can get its number meanwhile.
func served(fd int, dir string) error {
	id, err := mountID(fd)
	if err != nil {
		return err
	}
	if isOwnRoot(id) {
		return nil
	}
	kind, device, err := findMount(filepath.Join(dir, "mountinfo"), func(f []string) bool { return f[0] == id })
	if err != nil {
		// A process in a chroot does not see the mount that its root is on (show_mountinfo in fs/proc_namespace.c).
		kind, device, err = findMount("/proc/self/mountinfo", func(f []string) bool { return f[0] == id })
	}
	if err != nil {
		return fmt.Errorf("on which file system it lies cannot be told: %w", err)
	}
	if !slices.Contains(servedByKernel(), kind) {
		return fmt.Errorf("it lies on a file system of type %s, %w", kind, ErrServer)
	}
	if kind == "overlay" && !isHosts(dir, device) {
		return fmt.Errorf("it lies on an overlay of another user namespace, below which may be a file system of type "+
			"fuse, %w", ErrServer)
	}
	return nil
}

// isHosts reports whether mounting an overlay took rights on the host: since Linux 5.11 anybody may mount one, in a
// user namespace.
func isHosts(dir, device string) bool {
	theirs, err := os.Readlink(filepath.Join(dir, "ns/user"))
	ours, ownErr := os.Readlink("/proc/self/ns/user")
	if err == nil && ownErr == nil && theirs == ours {
		return true
	}
	_, _, err = findMount("/proc/self/mountinfo", func(f []string) bool { return f[2] == device })
	return err == nil
}

// isOwnRoot reports whether a mount is perfdoctor's own root. It is for a machine whose root is of another type:
// without that root perfdoctor would not run either.
func isOwnRoot(id string) bool {
	fd, err := openPath(unix.AT_FDCWD, "/", 0)
	if err != nil {
		return false
	}
	defer closeQuietly(fd)
	own, err := mountID(fd)
	return err == nil && own == id
}

func sameMount(a, b int) (bool, error) {
	first, err := mountID(a)
	if err != nil {
		return false, err
	}
	second, err := mountID(b)
	return err == nil && first == second, err
}

func mountID(fd int) (string, error) {
	name := "/proc/self/fdinfo/" + strconv.Itoa(fd)
	text, _, err := Read(name, 4096) // four lines (seq_show in fs/proc/fd.c)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", fmt.Errorf("%s has no mnt_id", name)
}

// findMount returns the type and device of the first mount that fits: id, parent, device, root, point, options,
// optional fields, a hyphen, type (Documentation/filesystems/proc.rst, 3.5).
func findMount(file string, fits func(fields []string) bool) (kind, device string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	sc := bufio.NewScanner(io.LimitReader(f, maxMountinfo))
	sc.Buffer(make([]byte, 4096), maxMountLine)
	for sc.Scan() {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 6 || !fits(fields) {
			continue
		}
		kind, _, _ = strings.Cut(after, " ")
		return kind, fields[2], nil
	}
	if sc.Err() != nil {
		return "", "", fmt.Errorf("%s: %w", file, sc.Err())
	}
	return "", "", fmt.Errorf("%s does not have its mount", file)
}

func openPath(dir int, name string, flags int) (int, error) {
	return retry(func() (int, error) { return unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC|flags, 0) })
}

// retry repeats an open that a signal interrupted, a bounded number of times, for signals that never cease.
func retry(open func() (int, error)) (int, error) {
	fd, err := open()
	for range 100 {
		if !errors.Is(err, unix.EINTR) {
			break
		}
		fd, err = open()
	}
	return fd, err
}

// closeQuietly closes a handle to which nothing was written.
func closeQuietly(fd int) { _ = unix.Close(fd) }
