package signature

import (
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

func FuzzParseSignatures(f *testing.F) {
	f.Add(signatureTable[:2000])
	f.Add([]byte("signatures:\n  a:\n    title: b\n    where:\n      - {event: cpu, frames: [a.*], warn: 30 %}\n    " +
		"cure: c\n"))
	f.Add([]byte("signatures:\n  a:\n   &title:"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		list, err := readSignatures("own.yaml", data)
		if err != nil {
			return
		}
		p := &stacks.Profile{
			Event: stacks.CPU, Frames: []stacks.Frame{{Name: "a.b"}, {Name: "c"}},
			Samples: []stacks.Sample{{Stack: []int{0, 1}, Thread: -1, Count: 1}},
		}
		for _, s := range list {
			for _, w := range s.Where {
				matcherOf(p, w, nil).hits()
			}
		}
	})
}
