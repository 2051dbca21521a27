package hsperf

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/want.txt")

// recorded returns the files of JDK 11, 17, 21 and 25 with each of HotSpot's collectors, all of the same program.
func recorded(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/*.gz")
	if err != nil || len(files) != 4*5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	out := map[string][]byte{}
	for _, f := range files {
		packed, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if out[strings.TrimSuffix(filepath.Base(f), ".gz")], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

var shown = regexp.MustCompile(
	`^sun\.gc\.(collector\.\d\.(name|time|invocations)|policy\.name|lastCause|generation\.\d\.space\.\d\.(name|used))$|` +
		`^sun\.rt\.(safepoints|safepointTime|safepointSyncTime|applicationTime)$|^java\.(ci\.totalTime|threads\.\w+)$|^sun\.os\.hrt\.frequency$|` +
		`^java\.property\.java\.vm\.version$|^sun\.threads\.total_gc_cpu_time$|^sun\.cls\.secondarySuperHashTime$`)

func TestRecorded(t *testing.T) {
	var got strings.Builder
	files := recorded(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s, err := Parse(files[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		fmt.Fprintf(&got, "%s: %d numbers, %d texts\n", name, len(s.Longs), len(s.Texts))
		for _, c := range slices.Sorted(maps.Keys(s.Longs)) {
			if shown.MatchString(c) {
				fmt.Fprintf(&got, "  %s=%d\n", c, s.Longs[c])
			}
		}
		for _, c := range slices.Sorted(maps.Keys(s.Texts)) {
			if shown.MatchString(c) {
				fmt.Fprintf(&got, "  %s=%q\n", c, s.Texts[c])
			}
		}
	}
	const file = "testdata/want.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestSeconds(t *testing.T) {
	s := Snapshot{Longs: map[string]int64{"a": 250, "negative": -1, "sun.os.hrt.frequency": 1000}}
	if v, ok := s.Seconds("a"); v != 0.25 || !ok {
		t.Errorf("got %v, %v", v, ok)
	}
	for _, name := range []string{"negative", "absent"} {
		if v, ok := s.Seconds(name); ok {
			t.Errorf("%s: %v seconds", name, v)
		}
	}
	delete(s.Longs, "sun.os.hrt.frequency")
	if v, ok := s.Seconds("a"); ok {
		t.Errorf("without a frequency: %v seconds", v)
	}
}

// damaged makes a small file of one counter and damages it.
func damaged(change func(b []byte)) []byte {
	b := make([]byte, prologueSize+40)
	binary.BigEndian.PutUint32(b, magic)
	b[offByteOrder], b[offMajor], b[offAccessible] = 1, 2, 1
	binary.LittleEndian.PutUint32(b[offEntryOffset:], prologueSize)
	binary.LittleEndian.PutUint32(b[offNumEntries:], 1)
	e := b[prologueSize:]
	binary.LittleEndian.PutUint32(e, 40)
	binary.LittleEndian.PutUint32(e[entName:], entryHead)
	e[entType] = 'J'
	binary.LittleEndian.PutUint32(e[entDataOffset:], 32)
	copy(e[entryHead:], "n\x00")
	binary.LittleEndian.PutUint64(e[32:], 7)
	change(b)
	return b
}

func TestDamaged(t *testing.T) {
	if s, err := Parse(damaged(func([]byte) {})); err != nil || s.Longs["n"] != 7 {
		t.Fatalf("undamaged: %v, %v", s, err)
	}
	entry := func(off int, v uint32) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[prologueSize+off:], v) }
	}
	for name, change := range map[string]func([]byte){
		"magic":                func(b []byte) { b[0] = 0 },
		"version":              func(b []byte) { b[offMajor] = 3 },
		"byte order":           func(b []byte) { b[offByteOrder] = 2 },
		"entries elsewhere":    func(b []byte) { b[offEntryOffset+3] = 0xff },
		"entries in the head":  func(b []byte) { b[offEntryOffset] = 4 },
		"too many entries":     func(b []byte) { b[offNumEntries] = 5 },
		"entry of no size":     entry(0, 0),
		"entry past the end":   entry(0, 41),
		"name past the end":    entry(entName, 40),
		"name before it":       entry(entName, 0xffffffff),
		"no name":              func(b []byte) { b[prologueSize+entryHead] = 0 },
		"value past the end":   entry(entDataOffset, 33),
		"vector of numbers":    entry(entVector, 2),
		"vector past the end":  func(b []byte) { b[prologueSize+entType] = 'B'; b[prologueSize+entVector] = 9 },
		"unknown type":         func(b []byte) { b[prologueSize+entType] = 'D' },
		"value before it":      entry(entDataOffset, 0x80000000),
		"vector below nothing": entry(entVector, 0x80000000),
	} {
		if s, err := Parse(damaged(change)); err == nil {
			t.Errorf("%s: no error but %v", name, s)
		}
	}
	if _, err := Parse(damaged(func(b []byte) { b[offAccessible] = 0 })); !errors.Is(err, ErrStarting) {
		t.Errorf("not yet accessible: %v", err)
	}
}

// FuzzParse: a hostile target may write anything into its file.
func FuzzParse(f *testing.F) {
	for _, b := range recorded(f) {
		f.Add(b[:8192])
	}
	f.Add(damaged(func([]byte) {}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err == nil && 20*(len(s.Longs)+len(s.Texts)) > len(b) {
			t.Errorf("%d counters out of %d bytes", len(s.Longs)+len(s.Texts), len(b))
		}
	})
}

// TestLocate: the part has what the whole has.
func TestLocate(t *testing.T) {
	names := map[string]bool{"sun.gc.lastCause": true, "sun.os.hrt.frequency": true, "no.such": true}
	for file, b := range recorded(t) {
		all, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		part, err := Locate(b, names)
		if err != nil || !part.Has("sun.gc.lastCause") || part.Has("no.such") || part.Size >= len(b)/2 {
			t.Fatalf("%s: %+v, %v", file, part, err)
		}
		got, err := part.Parse(b[part.At:][:part.Size])
		if err != nil || len(got.Longs) != 1 || len(got.Texts) != 1 ||
			got.Texts["sun.gc.lastCause"] != all.Texts["sun.gc.lastCause"] ||
			got.Longs["sun.os.hrt.frequency"] != all.Longs["sun.os.hrt.frequency"] {
			t.Errorf("%s: %+v, %v", file, got, err)
		}
		if _, err := part.Parse(b[part.At:][:part.Size-1]); err == nil {
			t.Errorf("%s: a part that is cut is read", file)
		}
		clear(b[part.At:][:part.Size])
		if _, err := part.Parse(b[part.At:][:part.Size]); err == nil {
			t.Errorf("%s: zeros are read", file)
		}
	}
}

// BenchmarkParse gives the overhead that the collector declares.
func BenchmarkParse(b *testing.B) {
	data := recorded(b)["jdk17-g1"]
	for b.Loop() {
		if _, err := Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}
