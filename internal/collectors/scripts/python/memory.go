package python

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// errMemory is why something was not read: an address that is none, as of a structure that changed meanwhile.
var errMemory = errors.New("an address leads nowhere")

// A memory reads the memory of one process.
type memory func(address uint64, into []byte) error

// memoryOf reads by process_vm_readv(2), which stops nothing and needs the right to trace the process.
func memoryOf(pid int) memory {
	return func(address uint64, into []byte) error {
		local := []unix.Iovec{{Base: &into[0], Len: uint64(len(into))}}
		remote := []unix.RemoteIovec{{Base: uintptr(address), Len: len(into)}}
		n, err := unix.ProcessVMReadv(pid, local, remote, 0)
		switch {
		case errors.Is(err, unix.EFAULT):
			return errMemory
		case err != nil:
			return err
		case n != len(into):
			return errMemory
		}
		return nil
	}
}

func (m memory) word(address uint64) (uint64, error) {
	var b [8]byte
	err := m(address, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}
