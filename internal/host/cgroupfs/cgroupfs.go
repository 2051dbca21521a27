// Package cgroupfs reads the files of control groups (Documentation/admin-guide/cgroup-v1, cgroup-v2.rst).
package cgroupfs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Number reads a file that holds one number.
func Number(b []byte) (float64, error) {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("bad number %.40q", b)
	}
	return float64(n), nil
}

// ErrNoKey says that a file of keys and numbers lacks the key: the kernel is older, or a controller is off.
var ErrNoKey = errors.New("no such line")

// Key finds the number of a line "key number", as in cpu.stat and memory.stat. The error may be [ErrNoKey].
func Key(b []byte, key string) (float64, error) {
	for line := range bytes.Lines(b) {
		name, value, ok := bytes.Cut(line, []byte(" "))
		if ok && string(name) == key {
			n, err := Number(value)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", key, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s: %w", key, ErrNoKey)
}
