package vm

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readCpio lists an archive as "mode major:minor name content", by the format's documentation and not by our writer.
func readCpio(t *testing.T, archive []byte) []string {
	t.Helper()
	var list []string
	r := bytes.NewReader(archive)
	take := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatalf("archive ends after %v: %v", list, err)
		}
		return b
	}
	align := func() { take(-(len(archive) - r.Len()) & 3) }
	for {
		header := take(110)
		if string(header[:6]) != "070701" {
			t.Fatalf("magic %q after %v", header[:6], list)
		}
		field := func(i int) int {
			n, err := strconv.ParseUint(string(header[6+8*i:14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		name := strings.TrimSuffix(string(take(field(11))), "\x00")
		align()
		if name == "TRAILER!!!" {
			return list
		}
		data := take(field(6))
		align()
		list = append(list, fmt.Sprintf("%o %d:%d %s %q", field(1), field(9), field(10), name, data))
	}
}

func testRoot(t *testing.T) *initramfs {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("12345"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("tool", filepath.Join(dir, "alias")); err != nil {
		t.Fatal(err)
	}
	root := newInitramfs()
	root.add("/bin/doctor", 0o755, []byte("ELF"))
	root.link("/init", "/bin/doctor")
	for name, host := range map[string]string{"/opt/all": dir, "/opt/one": filepath.Join(dir, "alias")} {
		if err := root.addHost(name, host); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestInitramfs(t *testing.T) {
	var archive, again bytes.Buffer
	root := testRoot(t)
	for _, w := range []io.Writer{&archive, &again} {
		if err := root.write(w); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`40755 0:0 bin ""`,
		`100755 0:0 bin/doctor "ELF"`,
		`40755 0:0 dev ""`,
		`20600 5:1 dev/console ""`,
		`40755 0:0 etc ""`,
		`100644 0:0 etc/hosts "127.0.0.1 localhost\n::1 localhost\n"`,
		`100644 0:0 etc/passwd "root:x:0:0:root:/tmp:/bin/sh\n"`,
		`120777 0:0 init "/bin/doctor"`,
		`40755 0:0 opt ""`,
		`40755 0:0 opt/all ""`,
		`120777 0:0 opt/all/alias "tool"`,
		`100755 0:0 opt/all/tool "12345"`,
		`100755 0:0 opt/one "12345"`,
		`40755 0:0 run ""`,
		`41777 0:0 tmp ""`,
	}
	if diff := cmp.Diff(want, readCpio(t, archive.Bytes())); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("two archives of the same root differ")
	}
	checkWithCpio(t, archive.Bytes(), len(want))
}

// checkWithCpio asks the format's own program, if it is installed.
func checkWithCpio(t *testing.T, archive []byte, want int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cpio", "--list", "--quiet")
	cmd.Stdin = bytes.NewReader(archive)
	out, err := cmd.CombinedOutput()
	if cmd.Process == nil {
		t.Logf("not checked with cpio: %v", err)
		return
	}
	if got := strings.Count(string(out), "\n"); err != nil || got != want {
		t.Errorf("cpio lists %d entries, want %d: %v\n%s", got, want, err, out)
	}
}

func TestFilesThatCannotBeTaken(t *testing.T) {
	for name, host := range map[string]string{"relative": "/etc/hostname", "/there": "/no/such/file"} {
		if err := newInitramfs().addHost(name, host); err == nil {
			t.Errorf("%s as %s: no error", host, name)
		}
	}
}
