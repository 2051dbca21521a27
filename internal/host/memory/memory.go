// Package memory reads the memory of a process from outside ([door.Memory]), and finds in its files where things lie
// there. Whoever owns the process owns what it holds, so all of it is read within bounds.
package memory

import (
	"encoding/binary"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// ErrNowhere is why something was not read: an address that is none, as of a structure that changed meanwhile.
var ErrNowhere = errors.New("an address leads nowhere")

// A Reader fills a slice with what is at an address. Its error is [ErrNowhere] where some of it cannot be read.
type Reader func(address uint64, into []byte) error

// Of reads the memory of a process.
func Of(pid int) Reader {
	memory := door.MemoryOf("/proc/" + strconv.Itoa(pid))
	return func(address uint64, into []byte) error {
		_, err := memory.ReadAt(into, int64(address))
		if errors.Is(err, unix.EFAULT) {
			return ErrNowhere
		}
		return err
	}
}

// Word reads eight bytes, the lowest first.
func (r Reader) Word(address uint64) (uint64, error) {
	var b [8]byte
	err := r(address, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// Each reads so many bytes at each of several addresses, into a slice that holds all of them. It gives how many of the
// addresses it has read, in their order, before one that leads nowhere.
func (r Reader) Each(addresses []uint64, size int, into []byte) int {
	for i, at := range addresses {
		if r(at, into[i*size:(i+1)*size]) != nil {
			return i
		}
	}
	return len(addresses)
}
