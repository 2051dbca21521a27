import assert from "node:assert/strict";
import { test } from "node:test";
import { buckets, children, hits, spots, type Tree, treeOf, type View, weight } from "../src/tree.js";
import { type Profile, unpack } from "../src/unpack.js";
import { pack } from "./pack.js";

const names = ["main", "work", "fib", "leaf"];
const threads = [{ name: "http-1", id: 1, pool: "http", target: true }, { name: "http-2", id: 2, pool: "http",
  target: true }, { name: "other", id: 9, pool: "other", target: false }];

// main → work → leaf in second 0 and 2; main → fib → fib → leaf in second 1.
const profile = unpack(pack({
  names, threads, interval: 1, scale: 0, bucket: 1,
  stacks: [[0, 1, 3], [0, 2, 2, 3]],
  samples: [
    { stack: 0, thread: 0, at: 0, state: 1, count: 5 }, { stack: 0, thread: 1, at: 2, state: 2, count: 1 },
    { stack: 1, thread: 2, at: 1, state: 1, count: 4 },
  ],
  marks: [{ finding: 7, frames: [], places: [[1, 1]], stacks: [1] }],
}));

const whole: View = {
  from: 0, to: 10, reverse: false, group: "none", only: "", target: false, state: "all", lines: false, collapse: false,
    hidden: () => false,
};

const label = (p: Profile, t: Tree, n: number) => (
  t.frame[n] >= 0 ? p.names[p.frames.name[t.frame[n]]] : n === 0 ? "all" : t.groups[-1 - t.frame[n]]);

// shape writes a tree on one line: name total(children).
function shape(t: Tree, n = 0): string {
  const down = children(t, n).map((c) => shape(t, c));
  return `${label(profile, t, n)} ${t.total[n]}${down.length > 0 ? ` (${down.join(", ")})` : ""}`;
}

const cases: [string, Partial<View>, string][] = [
  ["all", {}, "all 10 (main 10 (work 6 (leaf 6), fib 4 (fib 4 (leaf 4))))"],
  ["a time range", { from: 0.9, to: 2 }, "all 4 (main 4 (fib 4 (fib 4 (leaf 4))))"],
  ["bottom-up", { reverse: true }, "all 10 (leaf 10 (work 6 (main 6), fib 4 (fib 4 (main 4))))"],
  ["recursion collapsed", { collapse: true }, "all 10 (main 10 (work 6 (leaf 6), fib 4 (leaf 4)))"],
  ["by pool", { group: "pool" },
    "all 10 (pool http 6 (main 6 (work 6 (leaf 6))), pool other 4 (main 4 (fib 4 (fib 4 (leaf 4)))))"],
  ["by thread", { group: "thread", from: 0, to: 1 }, "all 5 (http-1 (1) 5 (main 5 (work 5 (leaf 5))))"],
  ["one pool", { only: "other" }, "all 4 (main 4 (fib 4 (fib 4 (leaf 4))))"],
  ["the target", { target: true }, "all 6 (main 6 (work 6 (leaf 6)))"],
  ["waiting", { state: "waiting" }, "all 1 (main 1 (work 1 (leaf 1)))"],
  ["what a function calls", { focus: { name: 2, callers: false } }, "all 4 (fib 4 (fib 4 (leaf 4)))"],
  ["who calls a function", { focus: { name: 3, callers: true } },
    "all 10 (leaf 10 (work 6 (main 6), fib 4 (fib 4 (main 4))))"],
  ["hidden frames", { hidden: (f) => f === 1 || f === 3 }, "all 10 (main 10 (fib 4 (fib 4)))"],
];

for (const [name, change, want] of cases) {
  test(`a tree of ${name}`, () => assert.equal(shape(treeOf(profile, { ...whole, ...change })), want));
}

// work is interpreted at line 1, compiled at line 2 and inlined at line 2; leaf is of the kernel and not.
const tiers = unpack(pack({
  names: ["main", "work", "leaf"], interval: 1, scale: 0, bucket: 0,
  frames: { name: [0, 1, 1, 1, 2, 2], line: [0, 1, 2, 2, 0, 0], kind: [2, 1, 2, 3, 4, 5] },
  stacks: [[0, 1, 4], [0, 2, 4], [0, 3, 5]],
  samples: [{ stack: 0, thread: 0, at: 0, state: 1, count: 1 }, { stack: 1, thread: 0, at: 0, state: 2, count: 2 },
    { stack: 2, thread: 0, at: 0, state: 3, count: 4 }], marks: [],
}));
const of = (v: Partial<View>) => {
  const t = treeOf(tiers, { ...whole, ...v });
  const text = (n: number): string => `${label(tiers, t, n)} ${t.total[n]}` +
    (t.first[n] >= 0 ? ` (${children(t, n).map(text).join(", ")})` : "");
  return { text: text(0), kinds: [...t.frame].filter((f) => f >= 0).map((f) => tiers.frames.kind[f]) };
};

