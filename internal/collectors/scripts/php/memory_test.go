package php

import "testing"

// FuzzMemory reads a process whose owner decides what its memory holds: addresses that form cycles, and strings of any
// size. It ends, within its bounds.
func FuzzMemory(f *testing.F) {
	f.Add([]byte{8, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 47})
	f.Add(make([]byte, 300))
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) == 0 {
			return
		}
		p := &Process{modules: 1, known: map[key]Call{}, read: func(at uint64, into []byte) error {
			for i := range into { // the content, again and again
				into[i] = content[(at+uint64(i))%uint64(len(content))]
			}
			return nil
		}}
		for range 2 {
			calls, err := p.Stack()
			if err == nil && len(calls) > maxDepth {
				t.Errorf("%d calls", len(calls))
			}
			for _, c := range calls {
				if len(c.Function) > 2*maxText+2 || len(c.File) > maxText {
					t.Errorf("a name of %d bytes, a file's of %d", len(c.Function), len(c.File))
				}
			}
		}
		p.Version()
	})
}
