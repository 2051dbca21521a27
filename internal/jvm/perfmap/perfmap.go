// Package perfmap maps addresses to the code that a virtual machine compiled at run time, in the form that perf
// reads. It also holds the agent that makes HotSpot write such a map.
package perfmap

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

//go:generate agent/build.sh

// Agent returns a JVMTI agent for this architecture, a shared library without dependencies; agent/agent.c says what
// it does.
func Agent() []byte { return slices.Clone(agent) }

// AgentID identifies this very agent by the beginning of its checksum.
func AgentID() string {
	sum := sha256.Sum256(agent)
	return hex.EncodeToString(sum[:4])
}

// Entry is a range of addresses and what lies there.
type Entry struct {
	Start, Size uint64 // bytes
	// Name is java.lang.String.concat, or Interpreter. Code with inlined methods has the whole chain, the outermost
	// method first, a.B.outer->a.C.inner, as stackcollapse-perf.pl splits it.
	Name string
}

// End is the first address after the entry.
func (e Entry) End() uint64 { return e.Start + e.Size }

// Frames returns the methods of the entry, the innermost first.
func (e Entry) Frames() []string {
	frames := strings.Split(e.Name, "->")
	slices.Reverse(frames)
	return frames
}

// Map holds entries by ascending addresses; no two of them overlap.
type Map struct{ Entries []Entry }

// Find returns the entry that holds the address.
func (m *Map) Find(address uint64) (Entry, bool) {
	i, found := slices.BinarySearchFunc(m.Entries, address, func(e Entry, a uint64) int {
		return cmp.Compare(e.Start, a)
	})
	if !found {
		i--
	}
	if i < 0 || address-m.Entries[i].Start >= m.Entries[i].Size {
		return Entry{}, false
	}
	return m.Entries[i], true
}

// WriteTo writes the map as perf reads it: lines of start, size and name, in hexadecimal
// (tools/perf/Documentation/jit-interface.txt).
func (m *Map) WriteTo(w io.Writer) (int64, error) {
	b := bufio.NewWriter(w)
	var n int64
	for _, e := range m.Entries {
		written, err := fmt.Fprintf(b, "%x %x %s\n", e.Start, e.Size, e.Name)
		n += int64(written)
		if err != nil {
			return n, err
		}
	}
	return n, b.Flush()
}

const (
	// maxEntries bounds the entries read. A code cache of 240 MB, HotSpot's default, holds some 100,000 methods, or
	// 500,000 lines with the inlined ones; during the sort an entry takes 100 bytes.
	maxEntries = 600_000
	// maxLine bounds a line: the longest is a chain of inlined methods, 15 (MaxInlineLevel) of some hundred bytes.
	maxLine = 64 << 10
)

// Parse reads a map. It comes from the target and is not trusted: names lose what could act on a terminal or break a
// line. A line that does not parse is an error with its number but without its text: the file may be a link to one
// that only perfdoctor can read. Where entries overlap, the inner one, which begins later, is kept whole and the
// outer one is cut; of two at the same place the smaller is the inner one.
func Parse(r io.Reader) (*Map, error) {
	var all []Entry
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 4096), maxLine)
	for n := 1; sc.Scan(); n++ {
		e, err := parseLine(sc.Bytes())
		if err != nil {
			return nil, fmt.Errorf("perf map: line %d: %w", n, err)
		}
		if len(all) == maxEntries {
			return nil, fmt.Errorf("perf map: more than %d entries", maxEntries)
		}
		if e.Size > 0 {
			all = append(all, e)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("perf map: %w", err)
	}
	return &Map{flatten(all)}, nil
}

// Of makes a map of entries with a size. Their names are not trusted and they may overlap: see [Parse].
func Of(entries []Entry) *Map {
	all := slices.Clone(entries)
	for i := range all {
		all[i].Name = printable(all[i].Name)
	}
	return &Map{flatten(all)}
}

func parseLine(line []byte) (Entry, error) {
	first, rest, ok := bytes.Cut(line, []byte{' '})
	second, name, ok2 := bytes.Cut(rest, []byte{' '})
	if !ok || !ok2 || len(name) == 0 {
		return Entry{}, errors.New("not start, size and name")
	}
	start, err := parseHex(first)
	if err != nil {
		return Entry{}, err
	}
	size, err := parseHex(second)
	if err != nil {
		return Entry{}, err
	}
	if start+size < start {
		return Entry{}, errors.New("it reaches beyond the last address")
	}
	return Entry{start, size, cleanName(string(name))}, nil
}

// parseHex reads a number with or without 0x, which Compiler.perfmap writes.
func parseHex(b []byte) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(string(b), "0x"), 16, 64)
	if err != nil {
		return 0, errors.New("no hexadecimal number") // strconv's error has the text
	}
	return n, nil
}

// cleanName brings a name of Compiler.perfmap into our form. That command writes a method as HotSpot's
// Method::external_name does: "int java.lang.String.indexOf(java.lang.String, int)".
func cleanName(name string) string {
	if before, _, ok := strings.Cut(name, "("); ok {
		// "StubRoutines (1)" has a space before the parenthesis and is no method.
		if i := strings.LastIndexByte(before, ' '); i >= 0 && i < len(before)-1 {
			name = before[i+1:]
		}
	}
	return printable(name)
}

// printable removes what could act on a terminal or break a line.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "_"))
}

// flatten makes entries that overlap into ones that do not.
func flatten(all []Entry) []Entry {
	// Outer entries come before the inner ones that begin at the same place.
	slices.SortStableFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Size, a.Size))
	})
	flat := make([]Entry, 0, len(all))
	var open []Entry // entries that reach beyond the end of flat, the innermost last
	at := uint64(0)
	emit := func(e Entry, to uint64) {
		if to > at {
			flat = append(flat, Entry{at, to - at, e.Name})
			at = to
		}
	}
	closeUntil := func(limit uint64) {
		for len(open) > 0 && at < limit {
			inner := open[len(open)-1]
			emit(inner, min(inner.End(), limit))
			if inner.End() > limit {
				return
			}
			open = open[:len(open)-1]
		}
	}
	for _, e := range all {
		closeUntil(e.Start)
		at = max(at, e.Start)
		open = append(open, e)
	}
	closeUntil(^uint64(0))
	return flat
}
