package ebpf

import (
	"testing"

	cilium "github.com/cilium/ebpf"

	"github.com/perfdoctor/perfdoctor/bpf"
)

// TestProgramNames: what programs cost is told apart by their names alone, so that no two of all sets may have the
// same.
func TestProgramNames(t *testing.T) {
	of := map[string]string{}
	for set, load := range map[string]func() (*cilium.CollectionSpec, error){
		"bandwidth": bpf.LoadBandwidth, "binds": bpf.LoadBinds, "connections": bpf.LoadConnections,
		"cpuprofile": bpf.LoadCPUProfile,
		"runqueue":   bpf.LoadRunQueue, "scheduler": bpf.LoadScheduler, "sockets": bpf.LoadSockets,
		"softirq":  bpf.LoadSoftirq,
		"syscalls": bpf.LoadSyscalls,
	} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for name := range spec.Programs {
			if other, taken := of[name]; taken {
				t.Errorf("%s and %s both have a program %s", set, other, name)
			}
			of[name] = set
		}
	}
}
