package door

import (
	"bytes"
	"errors"
	"io"
	"os"
)

const (
	// MaxArguments bounds cmdline and environ: execve(2) takes 2 MiB of both with the usual stack of 8 MiB, and a
	// process can show any part of its memory in their place (PR_SET_MM_MAP, prctl(2)).
	MaxArguments = 2 << 20
	// MaxMaps bounds maps: 65,530 mappings, the default of vm.max_map_count, of 120 bytes. A process may give each a
	// path of 4096.
	MaxMaps = 8 << 20
)

// Read reads at most limit bytes of a file below /proc/PID; cut says that it has more.
func Read(file string, limit int) (text []byte, cut bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if len(text) > limit {
		return text[:limit], true, err
	}
	return text, false, err
}

// Maps reads a process's list of mappings, /proc/PID/maps: the whole lines in the first [MaxMaps] bytes.
func Maps(dir string) (io.ReadCloser, error) {
	text, cut, err := Read(dir+"/maps", MaxMaps)
	if err != nil {
		return nil, err
	}
	if cut {
		text = text[:bytes.LastIndexByte(text, '\n')+1]
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

// Descriptors lists at most so many of the names in /proc/PID/fd, which are numbers: a process may have a billion open
// (fs.nr_open).
func Descriptors(dir string, most int) ([]string, error) {
	f, err := os.Open(dir + "/fd")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(most)
	if errors.Is(err, io.EOF) { // it has none
		err = nil
	}
	return names, err
}

// Descriptor gives the text of a link in /proc/PID/fd, which is not followed: "socket:[123]", "pipe:[45]" or a path.
func Descriptor(dir, name string) (string, error) {
	return os.Readlink(dir + "/fd/" + name)
}
