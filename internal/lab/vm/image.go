package vm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
)

// An image is a kernel in the form that qemu loads.
type image struct {
	data []byte
	arch string // as GOARCH
}

// loadImage reads a kernel: vmlinux, bzImage, or arm64's Image plain, under gzip or as an EFI zboot file.
func loadImage(path string) (image, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return image{}, fmt.Errorf("kernel for the guest: %w", err)
	}
	img, err := parseImage(data)
	if err != nil {
		return image{}, fmt.Errorf("kernel %s: %w", path, err)
	}
	return img, nil
}

func parseImage(data []byte) (image, error) {
	switch {
	case begins(data, elf.ELFMAG):
		return vmlinux(data)
	case at(data, 0x202, "HdrS"): // Documentation/arch/x86/boot.rst
		return bzImage(data), nil
	case at(data, 0x38, "ARM\x64"): // Documentation/arch/arm64/booting.rst
		return image{data, "arm64"}, nil
	case at(data, 4, "zimg"):
		return zboot(data)
	}
	unpacked, err := decompress(data)
	if err != nil || begins(unpacked, "\x1f\x8b") {
		return image{},
			errors.New("neither a vmlinux, a bzImage nor an arm64 Image: give the file of a distribution's " +
				"kernel package, such as /boot/vmlinuz-*")
	}
	return parseImage(unpacked)
}

func at(data []byte, offset int, magic string) bool {
	return len(data) >= offset && begins(data[offset:], magic)
}

// vmlinux accepts an x86 kernel that has the entry point where qemu starts an ELF file.
func vmlinux(data []byte) (image, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return image{}, fmt.Errorf("vmlinux: %w", err)
	}
	if f.Machine != elf.EM_X86_64 {
		return image{}, fmt.Errorf("vmlinux for %v: give the Image file of an arm64 kernel, or a kernel for x86-64",
			f.Machine)
	}
	if !hasPVH(f) {
		return image{}, errors.New("this vmlinux was built without CONFIG_PVH: give the bzImage instead")
	}
	return image{data, "amd64"}, nil
}

// hasPVH looks for the note XEN_ELFNOTE_PHYS32_ENTRY (include/xen/interface/elfnote.h) of Xen.
func hasPVH(f *elf.File) bool {
	const phys32Entry = 18
	note := binary.LittleEndian.AppendUint32(nil, phys32Entry)
	note = append(note, "Xen\x00"...)
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > 1<<20 { // notes are a few hundred bytes
			continue
		}
		data := make([]byte, p.Filesz)
		if _, err := p.ReadAt(data, 0); err == nil && bytes.Contains(data, note) {
			return true
		}
	}
	return false
}

// bzImage extracts the vmlinux, because the kernel's own unpacking is slow on an emulated CPU. It boots the bzImage
// itself if it cannot use the vmlinux: the vmlinux may be packed with lzo or with xz's filter for x86 code, or have
// no entry point for qemu.
func bzImage(data []byte) image {
	unpacked, err := payload(data)
	if err == nil {
		if img, err := vmlinux(unpacked); err == nil {
			return img
		}
	}
	return image{data, "amd64"}
}

// payload finds the packed kernel by the header's fields (Documentation/arch/x86/boot.rst, protocol 2.08 on).
func payload(data []byte) ([]byte, error) {
	const setupSectors, version, payloadOffset, payloadLength, sector = 0x1f1, 0x206, 0x248, 0x24c, 512
	if len(data) < payloadLength+4 || binary.LittleEndian.Uint16(data[version:]) < 0x208 {
		return nil, errors.New("bzImage: the boot protocol is older than 2.08 (Linux 2.6.26)")
	}
	setup := uint64(data[setupSectors])
	if setup == 0 {
		setup = 4 // the meaning of 0 for historical reasons
	}
	begin := (setup+1)*sector + uint64(binary.LittleEndian.Uint32(data[payloadOffset:]))
	end := begin + uint64(binary.LittleEndian.Uint32(data[payloadLength:]))
	if end > uint64(len(data)) || begin+4 > end {
		return nil, fmt.Errorf("bzImage: its packed kernel ends at byte %d of %d: a damaged file", end, len(data))
	}
	packed := data[begin:end]
	if !sized(packed) {
		return decompress(packed)
	}
	want := binary.LittleEndian.Uint32(packed[len(packed)-4:])
	out, err := decompress(packed[:len(packed)-4])
	if err == nil && uint64(len(out)) != uint64(want) {
		return nil, fmt.Errorf("bzImage: unpacked to %d bytes, its trailer says %d", len(out), want)
	}
	return out, err
}

// zboot unpacks an EFI zboot file (drivers/firmware/efi/libstub/zboot-header.S), because qemu before 8.0 cannot.
func zboot(data []byte) (image, error) {
	const offsetField, sizeField, typeField, typeEnd = 8, 12, 24, 56
	if len(data) < typeEnd {
		return image{}, errors.New("zboot: the file is too short")
	}
	begin := uint64(binary.LittleEndian.Uint32(data[offsetField:]))
	end := begin + uint64(binary.LittleEndian.Uint32(data[sizeField:]))
	if end > uint64(len(data)) {
		return image{}, fmt.Errorf("zboot: its packed kernel ends at byte %d of %d: a damaged file", end, len(data))
	}
	out, err := decompress(data[begin:end])
	if err != nil {
		kind, _, _ := strings.Cut(string(data[typeField:typeEnd]), "\x00")
		return image{}, fmt.Errorf("zboot: packed with %q: %w", kind, err)
	}
	if !at(out, 0x38, "ARM\x64") {
		return image{}, errors.New("zboot: holds no arm64 kernel")
	}
	return image{out, "arm64"}, nil
}
