// Makes a call tree of a profile's samples, as the reader wants to see them.

import type { Profile } from "./unpack.js";

export type Group = "none" | "pool" | "thread" | "class";

// A View is what of a profile is shown, and how.
export interface View {
  from: number; // seconds; what is outside of from to to is left out
  to: number;
  reverse: boolean; // callees first: who calls the hot function
  group: Group; // the first level of the tree
  only: string; // a pool; empty for all
  target: boolean; // only the target's own processes
  state: "all" | "busy" | "running" | "waiting"; // busy leaves out the threads that wait for work
  lines: boolean; // lines of a method, and its tiers of the JIT, are frames of their own
  collapse: boolean; // a recursive call is one
  hidden: (frame: number) => boolean; // frames that their callers take the place of
  // focus leaves the stacks of one function: what it calls, from its outermost call on, or who calls its innermost one.
  focus?: { name: number; callers: boolean };
}

// A Tree is nodes in the order in which they were made: parents before children. Node 0 is the root.
export interface Tree {
  size: number;
  frame: Int32Array; // -1 - i for group i, and -1 - groups.length for the root
  parent: Int32Array;
  depth: Int32Array;
  first: Int32Array; // child, or -1
  next: Int32Array; // sibling, or -1
  self: Float64Array;
  total: Float64Array;
  count: Float64Array; // samples, with all below
  marks: Map<number, Set<number>>; // findings
  groups: string[];
  order?: Float64Array; // what children are sorted by, where that is not total
  proof: Map<number, number>; // what the stacks of a finding's marks are together, by finding
}

// A Builder adds stacks to a tree. Nearly all nodes are the only child of theirs, and are found there; further ones are
// found by a hash table of open addresses: maps of strings would take ten times as long.
class Builder {
  size = 1;
  frame: Int32Array;
  parent: Int32Array;
  self: Float64Array;
  count: Float64Array;
  marks = new Map<number, Set<number>>();
  // The nodes of the stack that was added last: the next one mostly begins alike, and need not look for those again.
  private path = new Int32Array(1 << 8);
  private length = 0;
  private first: Int32Array; // child that was made first, 0 where there is none
  private slots = new Int32Array(1 << 12); // the other children, 0 where there is none
  private others = 0;

  // The root is node 0, and so many nodes are expected.
  constructor(root: number, nodes: number) {
    const n = Math.min(Math.max(nodes, 1 << 12), 1 << 22);
    this.frame = new Int32Array(n);
    this.parent = new Int32Array(n);
    this.first = new Int32Array(n);
    this.self = new Float64Array(n);
    this.count = new Float64Array(n);
    [this.frame[0], this.parent[0]] = [root, -1];
  }

  // child gives the parent's child of a frame, which it makes if there is none.
  child(parent: number, frame: number): number {
    const first = this.first[parent];
    if (first === 0) {
      const i = this.add(parent, frame);
      this.first[parent] = i;
      return i;
    }
    if (this.frame[first] === frame) return first;
    const h = this.slot(parent, frame);
    if (this.slots[h] > 0) return this.slots[h];
    const i = this.add(parent, frame);
    this.slots[h] = i;
    if (++this.others > this.slots.length / 2) this.rehash();
    return i;
  }

  private add(parent: number, frame: number): number {
    if (this.size === this.frame.length) this.grow();
    const i = this.size++;
    this.frame[i] = frame;
    this.parent[i] = parent;
    return i;
  }

  // step is child for the call at a depth of a stack; calls come in the order of depth, from 0.
  step(parent: number, frame: number, depth: number): number {
    if (depth < this.length) {
      const i = this.path[depth];
      if (this.parent[i] === parent && this.frame[i] === frame) return i;
    }
    if (depth >= this.path.length) {
      const longer = new Int32Array(this.path.length * 2);
      longer.set(this.path);
      this.path = longer;
    }
    const i = this.child(parent, frame);
    this.path[depth] = i;
    this.length = depth + 1;
    return i;
  }

