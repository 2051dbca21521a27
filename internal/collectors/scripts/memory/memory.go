// Package memory reads the memory of a process from outside, and finds in its files where things lie there. It reads by
// process_vm_readv(2), with the right to trace the process: nothing is attached, stopped or written. Whoever owns the
// process owns what it holds, so all of it is read within bounds.
package memory

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// ErrNowhere is why something was not read: an address that is none, as of a structure that changed meanwhile.
var ErrNowhere = errors.New("an address leads nowhere")

// A Reader fills a slice with what is at an address. Its error is [ErrNowhere] where some of it cannot be read.
type Reader func(address uint64, into []byte) error

// Of reads the memory of a process.
func Of(pid int) Reader {
	return func(address uint64, into []byte) error {
		local := []unix.Iovec{{Base: &into[0], Len: uint64(len(into))}}
		remote := []unix.RemoteIovec{{Base: uintptr(address), Len: len(into)}}
		n, err := unix.ProcessVMReadv(pid, local, remote, 0)
		switch {
		case errors.Is(err, unix.EFAULT):
			return ErrNowhere
		case err != nil:
			return err
		case n != len(into):
			return ErrNowhere
		}
		return nil
	}
}

// Word reads eight bytes, the lowest first.
func (r Reader) Word(address uint64) (uint64, error) {
	var b [8]byte
	err := r(address, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// EachOf reads so many bytes at each of several addresses with one system call, into a slice that holds all of them. It
// gives how many of the addresses it has read, in their order, before one that leads nowhere.
func EachOf(pid int) func(addresses []uint64, size int, into []byte) int {
	var remote []unix.RemoteIovec
	return func(addresses []uint64, size int, into []byte) int {
		remote = remote[:0]
		for _, at := range addresses[:min(len(addresses), maxAddresses)] {
			remote = append(remote, unix.RemoteIovec{Base: uintptr(at), Len: size})
		}
		local := []unix.Iovec{{Base: &into[0], Len: uint64(len(remote) * size)}}
		n, err := unix.ProcessVMReadv(pid, local, remote, 0)
		if err != nil {
			return 0
		}
		return n / size
	}
}

// maxAddresses bounds what one call takes (UIO_MAXIOV in include/uapi/linux/uio.h).
const maxAddresses = 1024
