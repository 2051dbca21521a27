package postgres

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// An arena is memory of a server from an address on.
type arena []byte

const arenaBase = 1 << 20

func (m arena) read(address uint64, into []byte) error {
	if address < arenaBase || address-arenaBase > uint64(len(m)) || len(into) > len(m)-int(address-arenaBase) {
		return memory.ErrNowhere
	}
	copy(into, m[address-arenaBase:])
	return nil
}

func (m arena) word(at int, v uint64) { binary.LittleEndian.PutUint64(m[at:], v) }

func (m arena) half(at int, v uint32) { binary.LittleEndian.PutUint32(m[at:], v) }

// request puts a PROCLOCK at a place and links it to the one at next.
func (m arena) request(at int, lock, proc, leader uint64, held uint32, next int) {
	m.word(at+requestLock, lock)
	m.word(at+requestProc, proc)
	m.word(at+requestLeader, leader)
	m.half(at+requestHeld, held)
	m.word(at+requestNext, arenaBase+uint64(next)+requestLink)
}

// Places in the arena: a lock, the PGPROCs of the waiter and the holder, and their requests.
const (
	atLock, atWaiter, atHolder   = 0x000, 0x100, 0x200
	atRequest, atHeld, arenaSize = 0x300, 0x400, 0x500
	waiterProc, holderProc       = arenaBase + atWaiter, arenaBase + atHolder
)

// newArena has a session that wants a row exclusively. Another session has it in some mode.
func newArena(held uint32, holderLeader uint64) arena {
	m := make(arena, arenaSize)
	m[atLock+lockType] = 5
	m.word(atLock+lockHolds+8, arenaBase+atHeld+requestLink)
	m.request(atHeld, arenaBase+atLock, holderProc, holderLeader, held, atRequest)
	m.request(atRequest, arenaBase+atLock, waiterProc, waiterProc, 0, atLock+lockHolds-requestLink)
	m.word(atWaiter+96, arenaBase+atLock)
	m.word(atWaiter+104, arenaBase+atRequest)
	m.half(atWaiter+112, 7)
	return m
}

// rootOf does what a pass does about the session that waits.
func rootOf(m arena) (kind string, root uint64, ok bool) {
	s := &server{}
	w, waits, err := s.waitOf(m.read, waiterProc)
	if err != nil || !waits {
		return "", 0, false
	}
	view := scene{read: m.read, waits: map[uint64]*wait{waiterProc: &w}, locks: map[uint64]lock{}}
	kind = view.lockOf(&w).kind
	root, _, ok = view.root(waiterProc)
	return kind, root, ok
}

func TestRoot(t *testing.T) {
	type answer struct {
		Kind string
		Root uint64
		OK   bool
	}
	ring := newArena(1<<7, holderProc) // leads to its first member again, not to the head
	ring.request(atRequest, arenaBase+atLock, waiterProc, waiterProc, 0, atHeld)
	elsewhere := newArena(1<<7, holderProc) // its next is of another lock
	elsewhere.word(atHeld+requestLock, arenaBase+8)
	wild := newArena(1<<7, holderProc)
	wild.word(atLock+lockHolds+8, 0xffff_ffff_ffff_fff8)
	later := newArena(1<<7, holderProc)
	later[atLock+lockType] = 200
	others := newArena(1<<7, holderProc) // its request is another session's
	others.word(atRequest+requestProc, holderProc)
	for _, tc := range []struct {
		name string
		in   arena
		want answer
	}{
		{"held exclusively", newArena(1<<7, holderProc), answer{"row", holderProc, true}},
		{"held in a mode that excludes nothing", newArena(1<<1, holderProc), answer{"row", 0, false}},
		{"of the same parallel query", newArena(1<<7, waiterProc), answer{"row", 0, false}},
		{"a kind of later", later, answer{otherKind, holderProc, true}},
		{"a list that goes round", ring, answer{"row", 0, false}},
		{"a list that came apart", elsewhere, answer{"row", 0, false}},
		{"a list that leads nowhere", wild, answer{"row", 0, false}},
		{"no wait of its own", others, answer{}},
	} {
		var got answer
		got.Kind, got.Root, got.OK = rootOf(tc.in)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// FuzzMemory: whatever a server's memory holds, it is read in a short time and without a panic.
func FuzzMemory(f *testing.F) {
	f.Add([]byte(newArena(1<<7, holderProc)))
	f.Add([]byte(scanArena()))
	f.Add([]byte(inFunction()))
	f.Fuzz(func(t *testing.T, b []byte) {
		began, m := time.Now(), arena(b)
		rootOf(m)
		for _, is18 := range []bool{false, true} {
			of := server{portal: arenaBase, memory: arenaBase + 8, is18: is18}
			if x, ok, _ := of.scanOf(m.read); ok && (x.table == "" || x.kept > 1 || len(x.table) >= nameSize) {
				t.Errorf("a scan %+v", x)
			}
		}
		for _, states := range [][]string{statesOf14(), statesOf18()} {
			s := session{read: m.read, server: &server{states: states, myProc: arenaBase, myStatus: arenaBase + 8}}
			g, err := s.glance()
			if err == nil && len(g.fingerprint) > maxFingerprint+len("…") {
				t.Errorf("a statement of %d bytes", len(g.fingerprint))
			}
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("it took %v", d)
		}
	})
}