  mark(node: number, finding: number): void {
    const set = this.marks.get(node);
    if (set) set.add(finding);
    else this.marks.set(node, new Set([finding]));
  }

  private slot(parent: number, frame: number): number {
    let h = Math.imul(parent + 1, 0x9e3779b1) ^ Math.imul(frame + 1, 0x85ebca6b);
    h ^= h >>> 15;
    h = Math.imul(h, 0x2c1b3c6d) ^ (h >>> 13);
    const mask = this.slots.length - 1;
    for (h &= mask; this.slots[h] > 0; h = (h + 1) & mask) {
      const i = this.slots[h];
      if (this.parent[i] === parent && this.frame[i] === frame) break;
    }
    return h;
  }

  private rehash(): void {
    const known = this.slots.filter((i) => i > 0);
    this.slots = new Int32Array(this.slots.length * 2);
    for (const i of known) this.slots[this.slot(this.parent[i], this.frame[i])] = i;
  }

  private grow(): void {
    const n = this.frame.length * 2;
    const larger = <T extends Int32Array | Float64Array>(from: T, to: T): T => (to.set(from), to);
    this.frame = larger(this.frame, new Int32Array(n));
    this.parent = larger(this.parent, new Int32Array(n));
    this.first = larger(this.first, new Int32Array(n));
    this.self = larger(this.self, new Float64Array(n));
    this.count = larger(this.count, new Float64Array(n));
  }
}

const running = 1; // stacks.Running
const waiting = 2; // stacks.Sleeping
export const idle = 3; // asleep, and nothing to do: pack of internal/report/html/profile.go

const compiled = 2; // stacks.Compiled
const kernel = 5; // stacks.Kernel

// merged gives for each frame the one that stands for its method: of all lines, interpreted, compiled and inlined. It
// is a compiled one, if there is any.
export function merged(f: Profile["frames"]): Int32Array {
  const methods = new Map<string, number>();
  const key = (i: number) => `${f.name[i]} ${f.module[i]} ${f.kind[i] === kernel}`;
  f.name.forEach((_n, i) => {
    const known = methods.get(key(i));
    if (known === undefined || (f.kind[i] === compiled && f.kind[known] !== compiled)) methods.set(key(i), i);
  });
  return Int32Array.from(f.name, (_n, i) => methods.get(key(i)) as number);
}

function left(state: View["state"], of: number): boolean {
  switch (state) {
    case "all":
      return false;
    case "busy":
      return of === idle;
    case "running":
      return of !== running;
    case "waiting":
      return of !== waiting && of !== idle;
  }
}

// wanted gives for each sample the number of its group, -1 for those that are left out, and the names of the groups.
function wanted(p: Profile, v: View): { group: Int32Array; names: string[] } {
  const group = new Int32Array(p.stack.length).fill(-1);
  const names: string[] = [];
  const index = new Map<string, number>();
  const [first, last] = buckets(p, v);
  for (let i = 0; i < group.length; i++) {
    const t = p.thread[i] >= 0 ? p.threads[p.thread[i]] : undefined;
    if (p.at[i] < first || p.at[i] > last) continue;
    if (v.only !== "" && t?.pool !== v.only) continue;
    if (v.target && t !== undefined && !t.target) continue;
    if (left(v.state, p.state[i])) continue;
    const name = groupName(v.group, t, p.classes[p.class[i]]);
    let g = index.get(name);
    if (g === undefined) {
      g = names.length;
      index.set(name, g);
      names.push(name);
    }
    group[i] = g;
  }
  return { group, names };
}

function groupName(by: Group, t: { name: string; id: number; pool: string } | undefined,
  kind: string | undefined): string {
  switch (by) {
    case "none":
      return "";
    case "pool":
      return t ? `pool ${t.pool}` : "unknown thread";
    case "thread":
      return t ? `${t.name || "thread"} (${t.id})` : "unknown thread";
    case "class":
      return kind || "unknown class";
  }
}

