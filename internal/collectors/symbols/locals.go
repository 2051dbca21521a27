package symbols

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
)

// A stripped C library has no symbols for its static functions. Two kinds of them are in every profile: the variants
// of memcpy, strlen and the like, from which a resolver chooses one for the CPU when the library is loaded
// (STT_GNU_IFUNC, gABI of GNU), and the functions in which threads begin. What stripping leaves is enough to name
// them without a guess: the slots of the process's linkage tables hold the address of the chosen variant,
// .eh_frame_hdr has the bounds of every function, and the calls in glibc's functions where a thread begins are unique
// to them.

// nameLocals adds the functions of a file that have no symbol. It reads some of the process's memory, if the kernel
// allows it (PTRACE_MODE_ATTACH); otherwise the frames stay without a name. It looks at a file in one process only:
// the choice depends on the CPU.
func (s *Symbolizer) nameLocals(pid uint32, m door.Mapping, b *objectFile) {
	b.asked = true
	f, err := s.openMapped(pid, m)
	if err != nil {
		return
	}
	defer f.Close()
	library, err := readLibrary(f)
	if err != nil {
		return
	}
	memory := door.MemoryOf(s.pidPath(pid, ""))
	found := append(library.starts(), library.chosen(s.slotsOf(pid, m, library), memory, base(m, b.loads))...)
	b.addFound(found)
}

// base returns what must be added to an address in a file to get the address in the process.
func base(m door.Mapping, loads []elf.ProgHeader) uint64 {
	for _, p := range loads {
		if m.Offset+maxPage > p.Off && m.Offset < p.Off+p.Filesz {
			return m.From - (m.Offset - p.Off + p.Vaddr)
		}
	}
	return m.From - m.Offset
}

// maxPage is the largest page size, on arm64: a mapping begins with the page in which its segment begins.
const maxPage = 64 << 10

// A library is a file with functions that have no symbol.
type library struct {
	file      *elf.File
	names     map[string]uint64   // of functions with a symbol
	resolvers map[uint64][]string // the names that the resolver at an address chooses for
	bounds    []span              // of all functions
}

var errOtherELF = errors.New("not a 64-bit little-endian ELF file")

func readLibrary(r io.ReaderAt) (*library, error) {
	f, err := door.ELF(r)
	if err != nil {
		return nil, err
	}
	if f.Class != elf.ELFCLASS64 || f.ByteOrder != binary.LittleEndian {
		return nil, errOtherELF
	}
	l := &library{file: f, names: map[string]uint64{}, resolvers: map[uint64][]string{}}
	err = door.EachSymbol(f, elf.SHT_DYNSYM, door.NewTableBudget(), func(s door.Symbol) {
		switch {
		case s.Index == elf.SHN_UNDEF:
		case s.Kind == elf.STT_FUNC:
			l.names[s.Name()] = s.Value
		case s.Kind == elf.STT_GNU_IFUNC:
			l.resolvers[s.Value] = append(l.resolvers[s.Value], s.Name())
		}
	})
	if err != nil {
		return nil, err
	}
	l.bounds, err = functionBounds(f)
	return l, err
}

// maxTableBytes bounds a section that is read: the bounds of libc.so.6 take 30 KB, the relocations of libjvm.so 1 MB.
const maxTableBytes = 8 << 20

func sectionData(s *elf.Section) ([]byte, error) {
	if s == nil || s.Size > maxTableBytes {
		return nil, nil
	}
	return s.Data()
}

// functionBounds reads the sorted table of .eh_frame_hdr (Linux Standard Base, 10.6.2) and the lengths in .eh_frame.
// It returns nothing for a table in an encoding that linkers do not write, or for a file that lacks one of the two.
func functionBounds(f *elf.File) ([]span, error) {
	header, frames := f.Section(".eh_frame_hdr"), f.Section(".eh_frame")
	table, err := sectionData(header)
	if err != nil {
		return nil, err
	}
	entries, err := sectionData(frames)
	// Version 1; relative to itself, a plain number, relative to the header: each of 4 bytes.
	if err != nil || frames == nil || len(table) < 12 || string(table[:4]) != "\x01\x1b\x03\x3b" {
		return nil, err
	}
	var out []span
	for rest := table[12:]; len(rest) >= 8; rest = rest[8:] {
		at, entry := header.Addr+signed(rest), header.Addr+signed(rest[4:])
		i := entry - frames.Addr
		if i > uint64(len(entries)) || uint64(len(entries))-i < 16 {
			continue
		}
		// An entry has its length, a reference to its common part, where the function begins, relative to this field,
		// and the length of the function.
		if e := entries[i:]; entry+8+signed(e[8:]) == at {
			out = append(out, span{at: at, size: binary.LittleEndian.Uint32(e[12:])})
		}
	}
	sortSpans(out)
	return out, nil
}

