// Package memory reads the memory of a process from outside ([door.Memory]), and finds in its files where things lie
// in memory. The process's owner controls what the memory holds, so every read is bounded.
package memory

import (
	"encoding/binary"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// ErrNowhere says that an address is invalid, for instance because a structure changed meanwhile.
var ErrNowhere = errors.New("an address leads nowhere")

// A Reader fills a slice with what is at an address. Its error is [ErrNowhere] if some of it cannot be read.
type Reader func(address uint64, into []byte) error

// Of returns a reader of the memory of a process.
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

// Each reads so many bytes at each of several addresses, into a slice that holds all of them. It returns how many of
// the addresses it has read, in their order, before one that leads nowhere.
func (r Reader) Each(addresses []uint64, size int, into []byte) int {
	for i, at := range addresses {
		if r(at, into[i*size:(i+1)*size]) != nil {
			return i
		}
	}
	return len(addresses)
}

// threadIDs are the offsets of tid in struct pthread: in glibc on amd64 and arm64 (nptl/descr.h), and in musl on
// amd64 and arm64 (src/internal/pthread_impl.h).
var threadIDs = [...]uint64{720, 208, 48, 32}

// ThreadID returns the kernel's id of a thread by its pthread_t (pthread_self(3)): the number there that ids accepts
// as a thread of the process. It returns 0 if there is none.
func (r Reader) ThreadID(pthread uint64, ids func(int) bool) int {
	for _, at := range threadIDs {
		word, err := r.Word(pthread + at)
		if id := int(int32(word)); pthread != 0 && err == nil && id > 0 && ids(id) {
			return id
		}
	}
	return 0
}
