// Package guest is the inside of a throwaway guest: process 1, and the stream of results that it sends out.
//
// The program to run in the guest is also its init, so the guest needs no other toolchain or distribution. main calls
// [Main] if [IsInit] returns true. Package vm is the other side.
package guest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Kind says what a frame's payload is.
type Kind byte

// The frames of one run, in this order: Boot, any number of Stdout and Stderr, any number of Tar, Exit.
const (
	Boot   Kind = 'b' // JSON of Booted
	Stdout Kind = 'o' // bytes the command wrote
	Stderr Kind = 'e'
	Tar    Kind = 't' // bytes of one tar archive with the files asked for
	Exit   Kind = 'x' // JSON of Exited
)

const (
	// magic begins each frame, so that a stream that is out of step is noticed at the next frame, not by a wild
	// length.
	magic = "PDg1"
	// maxPayload is small, so that a command's output is seen while it runs, and a damaged length allocates little.
	maxPayload = 64 << 10
	// headerSize is magic, kind, length and CRC-32C; numbers are little-endian as on both supported architectures.
	headerSize = len(magic) + 1 + 4 + 4
)

// Booted is what the guest says about itself before it runs the command.
type Booted struct {
	Release string   `json:"release"` // uname -r
	Uptime  float64  `json:"uptime"`  // seconds of the guest's clock since its kernel began
	Notes   []string `json:"notes"`   // what the guest could not set up and does without
}

// Exited is how the command ended.
type Exited struct {
	Code  int    `json:"code"`  // its exit status, or 128 + the signal that killed it, as in a shell
	Error string `json:"error"` // why there is no status: setting up the guest or starting the command failed
}

// WriteFrames writes data as frames of one kind, at least one.
func WriteFrames(w io.Writer, kind Kind, data []byte) error {
	for {
		n := min(len(data), maxPayload)
		frame := make([]byte, headerSize, headerSize+n)
		frame = append(frame, data[:n]...)
		copy(frame, magic)
		frame[len(magic)] = byte(kind)
		binary.LittleEndian.PutUint32(frame[len(magic)+1:], uint32(n))
		binary.LittleEndian.PutUint32(frame[len(magic)+5:], checksum(kind, frame[headerSize:]))
		if _, err := w.Write(frame); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// checksum is the CRC-32C of kind and payload.
func checksum(kind Kind, payload []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte{byte(kind)}, table), table, payload)
}

// Frames reads a stream of frames.
type Frames struct{ r *bufio.Reader }

// NewFrames reads frames from r.
func NewFrames(r io.Reader) *Frames { return &Frames{bufio.NewReader(r)} }

// Next returns the next frame, io.EOF after the last complete one, or an error that says how the stream is damaged.
// The results of a guest are trusted completely or not at all.
func (f *Frames) Next() (Kind, []byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(f.r, header[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return 0, nil, io.EOF
		}
		return 0, nil, fmt.Errorf("guest's results end within a frame: %w", err)
	}
	kind := Kind(header[len(magic)])
	size := binary.LittleEndian.Uint32(header[len(magic)+1:])
	switch {
	case string(header[:len(magic)]) != magic:
		return 0, nil, fmt.Errorf("guest's results are damaged: %q where a frame should begin", header[:len(magic)])
	case size > maxPayload:
		return 0, nil, fmt.Errorf("guest's results are damaged: a frame of %d bytes, where at most %d are sent", size,
			maxPayload)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(f.r, payload); err != nil {
		return 0, nil, fmt.Errorf("guest's results end within a frame of %d bytes: %w", size, io.ErrUnexpectedEOF)
	}
	if got, want := checksum(kind, payload), binary.LittleEndian.Uint32(header[len(magic)+5:]); got != want {
		return 0, nil, fmt.Errorf("guest's results are damaged: a frame's checksum is %08x, its bytes give %08x", want,
			got)
	}
	return kind, payload, nil
}
