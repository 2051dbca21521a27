package jvm

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/jvm/hsperf"
)

// HotSpot describes its own types to debuggers in a table that its library exports
// (src/hotspot/share/runtime/vmStructs.cpp, since JDK 6; async-profiler and jhsdb read it). The table says where the
// counters are. A JVM keeps them in its own memory when it could not make their file:
// PerfMemory::create_memory_region in src/hotspot/os/posix/perfMemory_posix.cpp falls back to that.

const (
	// maxVMStructs bounds the table: JDK 25 has about 2,500 fields.
	maxVMStructs = 20_000
	// vmStructEntry is the least size of an entry: four pointers, a 32-bit number and a 64-bit one (VMStructEntry in
	// vmStructs.hpp).
	vmStructEntry = 48
)

// perfMemory finds the counters in the memory of a JVM. ok is false where it keeps none, as with -XX:-UsePerfData.
func (vm *VM) perfMemory() (memory *door.Memory, at, size int64, ok bool, err error) {
	memory = door.MemoryOf(vm.proc(""))
	if err = vm.check(); err != nil {
		return memory, 0, 0, false, err
	}
	table, err := vm.vmStructs(memory)
	if err != nil {
		return memory, 0, 0, false, err
	}
	fields, err := table.static("PerfMemory", "_start", "_end")
	if err != nil {
		return memory, 0, 0, false, err
	}
	start, end := table.word(fields["_start"]), table.word(fields["_end"])
	switch {
	case table.err != nil:
		return memory, 0, 0, false, table.err
	case start == 0:
		return memory, 0, 0, false, nil
	case start > math.MaxInt64 || end < start || end-start > hsperf.MaxSize:
		return memory, 0, 0, false, fmt.Errorf("its counters are said to be at %#x to %#x", start, end)
	}
	return memory, int64(start), int64(end - start), true, nil
}

// vmStructs is the table in a JVM's memory. It keeps its first error, and every word after that is 0.
type vmStructs struct {
	memory                     io.ReaderAt
	first, stride              uint64
	typeName, fieldName, where uint64 // offsets in an entry
	err                        error
}

func (vm *VM) vmStructs(memory io.ReaderAt) (*vmStructs, error) {
	symbols, err := vm.libjvmSymbols()
	if err != nil {
		return nil, err
	}
	t := &vmStructs{memory: memory}
	for name, to := range map[string]*uint64{
		"gHotSpotVMStructs": &t.first, "gHotSpotVMStructEntryArrayStride": &t.stride,
		"gHotSpotVMStructEntryTypeNameOffset": &t.typeName, "gHotSpotVMStructEntryFieldNameOffset": &t.fieldName,
		"gHotSpotVMStructEntryAddressOffset": &t.where,
	} {
		at, ok := symbols[name]
		if !ok {
			return nil, fmt.Errorf("%s in the target has no symbol %s", vm.Library, name)
		}
		*to = t.word(at)
	}
	if t.err == nil && (t.stride < vmStructEntry || t.stride > 4*vmStructEntry ||
		max(t.typeName, t.fieldName, t.where) > t.stride-8) {
		t.err = fmt.Errorf("an entry of HotSpot's table of types has %d bytes", t.stride)
	}
	return t, t.err
}

// word reads a pointer: HotSpot's 64-bit platforms that perfdoctor runs on are little-endian.
func (t *vmStructs) word(at uint64) uint64 {
	var b [8]byte
	t.read(b[:], at)
	return binary.LittleEndian.Uint64(b[:])
}

func (t *vmStructs) read(b []byte, at uint64) {
	if t.err != nil {
		return
	}
	if at > math.MaxInt64 {
		t.err = fmt.Errorf("HotSpot's table of types has the address %#x", at)
		return
	}
	if _, err := t.memory.ReadAt(b, int64(at)); err != nil {
		clear(b)
		t.err = fmt.Errorf("the JVM's memory at %#x: %w", at, err)
	}
}

// readAhead reads what is there: the mapping may end right after the table. What is not there reads as zeros, which
// end the table.
func (t *vmStructs) readAhead(b []byte, at uint64) {
	t.read(b[:t.stride], at)
	if t.err != nil {
		return
	}
	n, _ := t.memory.ReadAt(b, int64(at))
	clear(b[max(n, 0):])
}

// static returns the addresses of static fields of a type. A missing field is an error.
func (t *vmStructs) static(class string, fields ...string) (map[string]uint64, error) {
	found := map[string]uint64{}
	types := map[uint64]bool{} // by the address of the name, which the entries of a type share
	const batch = 256
	b := make([]byte, batch*t.stride)
	for i := range uint64(maxVMStructs) {
		if i%batch == 0 {
			t.readAhead(b, t.first+i*t.stride)
		}
		entry := b[i%batch*t.stride:]
		typeName := binary.LittleEndian.Uint64(entry[t.typeName:])
		if typeName == 0 || t.err != nil {
			break
		}
		ours, known := types[typeName]
		if !known {
			ours = t.hasText(typeName, class)
			types[typeName] = ours
		}
		if !ours {
			continue
		}
		for _, name := range fields {
			if t.hasText(binary.LittleEndian.Uint64(entry[t.fieldName:]), name) {
				found[name] = binary.LittleEndian.Uint64(entry[t.where:])
			}
		}
	}
	if t.err == nil && len(found) < len(fields) {
		t.err = fmt.Errorf("HotSpot's table of types has not all of %s::%s", class, strings.Join(fields, ", "))
	}
	return found, t.err
}

// hasText compares the string at an address with want. The memory may end after a shorter string.
func (t *vmStructs) hasText(at uint64, want string) bool {
	b := make([]byte, len(want)+1)
	if t.read(b[:1], at); t.err != nil {
		return false
	}
	n, _ := t.memory.ReadAt(b, int64(at))
	return n == len(b) && string(b) == want+"\x00"
}

// libjvmSymbols returns the addresses of the exported data of the JVM's library in the target.
func (vm *VM) libjvmSymbols() (map[string]uint64, error) {
	base, err := vm.libraryBase()
	if err != nil {
		return nil, err
	}
	file, err := vm.openLibrary()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	f, err := door.ELF(file)
	if err != nil {
		return nil, fmt.Errorf("%s in the target: %w", vm.Library, err)
	}
	low := uint64(math.MaxUint64) // the lowest address that the file names: 0 in all known ones
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			low = min(low, p.Vaddr)
		}
	}
	out := map[string]uint64{}
	err = door.EachSymbol(f, elf.SHT_DYNSYM, door.NewTableBudget(), func(s door.Symbol) {
		if name := s.Name(); strings.HasPrefix(name, "gHotSpotVM") {
			out[name] = base + s.Value - low
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s in the target: %w", vm.Library, err)
	}
	return out, nil
}

// libraryBase returns the lowest address at which the library is mapped.
func (vm *VM) libraryBase() (uint64, error) {
	text, _, err := door.Read(vm.proc("maps"), door.MaxMaps)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(strings.TrimSuffix(line, "\n"), " "+vm.Library) {
			from, _, _ := strings.Cut(line, "-")
			return strconv.ParseUint(from, 16, 64)
		}
	}
	return 0, fmt.Errorf("%s is no longer mapped in pid %d", vm.Library, vm.PID)
}

// openLibrary opens the library as the target has it.
func (vm *VM) openLibrary() (*os.File, error) {
	file, info, err := vm.openInTarget(vm.Library, false)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s in the target is not a regular file", vm.Library), file.Close())
	}
	return file, nil
}
