package sockdiag

import "testing"

// TestWhoIsToSpeak has the two directions of one connection: what one side owes, the other has asked for.
func TestWhoIsToSpeak(t *testing.T) {
	tests := map[string]struct {
		sent, recv uint32 // ms ago
		out, in    uint32 // segments with data
		last       Side
		// what is to come of it
		owes, asked bool
	}{
		"nothing was said":                  {sent: 40, recv: 40},
		"the first request, in one tick":    {sent: 40, recv: 40, in: 1, owes: true},
		"the first request":                 {sent: 48, recv: 40, in: 1, owes: true},
		"a greeting, in one tick":           {sent: 40, recv: 40, out: 1, asked: true},
		"an answer":                         {sent: 36, recv: 40, in: 1, out: 1, asked: true},
		"both in one tick":                  {sent: 40, recv: 40, in: 1, out: 1},
		"both in one tick, the peer spoke":  {sent: 40, recv: 40, in: 2, out: 1, last: Peer, owes: true},
		"one that takes what it is sent":    {sent: 60_000, recv: 40, in: 500},
		"one that waits since an hour, too": {sent: 3_600_000, recv: 3_599_000, in: 1, owes: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			i := Info{
				Len: infoDataSegsOut + 4, LastDataSent: tt.sent, LastDataRecv: tt.recv,
				DataSegsOut: tt.out, DataSegsIn: tt.in, Last: tt.last,
			}
			if owes, asked := i.Owes(), i.Asked(); owes != tt.owes || asked != tt.asked {
				t.Errorf("owes %v, asked %v; want %v and %v", owes, asked, tt.owes, tt.asked)
			}
		})
	}
}
