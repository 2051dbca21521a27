package ebpf

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/link"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collectors/symbols"
)

// maxNamed bounds the addresses that are named: more than tables of stacks hold.
const maxNamed = 1 << 16

// symbolizer returns one for addresses of the kernel as they stand in stacks, and for any addresses of processes.
// iterator names the former.
func (s *set) symbolizer(iterator, proc string, kernel []uint64) (*symbols.Symbolizer, error) {
	wanted := make([]uint64, 0, 2*len(kernel))
	for _, ip := range kernel {
		// a call has its return address here, which may be the first of the next function
		wanted = append(wanted, ip, ip-1)
	}
	functions, err := s.kernelSymbols(iterator, wanted)
	if err != nil {
		return nil, fmt.Errorf("name the kernel's functions: %w", err)
	}
	return symbols.New(proc, functions), nil
}

// kernelSymbols names the functions that addresses of the kernel are in, with the file's iterator of bpf/names.h. That
// costs 1 µs for each address, where the kernel's whole list costs 40 ms.
func (s *set) kernelSymbols(iterator string, addresses []uint64) (map[uint64]symbols.KernelFunction, error) {
	out := map[uint64]symbols.KernelFunction{}
	if len(addresses) == 0 {
		return out, nil
	}
	keys := make([]uint64, 0, len(addresses))
	for _, at := range addresses {
		keys = append(keys, at+1) // what %pB names is the instruction before
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	keys = keys[:min(len(keys), maxNamed)]
	l, err := link.AttachIter(link.IterOptions{Program: s.collection.Programs[iterator]})
	if err != nil {
		return nil, fmt.Errorf("attach iterator %s: %w", iterator, err)
	}
	defer l.Close()
	for some := range slices.Chunk(keys, len(bpf.CPUProfileNaming{}.At)) {
		if err := s.nameSome(l, some, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// nameSome names as many addresses as one run does.
func (s *set) nameSome(l *link.Iter, keys []uint64, out map[uint64]symbols.KernelFunction) error {
	var naming bpf.CPUProfileNaming
	copy(naming.At[:], keys)
	m := s.collection.Maps[bpf.CPUProfileMapAddresses] // it has the same name in every file
	if err := m.Put(uint32(0), naming); err != nil {
		return fmt.Errorf("hand the kernel addresses to name: %w", err)
	}
	r, err := l.Open()
	if err != nil {
		return fmt.Errorf("run the iterator that names addresses: %w", err)
	}
	defer r.Close()
	names, err := parseKernelNames(r)
	maps.Copy(out, names)
	return err
}

// parseKernelNames reads what the iterator writes, in the format of lib/vsprintf.c and kernel/kallsyms.c
// (__sprint_symbol): the address, the name with offset and size, and the module in brackets. An address that is in no
// function is written twice, and has no symbol here.
func parseKernelNames(r io.Reader) (map[uint64]symbols.KernelFunction, error) {
	out := map[uint64]symbols.KernelFunction{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		address, text, ok := bytes.Cut(sc.Bytes(), []byte{' '})
		at, err := parseHex(address)
		if !ok || err != nil {
			return nil, fmt.Errorf("names of kernel functions: bad line %.80q", sc.Bytes())
		}
		where, module, _ := strings.Cut(string(text), " ")
		name, extent, ok := strings.Cut(where, "+0x")
		if !ok {
			continue
		}
		offset, size, _ := strings.Cut(extent, "/0x")
		into, err1 := strconv.ParseUint(offset, 16, 64)
		length, err2 := strconv.ParseUint(size, 16, 64)
		if err1 != nil || err2 != nil || into == 0 || into > at {
			return nil, fmt.Errorf("names of kernel functions: bad line %.80q", sc.Bytes())
		}
		begin := at - into
		out[at-1] = symbols.KernelFunction{
			Begin: begin, End: begin + length, Name: name, Module: strings.Trim(module, "[]"),
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("names of kernel functions: %w", err)
	}
	return out, nil
}

// parseHex is strconv.ParseUint without a string.
func parseHex(b []byte) (n uint64, err error) {
	if len(b) == 0 || len(b) > 16 {
		return 0, errors.New("no address")
	}
	for _, c := range b {
		var digit byte
		switch {
		case c >= '0' && c <= '9':
			digit = c - '0'
		case c >= 'a' && c <= 'f':
			digit = c - 'a' + 10
		default:
			return 0, errors.New("no hexadecimal digit")
		}
		n = n<<4 | uint64(digit)
	}
	return n, nil
}
