package jfr

import (
	"math/bits"
	"math/rand/v2"
)

// An index finds samples by their keys: it is a hash table with open addressing. A Go map takes longer, and these
// lookups are most of the time of reading a file: each event needs a place in memory that no cache has.
type index struct {
	table []entry // a power of two, at most half full
	seed  [2]uint64
}

// An entry holds a part of the key's hash, so that a sample with another key need not be looked at, and the sample's
// position plus one: 0 is an empty slot.
type entry struct {
	tag uint32
	at  int32
}

// indexStart is the initial size of the table, enough for a small recording.
const indexStart = 1 << 12

func newIndex() index {
	return index{table: make([]entry, indexStart), seed: [2]uint64{rand.Uint64(), rand.Uint64()}}
}

// guess returns the position of the first sample to look at for a hash.
func (x *index) guess(hash uint64) int32 { return max(x.table[hash&uint64(len(x.table)-1)].at-1, 0) }

// find returns the position of the sample with that key, -1 for none.
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

// add enters the last sample.
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

// hash mixes by multiplication with random seeds, as runtime/hash64.go does, so that no file can hold keys that
// collide.
func (x *index) hash(k *sampleKey) uint64 {
	h := mix(k.stack^x.seed[0], k.thread^x.seed[1])
	h = mix(h^k.class, k.state^x.seed[0])
	return mix(h^uint64(uint32(k.bucket))<<32^uint64(uint32(k.kind)), x.seed[1]|1)
}

func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}
