package ebpf

import (
	"testing"

	cilium "github.com/cilium/ebpf"

	"github.com/perfdoctor/perfdoctor/bpf"
)

// TestProgramNames: the cost of programs is told apart only by their names. So no two programs of all sets may have the
// same name.
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
