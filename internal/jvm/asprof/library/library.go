// Package library embeds async-profiler's shared library in this program.
//
// The file is not part of the repository: internal/jvm/asprof/fetch downloads it from Maven's central repository when
// perfdoctor is built, pinned by version and checksum. A build without it compiles and works, and says that the
// library is missing.
package library

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"

	"github.com/klauspost/compress/zstd"
)

// Version is the release of async-profiler that is bundled: the newest in Maven's central repository when it was
// chosen.
const Version = "4.6"

// Artifact is where the release is, as Maven names it: group, name, version and packaging.
const Artifact = "tools.profiler:async-profiler:" + Version + ":jar"

// FileName is the name of the compressed library in the folder of its architecture. Zstandard compresses 597 KB to
// 259 KB and unpacks in 1.2 ms; gzip takes 272 KB and 3.5 ms, xz 250 KB and 23 ms. The program has the Zstandard
// decoder anyway, for kernel images.
const FileName = "libasyncProfiler.so.zst"

// A File is the library for one architecture.
type File struct {
	Arch   string // as GOARCH names it; also its folder beside this file
	InJar  string // path inside the artifact
	SHA256 string // of the library itself, in hexadecimal
}

// Files lists the libraries of the release that perfdoctor is built for.
func Files() []File {
	return []File{
		{"amd64", "linux-x64/libasyncProfiler.so", "1aa55af4645fafb7b70fe78b8bcc8d32a1a2fce1a278ce04318224df68694fb2"},
		{
			"arm64", "linux-arm64/libasyncProfiler.so",
			"45895af951d172126819552f5e2762b1a71c4db2a95ab8def791becb9ce7e35d",
		},
	}
}

// ErrNotBundled says that this build came without the library.
var ErrNotBundled = errors.New("this build of perfdoctor came without async-profiler")

// Bundled returns the library for this machine: about 600 KB. The error is [ErrNotBundled], or says that the embedded
// file is not the pinned one, as in a build that embedded the file fetched by an older checkout.
func Bundled() ([]byte, error) {
	for _, f := range Files() {
		if f.Arch == runtime.GOARCH {
			return f.Read(embedded)
		}
	}
	return nil, fmt.Errorf("%w: it exists for amd64 and arm64, this is %s", ErrNotBundled, runtime.GOARCH)
}

// Read returns the library from a folder with one folder per architecture, after it has verified the checksum.
func (f File) Read(dir fs.FS) ([]byte, error) {
	packed, err := fs.ReadFile(dir, path.Join(f.Arch, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotBundled
	}
	if err != nil {
		return nil, fmt.Errorf("bundled async-profiler: %w", err)
	}
	content, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("bundled async-profiler: %w", err)
	}
	return content, f.Verify(content)
}

// maxSize bounds the unpacked size: four times that of the library.
const maxSize = 2400 << 10

func unpack(packed []byte) ([]byte, error) {
	r, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(
		maxSize))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxSize {
		return nil, fmt.Errorf("it is larger than %d bytes unpacked", maxSize)
	}
	return content, nil
}

// Pack compresses a library into the form that [File.Read] reads.
func Pack(content []byte) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return nil, err
	}
	return w.EncodeAll(content, nil), w.Close()
}

// Verify compares a library with the pinned checksum.
func (f File) Verify(content []byte) error {
	sum := sha256.Sum256(content)
	if got := hex.EncodeToString(sum[:]); got != f.SHA256 {
		return fmt.Errorf("libasyncProfiler.so for %s has SHA-256 %s, async-profiler %s has %s", f.Arch, got, Version,
			f.SHA256)
	}
	return nil
}