test("a method is one frame over its lines and tiers, and the kernel's of that name another", () => {
  const t = of({});
  assert.equal(t.text, "all 7 (main 7 (work 7 (leaf 4, leaf 3)))");
  assert.deepEqual(t.kinds, [2, 2, 4, 5]);
  assert.equal(of({ lines: true }).text, "all 7 (main 7 (work 4 (leaf 4), work 2 (leaf 2), work 1 (leaf 1)))");
});

test("idle threads can be left out", () => {
  assert.equal(of({ state: "busy" }).text, "all 3 (main 3 (work 3 (leaf 3)))");
  assert.equal(of({ state: "waiting" }).text, "all 6 (main 6 (work 6 (leaf 4, leaf 2)))");
  assert.equal(of({ state: "running" }).text, "all 1 (main 1 (work 1 (leaf 1)))");
});

test("hits are gone through from the widest on", () => {
  const t = treeOf(profile, whole);
  const list = hits(t, (n) => label(profile, t, n) === "leaf" || label(profile, t, n) === "fib");
  assert.deepEqual(list.map((n) => `${label(profile, t, n)} ${t.total[n]}`), ["leaf 6", "fib 4"]);
});

test("marks follow their place", () => {
  const marked = (v: Partial<View>) => {
    const t = treeOf(profile, { ...whole, ...v });
    return [...t.marks].map(([n, f]) => `${label(profile, t, n)} at ${t.depth[n]}: ${[...f].join()}`);
  };
  assert.deepEqual(marked({}), ["fib at 2: 7"]);
  assert.deepEqual(marked({ reverse: true }), ["fib at 3: 7"]);
  assert.deepEqual(marked({ from: 0, to: 1 }), []);
});

test("the proof of a finding is its stacks in the range", () => {
  assert.deepEqual([...treeOf(profile, whole).proof], [[7, 4]]);
  assert.deepEqual([...treeOf(profile, { ...whole, from: 0, to: 1 }).proof], []);
});

test("what matches is counted once", () => {
  const t = treeOf(profile, whole);
  const w = weight(t, (n) => label(profile, t, n) === "fib");
  assert.equal(w.total, 4);
  assert.equal(w.nodes, 2);
  assert.equal(label(profile, t, w.widest), "fib");
  assert.equal(weight(t, () => false).widest, -1);
});

test("hot spots: recursion counts once", () => {
  const list = spots(treeOf(profile, whole), profile.frames.name).map((s) => [names[s.frame], s.self, s.total]);
  assert.deepEqual(list.sort(), [["fib", 0, 4], ["leaf", 10, 10], ["main", 0, 10], ["work", 0, 6]]);
});

test("a range selects the buckets whose middle is in it, at least one", () => {
  assert.deepEqual(buckets({ bucket: 1 }, { from: 0, to: 3 }), [0, 2]);
  assert.deepEqual(buckets({ bucket: 1 }, { from: 0.6, to: 2.4 }), [1, 1]);
  assert.deepEqual(buckets({ bucket: 1 }, { from: 2.1, to: 2.3 }), [2, 2]);
  assert.deepEqual(buckets({ bucket: 0 }, { from: 1, to: 2 })[0], 0);
});

test("a large tree is right after its tables have grown", () => {
  const n = 5000;
  const many = unpack(pack({
    names: Array.from({ length: n }, (_, i) => `f${i}`), interval: 1, scale: 0, bucket: 0,
    stacks: Array.from({ length: n }, (_, i) => [i, (i * 7) % n, (i * 13) % n]),
    samples: Array.from({ length: n }, (_, i) => ({ stack: i, thread: 0, at: 0, count: 1 })), marks: [],
  }));
  const t = treeOf(many, whole);
  assert.equal(t.size, 1 + 3 * n);
  assert.equal(t.total[0], n);
  assert.equal(children(t, 0).length, n);
});
