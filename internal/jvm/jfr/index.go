package jfr

import (
	"math/bits"
	"math/rand/v2"
)

// An index finds samples by their keys: a table with open addressing. A map of Go's takes longer, and most of the
// reading of a file is this: a place in memory for each event that no cache has.
type index struct {
	table []entry // a power of two, at most half full
	seed  [2]uint64
}

// An entry is a part of the key's hash, so that a sample of another key need not be looked at, and one more than the
// sample's position: 0 is an empty slot.
type entry struct {
	tag uint32
	at  int32
}

// indexStart is the first size of the table, and what a small recording takes.
const indexStart = 1 << 12

func newIndex() index {
	return index{table: make([]entry, indexStart), seed: [2]uint64{rand.Uint64(), rand.Uint64()}}
}

// guess gives the position of the sample that is first looked at for a hash.
func (x *index) guess(hash uint64) int32 { return max(x.table[hash&uint64(len(x.table)-1)].at-1, 0) }

// find gives the position of the sample with that key, -1 for none.
func (x *index) find(samples []rawSample, key *sampleKey, hash uint64) int {
	mask := uint64(len(x.table) - 1)
	for slot := hash & mask; ; slot = (slot + 1) & mask {
		e := x.table[slot]
		if e.at == 0 {
			return -1
		}
		if e.tag == uint32(hash>>32) && samples[e.at-1].sampleKey == *key {
			return int(e.at) - 1
		}
	}
}

// add enters the last of the samples.
func (x *index) add(hash uint64, samples []rawSample) {
	if 2*len(samples) <= len(x.table) {
		x.enter(hash, len(samples))
		return
	}
	x.table = make([]entry, 2*len(x.table))
	for i := range samples {
		x.enter(x.hash(&samples[i].sampleKey), i+1)
	}
}

func (x *index) enter(hash uint64, at int) {
	mask := uint64(len(x.table) - 1)
	slot := hash & mask
	for x.table[slot].at != 0 {
		slot = (slot + 1) & mask
	}
	x.table[slot] = entry{uint32(hash >> 32), int32(at)}
}

// hash mixes by multiplication with seeds that are random, so that no file can hold keys that collide (as
// runtime/hash64.go does).
func (x *index) hash(k *sampleKey) uint64 {
	h := mix(k.stack^x.seed[0], k.thread^x.seed[1])
	h = mix(h^k.class, k.state^x.seed[0])
	return mix(h^uint64(uint32(k.bucket))<<32^uint64(uint32(k.kind)), x.seed[1]|1)
}

func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}