// buckets gives the time buckets whose middle is in the range, at least the one in the middle of the range. A profile
// without times is shown whole.
export function buckets(p: { bucket: number }, range: { from: number; to: number }): [number, number] {
  if (p.bucket <= 0) return [0, Number.MAX_SAFE_INTEGER];
  const first = Math.max(0, Math.ceil(range.from / p.bucket - 0.5));
  const last = Math.floor(range.to / p.bucket - 0.5);
  if (last >= first) return [first, last];
  const middle = Math.floor((range.from + range.to) / 2 / p.bucket);
  return [middle, middle];
}

// treeOf adds up the samples of a view.
export function treeOf(p: Profile, v: View): Tree {
  const { group, names } = wanted(p, v);
  const b = new Builder(-1 - names.length, p.fresh + names.length + 1);
  const grouped = v.group !== "none";
  const hidden = Uint8Array.from({ length: p.frames.name.length }, (_, f) => (v.hidden(f) ? 1 : 0));
  const as = v.lines ? Int32Array.from(p.frames.name, (_n, f) => f) : merged(p.frames);
  let last = -1; // samples of one stack and group lie side by side
  let of = -1;
  let node = 0;
  const proof = new Map<number, number>();
  const proves = p.marks.filter((m) => m.stacks.length > 0).map(
    (m) => ({ finding: m.finding, stacks: new Set(m.stacks) }));
  for (const i of inGroups(group, names.length)) {
    for (const m of proves) if (m.stacks.has(p.stack[i])) proof.set(m.finding,
      (proof.get(m.finding) ?? 0) + p.value[i]);
    if (p.stack[i] !== last || group[i] !== of) {
      [last, of] = [p.stack[i], group[i]];
      node = addStack(b, p, last, grouped ? b.child(0, -1 - of) : 0, v, hidden, as);
    }
    if (node < 0) continue; // not of the function in focus
    b.self[node] += p.value[i];
    b.count[node] += p.count[i];
  }
  return finish(b, names, proof);
}

// inGroups gives the wanted samples group by group, in the order of stacks.
function inGroups(group: Int32Array, groups: number): Int32Array {
  const start = new Int32Array(groups + 1);
  for (const g of group) if (g >= 0) start[g + 1]++;
  for (let g = 0; g < groups; g++) start[g + 1] += start[g];
  const out = new Int32Array(start[groups]);
  for (let i = 0; i < group.length; i++) if (group[i] >= 0) out[start[group[i]]++] = i;
  return out;
}

// addStack adds the calls of a stack below top and gives the last one's node, -1 for one without what is in focus.
function addStack(b: Builder, p: Profile, stack: number, top: number, v: View, hidden: Uint8Array,
  as: Int32Array): number {
  const from = p.start[stack];
  const n = p.start[stack + 1] - from;
  const marked = p.marked.get(stack);
  let [first, reverse] = [0, v.reverse];
  if (v.focus) {
    reverse = v.focus.callers;
    const calls = p.calls.subarray(from, from + n);
    const is = (f: number) => p.frames.name[f] === v.focus?.name;
    const at = reverse ? calls.findLastIndex(is) : calls.findIndex(is);
    if (at < 0) return -1;
    first = reverse ? n - 1 - at : at;
  }
  let node = top;
  let last = -1; // the frame's method, to find recursion
  let steps = 0;
  for (let k = first; k < n; k++) {
    const depth = reverse ? n - 1 - k : k;
    const f = p.calls[from + depth];
    if (hidden[f] === 0 && !(v.collapse && p.frames.name[f] === last)) node = b.step(node, as[f], steps++);
    if (hidden[f] === 0) last = p.frames.name[f];
    if (marked && node !== top) for (const [d, finding] of marked) if (d === depth) b.mark(node, finding);
    if (p.markedFrames.size > 0 && node !== top) for (const finding of p.markedFrames.get(f) ?? []) b.mark(node,
      finding);
  }
  return node;
}