// signed reads a signed number of 4 bytes, to be added to an address.
func signed(b []byte) uint64 { return uint64(int64(int32(binary.LittleEndian.Uint32(b)))) }

// A slot holds the address of what a resolver chose for a name.
type slot struct {
	at   uint64 // in the process
	name string
}

// maxSlotFiles bounds the files of a process whose slots are looked at: a JVM has 15.
const maxSlotFiles = 32

// slotsOf returns the slots for the names of a library, in the library itself and in the other files of the process:
// glibc for arm64 keeps few for itself.
func (s *Symbolizer) slotsOf(pid uint32, own door.Mapping, l *library) []slot {
	wanted := map[string]string{}
	for _, names := range l.resolvers {
		for _, n := range names {
			wanted[n] = usualName(names)
		}
	}
	out := l.ownSlots(base(own, loadsOf(l.file)))
	seen := map[string]bool{}
	for _, m := range s.mapsOf(pid) {
		if seen[m.Path] || len(seen) == maxSlotFiles || !strings.HasPrefix(m.Path, "/") || time.Now().After(s.until) {
			continue
		}
		seen[m.Path] = true
		if f, err := s.openMapped(pid, m); err == nil {
			slots, err := firewall.Parse(elfOf(pid), func() ([]slot, error) { return importSlots(f, m, wanted), nil })
			s.note(m, err)
			out = append(out, slots...)
			_ = f.Close() // nothing was written
		}
	}
	return out
}

// usualName returns the best known of the names for one resolver: memcmp rather than bcmp or __memcmpeq.
func usualName(names []string) string {
	return slices.MinFunc(names, func(a, b string) int {
		hidden := func(n string) int { return len(n) - len(strings.TrimPrefix(n, "_")) } // 1 or 0
		return cmp.Or(cmp.Compare(hidden(a), hidden(b)), cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
}

// slotKinds returns the relocations that end in a slot: elf.h, R_X86_64_* and R_AARCH64_*.
func slotKinds(m elf.Machine) (chosen, named []uint32) {
	switch m {
	case elf.EM_X86_64:
		return []uint32{uint32(elf.R_X86_64_IRELATIVE)}, []uint32{
			uint32(elf.R_X86_64_JMP_SLOT),
			uint32(elf.R_X86_64_GLOB_DAT),
		}
	case elf.EM_AARCH64:
		return []uint32{uint32(elf.R_AARCH64_IRELATIVE)}, []uint32{
			uint32(elf.R_AARCH64_JUMP_SLOT),
			uint32(elf.R_AARCH64_GLOB_DAT),
		}
	}
	return nil, nil
}

// ownSlots returns the slots that a library keeps for its own calls: their relocations have the resolver's address.
func (l *library) ownSlots(base uint64) (out []slot) {
	chosen, _ := slotKinds(l.file.Machine)
	eachRelocation(l.file, func(at uint64, kind, _ uint32, addend uint64) {
		if names := l.resolvers[addend]; len(names) > 0 && slices.Contains(chosen, kind) {
			out = append(out, slot{base + at, usualName(names)})
		}
	})
	return out
}

// importSlots returns the slots of a file that calls functions with these names.
func importSlots(r io.ReaderAt, m door.Mapping, wanted map[string]string) (out []slot) {
	f, err := door.ELF(r)
	if err != nil || f.Class != elf.ELFCLASS64 || f.ByteOrder != binary.LittleEndian {
		return nil
	}
	var names []string
	err = door.EachSymbol(f, elf.SHT_DYNSYM, door.NewTableBudget(),
		func(s door.Symbol) { names = append(names, s.Name()) })
	if err != nil {
		return nil
	}
	at := base(m, loadsOf(f))
	_, named := slotKinds(f.Machine)
	eachRelocation(f, func(offset uint64, kind, symbol uint32, _ uint64) {
		if int64(symbol) >= int64(len(names)) || !slices.Contains(named, kind) {
			return
		}
		if name := wanted[names[symbol]]; name != "" {
			out = append(out, slot{at + offset, name})
		}
	})
	return out
}

func eachRelocation(f *elf.File, do func(at uint64, kind, symbol uint32, addend uint64)) {
	const size = 24 // of a relocation with an addend: where, symbol and kind, addend
	left := uint64(maxTableBytes)
	for _, s := range f.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 || s.Size > left { //nolint:misspell // the name in the standard
			continue
		}
		left -= s.Size
		data, err := s.Data()
		if err != nil {
			continue
		}
		for ; len(data) >= size; data = data[size:] {
			info := binary.LittleEndian.Uint64(data[8:])
			do(binary.LittleEndian.Uint64(data), uint32(info), uint32(info>>32), binary.LittleEndian.Uint64(data[16:]))
		}
	}
}

func loadsOf(f *elf.File) (out []elf.ProgHeader) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			out = append(out, p.ProgHeader)
		}
	}
	return out
}

