package ebpf

import (
	"errors"
	"os"
	"testing"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestPortSearchOfTheFunction: the port search time from the tracepoints matches the time in the kernel's own function.
// It includes what connect() does until the SYN is on its way.
func TestPortSearchOfTheFunction(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	set, err := (&Loader{}).open(t.Context(), bpf.LoadPortSearch, func(spec *cilium.CollectionSpec, _ *btf.Spec) error {
		return spec.Variables[bpf.PortSearchVarOnlyTgid].Set(uint32(os.Getpid()))
	})
	var why *collect.UnavailableError
	if errors.As(err, &why) && why.Status == recording.StatusDenied {
		t.Skipf("programs may not be attached to functions of this kernel: %v", err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, set.Close()) })
	h := newHost(t)
	check(t, h.Sysctl("net.ipv4.ip_local_port_range", "20000 23999"))
	listen(t, h, "127.0.0.1:7", lab.ServeOptions{HoldOpen: true})
	o := openNamed(t, connectionsName, inHost(t, h))
	compare := func(n int) (traced, function float64) {
		before, begun := searchTime(o), functionTime(t, set)
		for range n {
			dialOnce(t, h, 7, 0)
		}
		after, ended := searchTime(o), functionTime(t, set)
		if searches := after.searches - before.searches; searches != float64(n) || ended.Count-begun.Count != uint64(
			n) {
			t.Errorf("%v searches by tracepoints, %d of the function, want %d", searches, ended.Count-begun.Count, n)
		}
		return (after.seconds - before.seconds) / float64(n) * 1e6, float64(ended.Ns-begun.Ns) / float64(n) / 1e3
	}
	quick, quickFunction := compare(1009)
	compare(1103) // past the half of the range
	slow, slowFunction := compare(307)
	t.Logf("measured: tracepoints %.1f µs a search, fentry %.1f µs; past half of the range %.0f µs and %.0f µs", quick,
		quickFunction, slow,
		slowFunction)
	if slow < slowFunction || slow-slowFunction > quick+0.1*slow {
		t.Errorf("%.1f µs by tracepoints, of which the function takes %.1f µs: what else is in it took %.1f µs at "+
			"most before", slow,
			slowFunction, quick)
	}
}

func functionTime(t *testing.T, s *set) (sum bpf.PortSearchSearch) {
	t.Helper()
	check(t, s.collection.Maps[bpf.PortSearchMapSearches].Lookup(uint32(0), &sum))
	return sum
}