function finish(b: Builder, groups: string[], proof: Map<number, number>): Tree {
  const n = b.size;
  const t: Tree = {
    size: n,
    frame: b.frame.subarray(0, n),
    parent: b.parent.subarray(0, n),
    depth: new Int32Array(n),
    first: new Int32Array(n).fill(-1),
    next: new Int32Array(n).fill(-1),
    self: b.self.subarray(0, n),
    total: b.self.slice(0, n),
    count: b.count.subarray(0, n),
    marks: b.marks,
    groups,
    proof,
  };
  for (let i = 1; i < n; i++) t.depth[i] = t.depth[t.parent[i]] + 1;
  for (let i = n - 1; i > 0; i--) {
    const up = t.parent[i];
    t.total[up] += t.total[i];
    t.count[up] += t.count[i];
    t.next[i] = t.first[up];
    t.first[up] = i;
  }
  return t;
}

// children gives a node's children of at least a weight, the heaviest first.
export function children(t: Tree, node: number, least = 0): number[] {
  const out: number[] = [];
  for (let c = t.first[node]; c >= 0; c = t.next[c]) if (t.total[c] >= least) out.push(c);
  const by = t.order ?? t.total;
  return out.sort((x, y) => by[y] - by[x] || x - y);
}

// weight adds up the nodes that match, each with all below it once: those under another match are in it already.
export function weight(t: Tree, match: (node: number) => boolean): { total: number; nodes: number; widest: number } {
  const inside = new Uint8Array(t.size);
  let total = 0;
  let nodes = 0;
  let widest = -1;
  for (let i = 1; i < t.size; i++) {
    const hit = match(i);
    if (hit) nodes++;
    if (inside[t.parent[i]] === 0 && hit) {
      total += t.total[i];
      if (widest < 0 || t.total[i] > t.total[widest]) widest = i;
    }
    inside[i] = inside[t.parent[i]] | (hit ? 1 : 0);
  }
  return { total, nodes, widest };
}

// hits gives the nodes that match and are under no other match, the widest first.
export function hits(t: Tree, match: (node: number) => boolean): number[] {
  const inside = new Uint8Array(t.size);
  const out: number[] = [];
  for (let i = 1; i < t.size; i++) {
    const hit = match(i);
    if (hit && inside[t.parent[i]] === 0) out.push(i);
    inside[i] = inside[t.parent[i]] | (hit ? 1 : 0);
  }
  return out.sort((a, b) => t.total[b] - t.total[a] || a - b);
}

// A Spot is what a tree says of one method: alone, and with all that it calls. A recursive call counts once.
export interface Spot {
  frame: number; // one of the method's
  self: number;
  total: number;
}

// spots gives the methods of a tree; of a reversed one, whose first level is the hot functions, total is only right for
// those.
export function spots(t: Tree, name: Int32Array | number[]): Spot[] {
  const rows = new Map<number, Spot>();
  const open = new Map<number, number>(); // methods on the path, by how often
  const path: number[] = [];
  let at = 0;
  const leave = (depth: number) => {
    while (path.length > depth) {
      const method = path.pop() as number;
      open.set(method, (open.get(method) as number) - 1);
    }
  };
  for (at = preorder(t, 0); at >= 0; at = preorder(t, at)) {
    leave(t.depth[at] - 1);
    const f = t.frame[at];
    const method = f >= 0 ? name[f] : -1;
    const row = f >= 0 ? rows.get(method) ?? { frame: f, self: 0, total: 0 } : undefined;
    if (row) {
      rows.set(method, row);
      row.self += t.self[at];
      if ((open.get(method) ?? 0) === 0) row.total += t.total[at];
    }
    path.push(method);
    open.set(method, (open.get(method) ?? 0) + 1);
  }
  return [...rows.values()];
}

// preorder gives the node after one, its children before its siblings, and -1 after the last.
function preorder(t: Tree, node: number): number {
  if (t.first[node] >= 0) return t.first[node];
  while (node > 0 && t.next[node] < 0) node = t.parent[node];
  return node > 0 ? t.next[node] : -1;
}
