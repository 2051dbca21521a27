package door_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// mappings are lines of Linux 6.18 and 5.10, and what prctl(2) with PR_SET_VMA_ANON_NAME can make of a name.
const mappings = `00400000-0041f000 r--p 00000000 fe:00 247702                             /usr/bin/my program
0041f000-006d2000 r-xp 0001f000 fe:00 247702                             /usr/bin/my program
7f4575000000-7f4575270000 rwxp 00000000 00:00 0 
7f457cac7000-7f457cd37000 rwxp 00000000 00:00 0                          [anon:/lib/libjvm.so]
7f4600000000-7f4600001000 rw-s 00000000 00:01 1030                       /memfd:code (deleted)
7ffd1a000000-7ffd1a021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`

func TestParseMaps(t *testing.T) {
	var got []door.Mapping
	for m, err := range door.ParseMaps(strings.NewReader(mappings)) {
		check(t, err)
		got = append(got, m)
	}
	want := []door.Mapping{
		{From: 0x400000, To: 0x41f000, Path: "/usr/bin/my program"},
		{From: 0x41f000, To: 0x6d2000, Offset: 0x1f000, Executable: true, Path: "/usr/bin/my program"},
		{From: 0x7f4575000000, To: 0x7f4575270000, Executable: true},
		{From: 0x7f457cac7000, To: 0x7f457cd37000, Executable: true, Path: "[anon:/lib/libjvm.so]"},
		{From: 0x7f4600000000, To: 0x7f4600001000, Path: "/memfd:code", Deleted: true},
		{From: 0x7ffd1a000000, To: 0x7ffd1a021000, Path: "[stack]"},
		{From: 0xffffffffff600000, To: 0xffffffffff601000, Executable: true, Path: "[vsyscall]"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for text, want := range map[string]string{
		"7f45-7f46 rwxp\n":                                             "line 1: not a mapping",
		"7f46-7f45 rwxp 0 00:00 0\n":                                   "line 1: bad addresses",
		"7f45 rwxp 0 00:00 0\n":                                        "line 1: bad addresses",
		"7f45-7f4g rwxp 0 00:00 0\n":                                   "line 1: bad addresses",
		"7f45-7f46 rwxp z 00:00 0\n":                                   "line 1: bad addresses",
		"10000000000000000-2 rwxp 0 00:00 0\n":                         "line 1: bad addresses",
		strings.Repeat("1-2 ---p 0 00:00 0\n", 3) + "1-2 rwx 0 00:0 0": "line 4: not a mapping",
		"1-2 ---p 0 00:00 0 /" + strings.Repeat("x", 32<<10):           "token too long",
	} {
		var last error
		for _, err := range door.ParseMaps(strings.NewReader(text)) {
			last = err
		}
		if last == nil || !strings.Contains(last.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, last, want)
		}
	}
}

// FuzzParseMaps: without an error the addresses are in order, and the name has no spaces before it.
func FuzzParseMaps(f *testing.F) {
	f.Add(mappings)
	f.Add("7f01-7f02 r-xp 0 08:01 1 /opt/j dk/libjvm.so (deleted)\n7f03-7f04 rw-p 00000000 00:00 0 [heap]\n")
	f.Fuzz(func(t *testing.T, text string) {
		for m, err := range door.ParseMaps(strings.NewReader(text)) {
			if err == nil && (m.From >= m.To || strings.HasPrefix(m.Path, " ")) {
				t.Errorf("%+v", m)
			}
		}
	})
}
