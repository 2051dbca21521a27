package evidence

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// An Operation is what a JVM stops all its threads for.
type Operation struct {
	Name string   // HotSpot's, VM_ThreadDump
	By   *Culprit // the code that asks for most of them, or nil
}

// Does says what it is for, in words.
func (o Operation) Does() string {
	return cmp.Or(operationNames[o.Name], "the JVM's operation "+o.Name)
}

// operationNames has HotSpot's operations that programs, tools and agents ask for
// (src/hotspot/share/runtime/vmOperation.hpp, prims/jvmtiEnvBase.hpp).
var operationNames = map[string]string{
	"VM_ThreadDump":               "thread dumps",
	"VM_PrintThreads":             "thread dumps",
	"VM_FindDeadlocks":            "searches for deadlocks",
	"VM_HeapDumper":               "heap dumps",
	"VM_GC_HeapInspection":        "class histograms",
	"VM_RedefineClasses":          "new versions of classes, for an agent",
	"VM_GetStackTrace":            "stacks of threads, for an agent",
	"VM_GetAllStackTraces":        "stacks of all threads, for an agent",
	"VM_GetThreadListStackTraces": "stacks of threads, for an agent",
	"VM_ChangeBreakpoints":        "breakpoints of a debugger",
	"VM_RevokeBias":               "revoking biased locks",
	"VM_BulkRevokeBias":           "revoking biased locks",
	"VM_Deoptimize":               "dropping compiled code",
	"VM_DeoptimizeFrame":          "dropping compiled code",
	"VM_HandshakeAllThreads":      "the JVM's own housekeeping (handshakes with all threads)",
}

// The thread that stops all others runs an operation inside VM_Operation::evaluate; whoever asks for it waits in
// VMThread::execute (src/hotspot/share/runtime/vmThread.cpp). Collections have checks of their own.
var (
	operationFrames   = hotcode.ParsePatterns("VM_Operation::evaluate")
	askFrames         = hotcode.ParsePatterns("VMThread::execute")
	collectionFrames  = hotcode.ParsePatterns("*Heap::*", "MemAllocator::*", "Metaspace*::*")
	collectOperations = []string{"VM_G1", "VM_Parallel", "VM_Gen", "VM_Collect", "VM_Z", "VM_X", "VM_Shenandoah"}
)

// OperationOf returns the operation that takes the most time in the profiles of the JVM's threads, collections aside.
// ok is false if they show none: a wall-clock profile of many threads seldom sees one of them.
func OperationOf(p *check.Pass) (o Operation, ok bool) {
	for _, e := range []stacks.Event{stacks.CPU, stacks.Wall} {
		if prof, ok := p.Ranked(e); ok && o.Name == "" {
			o.Name = operationIn(prof)
		}
	}
	if prof, ok := p.Ranked(stacks.Wall); ok {
		o.askedBy(prof, hotcode.OwnersOf(p.Recording))
	}
	return o, o.Name != ""
}

func operationIn(prof *stacks.Profile) (name string) {
	evaluate, _ := hotcode.Frames(prof, operationFrames)
	byName := map[string]int64{}
	for _, s := range prof.Samples {
		at := s.Innermost(evaluate)
		if at < 1 {
			continue
		}
		its, _, _ := strings.Cut(prof.Frames[s.Stack[at-1]].Name, "::")
		if isCollection(its) {
			continue
		}
		byName[its] += s.Value
		if n := byName[its]; n > byName[name] || n == byName[name] && its < name {
			name = its
		}
	}
	return name
}

func isCollection(operation string) bool {
	return slices.ContainsFunc(collectOperations, func(prefix string) bool {
		return strings.HasPrefix(operation, prefix)
	})
}

// askedBy finds who asks for operations.
func (o *Operation) askedBy(prof *stacks.Profile, owners hotcode.Owners) {
	ask, _ := hotcode.Frames(prof, askFrames)
	collect, _ := hotcode.Frames(prof, collectionFrames)
	var hits []Hit
	for _, s := range prof.Samples {
		if at := s.Innermost(ask); at >= 0 && s.Innermost(collect) < 0 {
			hits = append(hits, Hit{Sample: s, At: at})
		}
	}
	for _, c := range Culprits(prof, owners, hits, nil) {
		if c.Owner == hotcode.Application || c.Owner == hotcode.Library { // and not a thread of the JVM
			o.By = c
			return
		}
	}
}
