package door

import (
	"os"

	"golang.org/x/sys/unix"
)

// Space is the total and the free space of a file system.
type Space struct {
	Device   uint64 // st_dev of the file
	Size     uint64 // bytes
	Free     uint64 // bytes for the superuser
	FreeUser uint64 // bytes for any other user: some file systems keep a part back
	Inodes   uint64 // 0 where files are not counted, as on btrfs
	Unused   uint64 // inodes
}

// SpaceOf returns the space of a file system, by a link below /proc/PID to a file or directory on it: cwd, or a link
// in fd. It does not ask a file system for which another program has to answer.
func SpaceOf(dir, link string) (Space, error) {
	fd, name, err := openMagic(dir, link)
	if err != nil {
		return Space{}, err
	}
	defer closeQuietly(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Space{}, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return Space{}, &os.PathError{Op: "statfs", Path: name, Err: err}
	}
	unit := uint64(max(fs.Frsize, 1))
	return Space{
		Device: st.Dev, Size: fs.Blocks * unit, Free: fs.Bfree * unit, FreeUser: fs.Bavail * unit,
		Inodes: fs.Files, Unused: fs.Ffree,
	}, nil
}
