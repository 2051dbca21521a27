package jvm

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// stranger has no entry in /etc/passwd, like the user of many an image. HotSpot then makes no file of its counters.
const stranger = 54321

// Wherever the counters are, they are read, in every release.
func TestCounters(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			testenv.Need(t, testenv.Root)
			for name, s := range map[string]setup{
				"file":             {},
				"user without row": {uid: stranger},
				"not shared":       {flags: []string{"-XX:+PerfDisableSharedMem"}},
			} {
				s.home = jdk(t, release)
				checkCounters(t, name, s.start(t))
			}
			removed := setup{home: jdk(t, release)}.start(t)
			files, err := filepath.Glob("/tmp/hsperfdata_*/" + strconv.Itoa(removed.pid))
			if err != nil || len(files) != 1 {
				t.Fatalf("files of counters: %v, %v", files, err)
			}
			if err := os.Remove(files[0]); err != nil {
				t.Fatal(err)
			}
			checkCounters(t, "file removed", removed)
		})
	}
}

func checkCounters(t *testing.T, name string, tg *target) {
	t.Helper()
	vm := tg.inspect(t)
	c, err := vm.OpenPerfData()
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	defer c.Close()
	if inMemory := strings.HasSuffix(c.file.Name(), "/mem"); inMemory == (name == "file") {
		t.Errorf("%s: read from %s", name, c.file.Name())
	}
	s, err := c.Read()
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if got := s.Texts["java.property.java.vm.version"]; majorOf(got) != vm.Major() {
		t.Errorf("%s: version %q", name, got)
	}
	if hz := s.Longs["sun.os.hrt.frequency"]; hz <= 0 || s.Longs["java.threads.live"] < 1 || len(s.Longs) < 100 {
		t.Errorf("%s: %d counters, %d ticks a second, %d threads", name, len(s.Longs), hz, s.Longs["java.threads.live"])
	}
	tg.unharmed(t)
}

// If perfdoctor cannot read the counters, the reason is reported, and why they are in no file.
func TestCountersRefused(t *testing.T) {
	testenv.Need(t, testenv.Root)
	vm := setup{flags: []string{"-XX:-UsePerfData"}}.start(t).inspect(t)
	if _, err := vm.OpenPerfData(); causeOf(err) != Failed || !strings.Contains(err.Error(), "-XX:-UsePerfData") {
		t.Errorf("turned off: %v", err)
	}
	file := filepath.Join(t.TempDir(), "Flags")
	if err := os.WriteFile(file, []byte("-UsePerfData\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tg := setup{flags: []string{"-XX:Flags=" + file}}.start(t) // the older way to write options
	vm = tg.inspect(t)
	if _, err := vm.OpenPerfData(); vm.age() < startTimeOfJVM && causeOf(err) != Starting {
		t.Errorf("young: %v", err)
	}
	time.Sleep(startTimeOfJVM - vm.age())
	if _, err := vm.OpenPerfData(); causeOf(err) != Failed || !strings.Contains(err.Error(), "3 s after its start") {
		t.Errorf("turned off in a file: %v", err)
	}
	other := setup{uid: nobody, flags: []string{"-XX:+PerfDisableSharedMem"}}.start(t)
	if got := asNobody(t, "counters", strconv.Itoa(other.pid)); !strings.HasPrefix(got, "counters: ") &&
		!strings.Contains(got, "-XX:+PerfDisableSharedMem") { // Yama may forbid it even to its user
		t.Errorf("as its own user: %s", got)
	}
}

// bytesAt is memory that begins at an address.
type bytesAt struct {
	at uint64
	b  []byte
}

func (m bytesAt) ReadAt(b []byte, off int64) (int, error) {
	if uint64(off) < m.at || uint64(off) >= m.at+uint64(len(m.b)) {
		return 0, io.EOF
	}
	n := copy(b, m.b[uint64(off)-m.at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// FuzzVMStructs: the table is in the target's memory, which is not trusted.
func FuzzVMStructs(f *testing.F) {
	const base = 0x1000
	entry := func(typeName, field, where uint64) []byte {
		b := make([]byte, vmStructEntry)
		binary.LittleEndian.PutUint64(b, typeName)
		binary.LittleEndian.PutUint64(b[8:], field)
		binary.LittleEndian.PutUint64(b[40:], where)
		return b
	}
	names := []byte("PerfMemory\x00_start\x00_end\x00")
	good := append(append(append(entry(base+144, base+155, 7), entry(base+144, base+162, 8)...),
		make([]byte, vmStructEntry)...), names...)
	f.Add(good, uint64(vmStructEntry))
	f.Add(good[:100], uint64(vmStructEntry))
	f.Add([]byte{}, uint64(vmStructEntry))
	f.Fuzz(func(t *testing.T, memory []byte, stride uint64) {
		if stride < vmStructEntry || stride > 4*vmStructEntry { // which is refused before
			return
		}
		table := &vmStructs{memory: bytesAt{base, memory}, first: base, stride: stride, fieldName: 8, where: 40}
		found, err := table.static("PerfMemory", "_start", "_end")
		if err == nil && len(found) != 2 {
			t.Errorf("found %v", found)
		}
		if string(memory) == string(good) && stride == vmStructEntry && (err != nil || found["_start"] != 7 ||
			found["_end"] != 8) {
			t.Errorf("the right table gives %v, %v", found, err)
		}
	})
}
