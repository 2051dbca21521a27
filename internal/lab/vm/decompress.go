package vm

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
)

// maxUnpacked bounds the unpacked size of a kernel or module: Debian's vmlinux has 53 MB in 6.1.
const maxUnpacked = 1 << 30

// errCompression is the error for an unknown format.
var errCompression = errors.New("not compressed with gzip, bzip2, xz, lz4 or zstd")

// decompress unpacks one compressed stream. It detects the format by the first bytes.
func decompress(data []byte) ([]byte, error) {
	r, err := reader(data)
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	if len(out) > maxUnpacked {
		return nil, fmt.Errorf("unpack: more than %d bytes", maxUnpacked)
	}
	return out, nil
}

func reader(data []byte) (io.Reader, error) {
	in := bytes.NewReader(data)
	switch {
	case begins(data, "\x1f\x8b\x08"):
		r, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		r.Multistream(false) // other bytes may follow
		return r, nil
	case begins(data, "BZh"):
		return bzip2.NewReader(in), nil
	case begins(data, "\xfd7zXZ\x00"):
		return xz.ReaderConfig{SingleStream: true}.NewReader(in)
	case begins(data, "\x02\x21\x4c\x18"), begins(data, "\x04\x22\x4d\x18"):
		// the kernel uses the first, the legacy frame
		return lz4.NewReader(in), nil
	case begins(data, "\x28\xb5\x2f\xfd"):
		r, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
		if err != nil {
			return nil, err
		}
		return r.IOReadCloser(), nil
	}
	return nil, errCompression
}

func begins(data []byte, magic string) bool { return bytes.HasPrefix(data, []byte(magic)) }

// sized reports whether the kernel's build appends the unpacked size to this format (scripts/Makefile.lib,
// size_append). It does so for all formats except gzip, which has the size in its own trailer.
func sized(data []byte) bool { return !slices.Equal(data[:min(2, len(data))], []byte("\x1f\x8b")) }
