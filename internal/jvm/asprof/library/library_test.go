package library

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// TestFetched checks what the build embeds: the pinned files. If there is Maven, `make bundle` has fetched them.
func TestFetched(t *testing.T) {
	for _, f := range Files() {
		content, err := f.Read(os.DirFS("."))
		if errors.Is(err, ErrNotBundled) {
			testenv.Need(t, testenv.Tool("mvn"))
			t.Fatalf("%s: not fetched, though there is Maven: run `make bundle`", f.Arch)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(content, []byte("\x7fELF")) {
			t.Errorf("%s is no ELF file", f.InJar)
		}
	}
}

func TestRead(t *testing.T) {
	content := bytes.Repeat([]byte("library "), 1000)
	sum := sha256.Sum256(content)
	f := File{Arch: "arch", SHA256: hex.EncodeToString(sum[:])}
	pack := func(b []byte) []byte {
		t.Helper()
		packed, err := Pack(b)
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	for _, tc := range []struct {
		name, want string
		file       []byte
	}{
		{"right", "", pack(content)},
		{"another release", "has SHA-256", pack([]byte("another"))},
		{"no archive", "bundled async-profiler", content},
		{"cut off", "bundled async-profiler", pack(content)[:20]},
		{"too large", "bundled async-profiler", pack(make([]byte, maxSize+1))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := f.Read(fstest.MapFS{filepath.Join("arch", FileName): {Data: tc.file}})
			switch {
			case tc.want == "" && (err != nil || !bytes.Equal(got, content)):
				t.Errorf("%d bytes, %v", len(got), err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := f.Read(fstest.MapFS{}); !errors.Is(err, ErrNotBundled) {
		t.Errorf("without a file: %v", err)
	}
}
