package recording

import (
	"bytes"
	"fmt"
)

// maxWeight bounds the estimated memory of a recording that is read, in bytes: the garbage collector may double it,
// and the process has 256 MiB in all (MemoryMax of the packaged unit). An hour of a busy host weighs some 60 MiB.
const maxWeight = 96 << 20

// decodeRoom is what decoding a profile may take on top of the remaining budget, in bytes, because it is freed again:
// pprof's structures are four times as large as what is kept.
const decodeRoom = 48 << 20

// The memory of a recording's parts, in bytes, by unsafe.Sizeof and what append and maps add to it.
const (
	pointWeight  = 24      // 16, and what append keeps in reserve
	seriesWeight = 256     // Series, its place in two lists and a map
	labelWeight  = 2 * 16  // a string's header, in the series and in its key
	itemWeight   = 64      // a JSON value during decoding: a header in a list that grows, or an entry of a map
	objectWeight = 2 * 256 // an object of meta.json: CollectorStatus is the largest, in a list that grows
)

// budget is what a recording may still weigh. Every reader of a part draws from the same budget.
type budget struct{ left int }

func newBudget() *budget { return &budget{left: maxWeight} }

// take draws the weight of a part that stays in memory.
func (b *budget) take(file string, weight int) error {
	if weight < 0 || weight > b.left {
		return fmt.Errorf("%w: with %s it needs more than %d MiB of memory: record a shorter time", ErrFormat, file,
			maxWeight>>20)
	}
	b.left -= weight
	return nil
}

// afford checks that a weight would fit that is freed soon.
func (b *budget) afford(file string, weight int) error {
	probe := *b
	return probe.take(file, weight)
}

// jsonWeight estimates what decoding JSON takes, without decoding it: it counts lists, objects and members by their
// punctuation. A string may hold punctuation too, so the estimate is rather too high.
func jsonWeight(data []byte) int {
	items := bytes.Count(data, []byte("[")) + bytes.Count(data, []byte("\""))/2
	return len(data) + items*itemWeight
}

// metaWeight is jsonWeight for meta.json, whose objects are large.
func metaWeight(data []byte) int {
	items := bytes.Count(data, []byte("{"))*objectWeight + bytes.Count(data, []byte(","))*labelWeight
	return len(data) + items
}
