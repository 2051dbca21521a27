package vm

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
)

// fakeELF is a file with one note segment and one .modinfo section.
func fakeELF(t testing.TB, machine elf.Machine, note, modinfo string) []byte {
	t.Helper()
	const headers, program, section = 64, 56, 64
	names := "\x00.modinfo\x00.shstrtab\x00"
	noteAt := uint64(headers + program)
	infoAt := noteAt + uint64(len(note))
	namesAt := infoAt + uint64(len(modinfo))
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Phoff: headers, Shoff: namesAt +
			uint64(len(names)),
		Ehsize: headers, Phentsize: program, Phnum: 1, Shentsize: section, Shnum: 3, Shstrndx: 2,
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	var b bytes.Buffer
	for _, part := range []any{
		h,
		elf.Prog64{Type: uint32(elf.PT_NOTE), Off: noteAt, Filesz: uint64(len(note))},
		[]byte(note), []byte(modinfo), []byte(names),
		elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: infoAt, Size: uint64(len(modinfo))},
		elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))},
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// pvhNote is what readelf --notes shows of Debian's vmlinux, with an address of 4 bytes.
const pvhNote = "\x04\x00\x00\x00\x04\x00\x00\x00\x12\x00\x00\x00Xen\x00\x00\x00\x00\x01"

func pack(t testing.TB, format string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch format {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	case "xz":
		w, err = xz.NewWriter(&b)
	case "lz4":
		legacy := lz4.NewWriter(&b)
		err = legacy.Apply(lz4.LegacyOption(true))
		w = legacy
	default:
		return append([]byte("\x89LZO\x00\r\n\x1a\n"), data...)
	}
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fakeBzImage lays out a packed kernel like the header in Documentation/arch/x86/boot.rst.
func fakeBzImage(t testing.TB, format string, kernel []byte) []byte {
	t.Helper()
	packed := pack(t, format, kernel)
	if format != "gzip" {
		packed = binary.LittleEndian.AppendUint32(packed, uint32(len(kernel)))
	}
	const setup, before = 2, 100 // sectors, and bytes of code before the payload
	image := make([]byte, (setup+1)*512+before, (setup+1)*512+before+len(packed)+10)
	image[0x1f1] = setup
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(image[0x206:], 0x20f)
	binary.LittleEndian.PutUint32(image[0x248:], before)
	binary.LittleEndian.PutUint32(image[0x24c:], uint32(len(packed)))
	return append(append(image, packed...), "code after"...)
}

func fakeArm64() []byte {
	image := bytes.Repeat([]byte("arm64 code"), 100)
	copy(image[0x38:], "ARM\x64")
	return image
}

func fakeZboot(t testing.TB) []byte {
	t.Helper()
	packed := pack(t, "gzip", fakeArm64())
	head := make([]byte, 64)
	copy(head, "MZ\x00\x00zimg")
	binary.LittleEndian.PutUint32(head[8:], 64)
	binary.LittleEndian.PutUint32(head[12:], uint32(len(packed)))
	copy(head[24:], "gzip")
	return append(head, packed...)
}

func TestParseImage(t *testing.T) {
	vmlinux := append(fakeELF(t, elf.EM_X86_64, pvhNote, ""), bytes.Repeat([]byte("kernel "), 200000)...)
	noPVH := fakeELF(t, elf.EM_X86_64, "", "")
	lzo := fakeBzImage(t, "lzo", vmlinux)
	cut := fakeBzImage(t, "gzip", vmlinux)
	cut = cut[:len(cut)-500]
	wrongSize := fakeBzImage(t, "zstd", vmlinux)
	wrongSize[len(wrongSize)-11]++ // the highest byte of the size
	direct := fakeBzImage(t, "gzip", noPVH)
	for _, test := range []struct {
		name   string
		data   []byte
		want   []byte
		arch   string
		refuse string
	}{
		{"vmlinux", vmlinux, vmlinux, "amd64", ""},
		{"bzImage gzip", fakeBzImage(t, "gzip", vmlinux), vmlinux, "amd64", ""},
		{"bzImage zstd", fakeBzImage(t, "zstd", vmlinux), vmlinux, "amd64", ""},
		{"bzImage xz", fakeBzImage(t, "xz", vmlinux), vmlinux, "amd64", ""},
		{"bzImage lz4", fakeBzImage(t, "lz4", vmlinux), vmlinux, "amd64", ""},
		{"bzImage lzo boots itself", lzo, lzo, "amd64", ""},
		{"bzImage without PVH boots itself", direct, direct, "amd64", ""},
		{"bzImage cut short", cut, cut, "amd64", ""},
		{"bzImage with a wrong size", wrongSize, wrongSize, "amd64", ""},
		{"Image", fakeArm64(), fakeArm64(), "arm64", ""},
		{"Image.gz", pack(t, "gzip", fakeArm64()), fakeArm64(), "arm64", ""},
		{"zboot", fakeZboot(t), fakeArm64(), "arm64", ""},
		{"vmlinux without PVH", noPVH, nil, "", "CONFIG_PVH"},
		{"vmlinux of another machine", fakeELF(t, elf.EM_PPC64, "", ""), nil, "", "EM_PPC64"},
		{"text", []byte("#!/bin/sh\n"), nil, "", "neither"},
		{"empty", nil, nil, "", "neither"},
		{"gzip in gzip", pack(t, "gzip", pack(t, "gzip", vmlinux)), nil, "", "neither"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseImage(test.data)
			if test.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), test.refuse) {
					t.Fatalf("error %v, want one about %q", err, test.refuse)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.arch != test.arch || !bytes.Equal(got.data, test.want) {
				t.Errorf("%s, %d bytes; want %s, %d bytes", got.arch, len(got.data), test.arch, len(test.want))
			}
		})
	}
}

