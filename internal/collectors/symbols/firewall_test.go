package symbols

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm/perfmap"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// noted returns what a symbolizer appends to the recording about names that it lacks.
func noted(s *Symbolizer) (all []string) {
	a := recording.NewBuilder().Appender()
	s.AppendNameless(a)
	lost, _ := a.Commit()
	for _, l := range lost {
		all = append(all, l.What)
	}
	return all
}

// third fails like a parser that trusts a length: with a panic of the runtime.
func third(list []byte) byte { return list[2] }

// TestDemanglerFault is attack 8. If the demangler panics on a name, as that of 2025 did on _ZN1AcvT_cvT_IiEEv, only
// that name stays mangled, and the recording says so.
func TestDemanglerFault(t *testing.T) {
	const fatal = "_ZN1AcvT_cvT_IiEEv"
	s := New("/proc", nil)
	demangled := s.demangle
	s.demangle = func(name string) string {
		if name == fatal {
			return string(third([]byte(name)[:2]))
		}
		return demangled(name)
	}
	m := door.Mapping{Path: "/usr/bin/spinner"}
	for name, want := range map[string]string{fatal: fatal, "_ZN3foo3barEv": "foo::bar", "main": "main"} {
		for range 2 {
			if got := s.readable(7, m, name); got != want {
				t.Errorf("readable(%s) = %s, want %s", name, got, want)
			}
		}
	}
	all := noted(s)
	if len(all) != 1 || !strings.HasPrefix(all[0],
		`names of the functions of "/usr/bin/spinner": a mangled name of pid 7: perfdoctor failed`) ||
		strings.Contains(all[0], "_ZN1") {
		t.Errorf("the recording says %q", all)
	}
}

// TestELFFault: an ELF parser that fails on one file costs only the names of that file, and the recording says so.
func TestELFFault(t *testing.T) {
	s := New("/proc", nil)
	pid := uint32(os.Getpid())
	var own []door.Mapping
	for _, m := range s.mapsOf(pid) {
		if strings.HasPrefix(m.Path, "/") {
			own = append(own, m)
		}
	}
	if len(own) == 0 {
		t.Fatal("this process has no executable mapping of a file")
	}
	s.elf = func(io.ReaderAt, *door.TableBudget) (*objectFile, error) {
		third(nil)
		return nil, nil
	}
	frames := s.UserFrames(pid, own[0].From)
	want := filepath.Base(own[0].Path)
	if len(frames) != 1 || frames[0].Name != unknownFrame || frames[0].Module != want {
		t.Errorf("frames %+v, want one without a name of %s", frames, want)
	}
	s.UserFrames(pid, own[0].From) // it is read once
	if all := noted(s); len(all) != 1 || !strings.Contains(all[0], own[0].Path) ||
		!strings.Contains(all[0], "an ELF file of pid") {
		t.Errorf("the recording says %q", all)
	}
	// Of another file the names are read.
	s.elf = readBinary
	clear(s.binaries)
	clear(s.files)
	if s.binaryOf(pid, own[0]) == nil {
		t.Error("the next file is not read")
	}
}

// TestSlowNames: names that take too long to read are left out, and the recording says so.
func TestSlowNames(t *testing.T) {
	s := New("/proc", nil)
	defer s.Close()
	pid := uint32(os.Getpid())
	m, ok := s.mappingOf(pid, uint64(reflect.ValueOf(third).Pointer()))
	if !ok {
		t.Fatal("this program's code is in no mapping")
	}
	s.spent = readTime + 1
	b := s.binaryOf(pid, m)
	if b == nil {
		t.Fatalf("%s is not read", m.Path)
	}
	if sym, ok := s.functionIn(pid, m, b, m.From); ok {
		t.Errorf("a name was read: %+v", sym)
	}
	if all := noted(s); len(all) != 1 || !strings.Contains(all[0], "reading them took") {
		t.Errorf("the recording says %q", all)
	}
}

// TestPerfMapFault: a perf map parser that fails on one map costs the names of that process. The collector passes its
// error to the recording.
func TestPerfMapFault(t *testing.T) {
	s := New("/proc", nil)
	s.perfMap = func(r io.Reader) (*perfmap.Map, error) {
		text, err := io.ReadAll(r)
		third(text[:2])
		return nil, err
	}
	file := filepath.Join(t.TempDir(), "perf-7.map")
	if err := os.WriteFile(file, []byte("10 10 method\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = s.takeMap(7, f)
	if !firewall.IsFault(err) || !strings.Contains(err.Error(),
		"perf-7.map in the target: the perf map: perfdoctor failed on it") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(map[uint32]*perfmap.Map{}, s.compiled); diff != "" || s.mapRoom != 0 {
		t.Errorf("the map is kept, and %d bytes of room:\n%s", s.mapRoom, diff)
	}
}
