import assert from "node:assert/strict";
import { test } from "node:test";
import { pack } from "./pack.js";
import { unpack } from "../src/unpack.js";

// The first two stacks begin alike, and the place marked in the first is in the second too.
const small = pack({
  names: ["main", "work", "leaf"], interval: 10, scale: 0, bucket: 1,
  stacks: [[0], [0, 1], [0, 1, 2]],
  samples: [{ stack: 1, thread: 0, at: 0, count: 2 }, { stack: 2, thread: -1, at: 1, count: 300 }],
  marks: [{ finding: 4, frames: [2], places: [[1, 1]] }],
});

test("a profile is unpacked as it was packed", () => {
  const p = unpack(small);
  assert.deepEqual([...p.start], [0, 1, 3, 6]);
  assert.deepEqual([...p.calls], [0, 0, 1, 0, 1, 2]);
  assert.deepEqual([...p.stack], [1, 2]);
  assert.deepEqual([...p.thread], [0, -1]);
  assert.deepEqual([...p.at], [0, 1]);
  assert.deepEqual([...p.count], [2, 300]);
  assert.deepEqual([...p.value], [20, 3000]);
});

test("calls are found by their place among those of their caller", () => {
  const stacks = [[0, 1, 2], [0, 2, 0], [0, 3, 1, 2], [0, 1, 3], [3, 3, 3, 1]];
  const p = unpack(pack({
    names: ["a", "b", "c", "d"], interval: 1, scale: 0, bucket: 0, stacks, samples: [], marks: [],
  }));
  assert.deepEqual(stacks.map((_s, i) => [...p.calls.slice(p.start[i], p.start[i + 1])]), stacks);
});

test("values are multiples of the scale where they are not the count's", () => {
  const p = unpack(pack({
    names: ["a"], interval: 10, scale: 10, bucket: 0, stacks: [[0]],
      samples: [{ stack: 0, thread: 0, at: 0, count: 1, value: 7 * 2 ** 40 }], marks: [],
  }));
  assert.deepEqual([...p.value], [70 * 2 ** 40]);
});

test("a marked place is of all stacks that begin alike", () => {
  const p = unpack(small);
  assert.deepEqual([...p.marked], [[1, [[1, 4]]], [2, [[1, 4]]]]);
  assert.deepEqual([...p.markedFrames], [[2, [4]]]);
});

test("a profile that is cut off, or of another version, is an error", () => {
  assert.throws(() => unpack(small.slice(0, small.byteLength - 1)), /cut off/);
  const later = pack({ names: [], interval: 0, scale: 1, bucket: 0, stacks: [], samples: [], marks: [], version: 3 });
  assert.throws(() => unpack(later), /version 3/);
});