// maxSlots bounds the reads of a process's memory, 8 bytes and 1 µs each.
const maxSlots = 4096

// chosen returns the functions of the library that slots point to. It drops a slot that does not point to the
// beginning of a function: one that is not bound yet points elsewhere. A function that two names share, as memcpy and
// memmove do on x86, gets both.
func (l *library) chosen(slots []slot, memory io.ReaderAt, base uint64) (out []symbol) {
	names := map[uint64][]string{}
	for _, s := range slots[:min(len(slots), maxSlots)] {
		var word [8]byte
		if _, err := memory.ReadAt(word[:], int64(s.at)); err != nil {
			continue
		}
		at := binary.LittleEndian.Uint64(word[:]) - base
		if !slices.Contains(names[at], s.name) {
			names[at] = append(names[at], s.name)
		}
	}
	for at, list := range names {
		if b, ok := find(l.bounds, at); ok && b.at == at {
			slices.Sort(list)
			out = append(out, symbol{at: at, end: b.end(), name: strings.Join(list, " or ")})
		}
	}
	return out
}

// starts returns the functions of glibc since 2.34 in which threads begin, by what they call: start_thread
// (nptl/pthread_create.c) is the only one that initializes the thread's character tables and destroys its variables;
// __libc_start_call_main (sysdeps/nptl/libc_start_call_main.h) is the only one that __libc_start_main calls and that
// calls exit.
func (l *library) starts() (out []symbol) {
	all := l.calls()
	made := map[call]bool{} // from the beginning of the function
	for _, c := range all {
		if in, ok := find(l.bounds, c.from); ok {
			made[call{in.at, c.to}] = true
		}
	}
	does := func(f span, callees ...string) bool {
		return !slices.ContainsFunc(callees, func(name string) bool { return !made[call{f.at, l.names[name]}] })
	}
	main := l.names["__libc_start_main"]
	for _, f := range l.bounds {
		switch {
		case does(f, "__ctype_init", "_setjmp", "__call_tls_dtors"):
			out = append(out, symbol{at: f.at, end: f.end(), name: "start_thread"})
		case made[call{main, f.at}] && does(f, "_setjmp", "exit"):
			out = append(out, symbol{at: f.at, end: f.end(), name: "__libc_start_call_main"})
		}
	}
	return out
}

// A call is an instruction that calls a function of the same file.
type call struct{ from, to uint64 }

// maxCode bounds the code that is searched for calls: libc.so.6 has 1.4 MB.
const maxCode = 4 << 20

// calls returns the calls of functions that matter to starts. On x86 instructions begin anywhere, so some bytes look
// like a call and are none: the chance that such bytes name a function's first byte is one in four thousand million.
func (l *library) calls() (out []call) {
	wanted := map[uint64]bool{}
	for _, name := range []string{"__ctype_init", "_setjmp", "__call_tls_dtors", "exit"} {
		if at, ok := l.names[name]; ok {
			wanted[at] = true
		}
	}
	main, _ := find(l.bounds, l.names["__libc_start_main"])
	if len(wanted) < 4 {
		return nil // not glibc
	}
	l.eachCall(func(c call) {
		if wanted[c.to] || c.from >= main.at && c.from < main.end() {
			out = append(out, c)
		}
	})
	return out
}

func (l *library) eachCall(do func(call)) {
	left := uint64(maxCode)
	for _, p := range l.file.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 || p.Filesz > left {
			continue
		}
		left -= p.Filesz
		code := make([]byte, p.Filesz)
		if _, err := p.ReadAt(code, 0); err != nil {
			continue
		}
		switch l.file.Machine {
		case elf.EM_X86_64:
			callsOfX86(code, p.Vaddr, do)
		case elf.EM_AARCH64:
			callsOfARM(code, p.Vaddr, do)
		}
	}
}

// callsOfX86: E8 and the distance from the next instruction (Intel SDM, volume 2, CALL).
func callsOfX86(code []byte, at uint64, do func(call)) {
	for i := 0; i+5 <= len(code); i++ {
		if code[i] == 0xe8 {
			from := at + uint64(i)
			do(call{from, from + 5 + signed(code[i+1:])})
		}
	}
}

// callsOfARM: 100101 and the distance from this instruction in words of 4 bytes (Arm ARM, C6.2, BL).
func callsOfARM(code []byte, at uint64, do func(call)) {
	for i := 0; i+4 <= len(code); i += 4 {
		if word := binary.LittleEndian.Uint32(code[i:]); word>>26 == 0x25 {
			from := at + uint64(i)
			do(call{from, from + uint64(int64(int32(word<<6)>>4))})
		}
	}
}