func FuzzParseImage(f *testing.F) {
	small := fakeELF(f, elf.EM_X86_64, pvhNote, "")
	f.Add(small)
	f.Add(fakeBzImage(f, "gzip", small))
	f.Add(fakeBzImage(f, "zstd", small))
	f.Add(fakeBzImage(f, "lz4", small))
	f.Add(fakeZboot(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			t.Skip("larger inputs find nothing more, and may unpack to much")
		}
		img, err := parseImage(data)
		if (err == nil) != (img.arch != "" && len(img.data) > 0) {
			t.Errorf("image %q of %d bytes with error %v", img.arch, len(img.data), err)
		}
	})
}

func TestModules(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	depends := func(list string) []byte {
		return fakeELF(t, elf.EM_X86_64, "", "license=GPL\x00depends="+list+"\x00name=x\x00")
	}
	write("kernel/net/nf_nat.ko", depends("nf_conntrack,libcrc32c"))
	write("kernel/net/nf_conntrack.ko.xz", pack(t, "xz", depends("nf-defrag-ipv4,libcrc32c")))
	write("kernel/net/nf_defrag_ipv4.ko.zst", pack(t, "zstd", depends("")))
	write("kernel/net/broken.ko", []byte("not a module"))
	write("kernel/net/lost.ko", depends("gone"))
	write("kernel/net/sch-odd.ko", depends(""))
	write("modules.builtin", []byte("kernel/lib/libcrc32c.ko\n"))
	for _, test := range []struct {
		wanted, required []string
		want             string
		refuse           string
	}{
		{[]string{"nf_nat", "not_there"}, []string{"sch-odd"}, "nf_defrag_ipv4 nf_conntrack nf_nat sch_odd", ""},
		{[]string{"nf_conntrack", "nf_nat", "libcrc32c"}, nil, "nf_defrag_ipv4 nf_conntrack nf_nat", ""},
		{nil, []string{"not_there"}, "", "no module not_there"},
		{nil, []string{"lost"}, "", "no module gone"},
		{nil, []string{"broken"}, "", "broken.ko"},
	} {
		tree, err := openModules(dir)
		if err != nil {
			t.Fatal(err)
		}
		order, err := tree.resolve(test.wanted, test.required)
		if test.refuse != "" {
			if err == nil || !strings.Contains(err.Error(), test.refuse) {
				t.Errorf("%v %v: error %v, want one about %q", test.wanted, test.required, err, test.refuse)
			}
			continue
		}
		var names []string
		for _, m := range order {
			names = append(names, m.name)
		}
		if diff := cmp.Diff(test.want, strings.Join(names, " ")); err != nil || diff != "" {
			t.Errorf("%v %v: %v (-want +got):\n%s", test.wanted, test.required, err, diff)
		}
	}
}

func TestSourcesOf(t *testing.T) {
	got, err := sourcesOf("http://a/debian/ bookworm\nhttp://a/debian/ bookworm-updates\nhttp://a/debian/ bookworm\n"+
		"http://b/security/ bookworm-security\nhttp://a/debian/ bookworm-backports\n", "bullseye")
	want := "deb [signed-by=" + debianKeys + "] http://a/debian/ bullseye main\n" +
		"deb [signed-by=" + debianKeys + "] http://a/debian/ bullseye-updates main\n" +
		"deb [signed-by=" + debianKeys + "] http://b/security/ bullseye-security main\n"
	if err != nil || got != want {
		t.Errorf("sources: %v\n%s", err, got)
	}
	if got, err := sourcesOf("", "bullseye"); err == nil {
		t.Errorf("no sources: %q, want an error", got)
	}
}

func TestNewestKernel(t *testing.T) {
	const found = `linux-image-6.12.113+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)
linux-image-6.12.99+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)
linux-image-6.12.117+deb12-cloud-amd64-unsigned - Linux 6.12 for x86-64 cloud
linux-image-6.12.117+deb12-rt-amd64 - Linux 6.12 for 64-bit PCs, PREEMPT_RT
linux-image-6.1.0-56-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.1.0-9-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
`
	for _, test := range []struct{ release, arch, want string }{
		{"6.12", "amd64", "linux-image-6.12.113+deb12-cloud-amd64"},
		{"6.1", "amd64", "linux-image-6.1.0-56-cloud-amd64"},
		{"6.1", "arm64", ""},
		{"5.10", "amd64", ""},
	} {
		if got, _ := newestKernel(found, test.release, test.arch); got != test.want {
			t.Errorf("%s for %s: %q, want %q", test.release, test.arch, got, test.want)
		}
	}
	for _, bad := range [][2]string{{"6", "amd64"}, {"../6.1", "amd64"}, {"6.1", "riscv64"}} {
		if _, err := fetchKernel(t.Context(), t.TempDir(), bad[0], bad[1]); err == nil {
			t.Errorf("kernel %v: no error", bad)
		}
	}
}
