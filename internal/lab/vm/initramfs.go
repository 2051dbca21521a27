package vm

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// An initramfs is the guest's root: files by absolute path, with their parent folders. It is written in the "newc"
// cpio format (Documentation/driver-api/early-userspace/buffer-format.rst), uncompressed: the guest unpacks it with
// its slow CPU.
type initramfs struct{ files map[string]rootFile }

// A rootFile is one entry. If host is set, the entry gets the bytes of that file.
type rootFile struct {
	mode  uint32 // as in stat(2): type and permissions
	data  []byte
	host  string
	major uint32 // major number of a device
	minor uint32
}

// Types of files in cpio, as in stat(2).
const (
	typeDir  = 0o040000
	typeChar = 0o020000
	typeFile = 0o100000
	typeLink = 0o120000
)

func newInitramfs() *initramfs {
	return &initramfs{files: map[string]rootFile{
		// Init's first three files are the console, opened before anything is mounted (init/main.c,
		// console_on_rootfs): device 5:1 of Documentation/admin-guide/devices.txt.
		"/dev/console": {mode: typeChar | 0o600, major: 5, minor: 1},
		"/tmp":         {mode: typeDir | 0o1777},
		"/run":         {mode: typeDir | 0o755},
		"/etc/passwd":  {mode: typeFile | 0o644, data: []byte("root:x:0:0:root:/tmp:/bin/sh\n")},
		"/etc/hosts":   {mode: typeFile | 0o644, data: []byte("127.0.0.1 localhost\n::1 localhost\n")},
	}}
}

func (r *initramfs) add(name string, mode uint32, data []byte) {
	r.files[path.Clean(name)] = rootFile{mode: typeFile | mode, data: data}
}

func (r *initramfs) link(name, target string) {
	r.files[path.Clean(name)] = rootFile{mode: typeLink | 0o777, data: []byte(target)}
}

// addHost adds a file of the host, or a folder with the files and links below it.
func (r *initramfs) addHost(name, host string) error {
	if !path.IsAbs(name) {
		return fmt.Errorf("file %s for the guest: its path there, %q, is not absolute", host, name)
	}
	host, err := filepath.EvalSymlinks(host)
	if err != nil {
		return err
	}
	return filepath.WalkDir(host, func(found string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		below, err := filepath.Rel(host, found)
		if err != nil {
			return err
		}
		at := path.Join(name, filepath.ToSlash(below))
		switch {
		case info.IsDir():
			r.files[at] = rootFile{mode: typeDir | uint32(info.Mode().Perm())}
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(found)
			if err != nil {
				return err
			}
			r.link(at, target)
		case info.Mode().IsRegular():
			r.files[at] = rootFile{mode: typeFile | uint32(info.Mode().Perm()), host: found}
		}
		return nil
	})
}

// write writes the archive. The same content makes the same bytes.
func (r *initramfs) write(w io.Writer) error {
	out := &cpioWriter{w: w}
	all := withFolders(r.files)
	for _, name := range slices.Sorted(maps.Keys(all)) { // a folder sorts before what is in it
		f := all[name]
		if f.host != "" {
			data, err := os.ReadFile(f.host)
			if err != nil {
				return err
			}
			f.data = data
		}
		if err := out.entry(strings.TrimPrefix(name, "/"), f); err != nil {
			return err
		}
	}
	if err := out.entry("TRAILER!!!", rootFile{}); err != nil {
		return err
	}
	return out.err
}

// withFolders adds the parent folders of the files, because the kernel does not make them.
func withFolders(files map[string]rootFile) map[string]rootFile {
	all := maps.Clone(files)
	for name := range files {
		for dir := path.Dir(name); dir != "/" && dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = rootFile{mode: typeDir | 0o755}
			}
		}
	}
	delete(all, "/")
	return all
}

type cpioWriter struct {
	w     io.Writer
	inode uint32
	err   error
}

// entry writes one header, name and content, each padded to four bytes.
func (c *cpioWriter) entry(name string, f rootFile) error {
	if int64(len(f.data)) > 0xffffffff {
		return fmt.Errorf("%s: %d bytes do not fit into a cpio archive", name, len(f.data))
	}
	c.inode++
	fields := []uint32{
		c.inode, f.mode, 0, 0, // owned by root
		1,                   // links
		0,                   // time: none, so that the archive depends on its content only
		uint32(len(f.data)), // size
		0, 0,                // device that the file is on
		f.major, f.minor,
		uint32(len(name) + 1),
		0, // checksum: unused in this format
	}
	header := []byte("070701")
	for _, field := range fields {
		header = fmt.Appendf(header, "%08x", field)
	}
	header = append(header, name...)
	header = append(header, 0)
	c.padded(header)
	c.padded(f.data)
	return c.err
}

func (c *cpioWriter) padded(data []byte) {
	c.writeAll(data)
	c.writeAll(make([]byte, -len(data)&3))
}

func (c *cpioWriter) writeAll(data []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(data)
	}
}
