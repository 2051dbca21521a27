package ebpf

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collectors/symbols"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// TestParseKernelNames reads lines of Linux 6.18.
func TestParseKernelNames(t *testing.T) {
	const text = `ffffffff81000048 __startup_64+0x8/0x310
ffffffffc0a01fff nf_conntrack_in+0xfff/0x1200 [nf_conntrack]
ffffffff80ffffff 0xffffffff80ffffff
`
	got, err := parseKernelNames(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]symbols.KernelFunction{
		0xffffffff81000047: {Begin: 0xffffffff81000040, End: 0xffffffff81000350, Name: "__startup_64"},
		0xffffffffc0a01ffe: {
			Begin: 0xffffffffc0a01000, End: 0xffffffffc0a02200, Name: "nf_conntrack_in",
			Module: "nf_conntrack",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, bad := range []string{"zz _text+0x1/0x2\n", "ffffffff81000000\n", "ffffffff81000000 _text+0xzz/0x2\n"} {
		if _, err := parseKernelNames(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestKernelSymbols asks the kernel for the first and the last byte of a prime number of functions. The kernel's own
// list is the reference.
func TestKernelSymbols(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	const functions = 997
	first, last := kallsyms(t, functions)
	s, err := (&Loader{}).open(t.Context(), bpf.LoadCPUProfile, func(*cilium.CollectionSpec, *btf.Spec) error {
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, s.Close()) })
	for range 2 { // nothing is left of the first time
		got, err := s.kernelSymbols(bpf.CPUProfileProgProfileNames, append(slices.Collect(maps.Keys(first)),
			slices.Collect(maps.Keys(last))...))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []map[uint64][]string{first, last} {
			for at, names := range want {
				if !slices.Contains(names, got[at].Name) {
					t.Errorf("%#x is in %v, got %+v", at, names, got[at])
				}
			}
		}
	}
}

// kallsyms returns the names of functions of the kernel by their first address and by their last, spread over the list.
func kallsyms(t *testing.T, functions int) (first, last map[uint64][]string) {
	t.Helper()
	text, err := os.ReadFile("/proc/kallsyms")
	check(t, err)
	names := map[uint64][]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		at, err := strconv.ParseUint(f[0], 16, 64)
		check(t, err)
		if strings.Contains("tTwW", f[1]) && at != 0 && len(f) == 3 {
			names[at] = append(names[at], f[2])
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	if len(sorted) < 2*functions {
		t.Skipf("the kernel shows %d addresses of functions", len(sorted))
	}
	first, last = map[uint64][]string{}, map[uint64][]string{}
	for i := range functions {
		k := i * (len(sorted) - 1) / functions
		first[sorted[k]] = names[sorted[k]]
		last[sorted[k+1]-1] = names[sorted[k]]
	}
	return first, last
}

func FuzzParseKernelNames(f *testing.F) {
	f.Add([]byte("ffffffff81000048 __startup_64+0x8/0x310\nffffffffc0a01fff nf_conntrack_in+0xfff/0x1200 " +
		"[nf_conntrack]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parseKernelNames(bytes.NewReader(data))
		for at, s := range got {
			if err == nil && s.Begin > at {
				t.Fatalf("%#x is in %+v", at, s)
			}
		}
	})
}
