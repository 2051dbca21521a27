import assert from "node:assert/strict";
import { test } from "node:test";
import { unpackDiff } from "../src/unpackdiff.js";
import { children } from "../src/tree.js";
import { packed } from "./pack.js";

test("a difference is unpacked as it was packed", () => {
  const d = unpackDiff(packed(
    { version: 1, unit: "samples", names: ["a", "b"], modules: [""], frames: { name: [0, 1], module: [0, 0],
      line: [0, 0], kind: [4, 4], owner: [0, 0] }, nodes: 4 },
    [[2, 1, 0, 0], [0, 1, 2, 2], [10, 6, 2, 3], [20, 5, 4, 15], [3, 3, 0, 6], [0, 900, 500, 2500]],
  ));
  const { before, after } = d.tree;
  assert.deepEqual([...after.parent], [-1, 0, 1, 0]);
  assert.deepEqual([...after.depth], [0, 1, 2, 1]);
  assert.deepEqual([...after.frame], [-1, 0, 1, 1]);
  assert.deepEqual([...before.self], [1, 4, 2, 3]);
  assert.deepEqual([...after.self], [0, 1, 4, 15]);
  assert.deepEqual([...d.change], [0, 0, -3, 3]);
  assert.equal(d.factor[3], 2.5);
  assert.deepEqual([children(before, 0), children(after, 0)], [[3, 1], [3, 1]],
    "calls stand at one place on both sides");
});

test("a difference of another version is an error", () => {
  assert.throws(() => unpackDiff(packed({ version: 2, nodes: 0 }, [])), /version 2/);
});
