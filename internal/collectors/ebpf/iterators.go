package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	cilium "github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// iteratorBuffer is how much one read of an iterator may return: the kernel keeps eight pages (bpf_seq_read in
// kernel/bpf/bpf_iter.c).
const iteratorBuffer = 64 << 10

// readRecords calls each with every record that an iterator writes. The record is used again for the next one. It
// checks the context once a buffer, which is some tenths of a millisecond of the kernel's work.
func readRecords[T any](ctx context.Context, r io.Reader, each func(*T) error) error {
	var zero T
	size := int(unsafe.Sizeof(zero))
	records := make([]T, max(1, iteratorBuffer/size))
	whole := unsafe.Slice((*byte)(unsafe.Pointer(&records[0])), size*len(records))
	for {
		n, err := fill(ctx, r, whole)
		if err == nil && n%size != 0 {
			err = fmt.Errorf("an iterator's last record has %d bytes of %d", n%size, size)
		}
		for i := range n / size {
			if err := each(&records[i]); err != nil {
				return err
			}
		}
		if err != nil || n < len(whole) {
			return err
		}
	}
}

// fill reads until the buffer is full or the iterator is at its end.
func fill(ctx context.Context, r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && ctx.Err() == nil {
		m, err := r.Read(b[n:])
		n += m
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case errors.Is(err, unix.EAGAIN):
			// a million objects without a record: MAX_ITER_OBJECTS in kernel/bpf/bpf_iter.c
		case err != nil:
			return n, fmt.Errorf("read an iterator: %w", err)
		}
	}
	return n, ctx.Err()
}

// The commands and the attach type of include/uapi/linux/bpf.h that a cgroup iterator needs. cilium/ebpf v0.22.0
// attaches only iterators without parameters and those of maps.
const (
	bpfLinkCreate = 28
	bpfIterCreate = 33
	bpfTraceIter  = 28
)

// A cgroupLink is an iterator over a control group and those below it. The group itself comes first.
type cgroupLink struct{ fd int }

// linkCgroups attaches a program of type iter/cgroup to the directory of a group, of v1 or v2 (Linux 6.1).
func linkCgroups(p *cilium.Program, dir string) (*cgroupLink, error) {
	group, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	// union bpf_iter_link_info: the descendants, parents first, of the group behind the descriptor.
	const descendantsPre = 2
	info := struct {
		order, fd uint32
		id        uint64
	}{order: descendantsPre, fd: uint32(group.Fd())}
	attr := struct {
		program, target, attachType, flags uint32
		info                               uint64
		infoLen, _                         uint32
	}{
		program: uint32(p.FD()), attachType: bpfTraceIter,
		info: uint64(uintptr(unsafe.Pointer(&info))), infoLen: uint32(unsafe.Sizeof(info)),
	}
	fd, err := bpfCall(bpfLinkCreate, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(&info)
	runtime.KeepAlive(p)
	if err != nil {
		return nil, fmt.Errorf("attach an iterator to cgroup %s: %w", dir, err)
	}
	return &cgroupLink{fd}, nil
}

// open starts one pass.
func (l *cgroupLink) open() (io.ReadCloser, error) {
	attr := struct{ link, flags uint32 }{link: uint32(l.fd)}
	fd, err := bpfCall(bpfIterCreate, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return nil, fmt.Errorf("create an iterator over cgroups: %w", err)
	}
	return os.NewFile(uintptr(fd), "bpf_iter"), nil
}

// Close detaches.
func (l *cgroupLink) Close() error { return unix.Close(l.fd) }

func bpfCall(command uintptr, attr unsafe.Pointer, size uintptr) (fd int, err error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return -1, errno
	}
	// the kernel sets it already (anon_inode_getfd with O_CLOEXEC); a kernel that does not must not leak it
	unix.CloseOnExec(int(n))
	return int(n), nil
}
