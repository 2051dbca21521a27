package ruby

import "testing"

// FuzzMemory reads a process whose owner decides what its memory holds: addresses that form cycles, and strings of any
// size. It ends, within its bounds.
func FuzzMemory(f *testing.F) {
	f.Add([]byte{8, 0, 0, 0, 0, 0, 0, 0}, 1)
	f.Add([]byte{0x1a, 0x70, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5, 0x20, 0, 0, 0, 0, 0, 0}, 3)
	f.Add(make([]byte, 300), 2)
	f.Fuzz(func(t *testing.T, content []byte, minor int) {
		if len(content) == 0 {
			return
		}
		p := &Process{
			machine: 1, began: true, layout: layoutOf(minor & 7), variables: map[uint64]string{1: "Array"},
			data: []span{{8, 64}}, methods: map[key]*method{}, cores: map[coreKey]string{},
			read: func(at uint64, into []byte) error {
				for i := range into { // the content, again and again
					into[i] = content[(at+uint64(i))%uint64(len(content))]
				}
				return nil
			},
		}
		p.findMachine()
		for range 2 {
			list, _ := p.Threads(func(id int) bool { return id == 5 })
			if len(list) > maxThreads+1 {
				t.Errorf("%d threads", len(list))
			}
			calls, _ := p.Stack(Thread{address: 8})
			if len(calls) > maxDepth {
				t.Errorf("%d calls", len(calls))
			}
			for _, c := range calls {
				if len(c.Function) > maxText+len("Array#") || len(c.File) > maxText {
					t.Errorf("a name of %d bytes, a file's of %d", len(c.Function), len(c.File))
				}
			}
		}
	})
}

// TestLineIndex counts lines in both parts of their places.
func TestLineIndex(t *testing.T) {
	// Nine counts of seven bits in the first word: lines begin at the instructions 0, 3 and 8.
	memory := make([]byte, blocksAt+2*blockSize)
	word := uint64(1 | 1<<7 | 1<<14 | 2<<21 | 2<<28 | 2<<35 | 2<<42 | 2<<49 | 3<<56)
	put := func(at int, x uint64) {
		for i := range 8 {
			memory[at+i] = byte(x >> (8 * i))
		}
	}
	put(0, word)
	// A block with 3 lines before it; one begins at its first instruction, one at the 70th.
	put(blocksAt, 3)
	put(blocksAt+blockRanks, 1)
	put(blocksAt+blockContent, 1)
	put(blocksAt+blockContent+8, 1<<6)
	p := &Process{read: func(at uint64, into []byte) error { copy(into, memory[at:]); return nil }}
	for place, want := range map[uint64]uint64{0: 1, 2: 1, 3: 2, 8: 3, 54: 4, 54 + 63: 4, 54 + 69: 4, 54 + 70: 5} {
		if got := p.lineIndex(0, place); got != want {
			t.Errorf("instruction %d is of line %d, want %d", place, got, want)
		}
	}
}
