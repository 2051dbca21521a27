// Reads the differences that packDiff of internal/report/html/diff.go writes.

import type { Tree } from "./tree.js";
import { type Code, split } from "./unpack.js";

const version = 1;

// These are the types of internal/report/html/diff.go.
interface Header extends Code {
  version: number;
  nodes: number;
}

// A Diff is calls in both recordings. A change is -3 to 3: shrank or grew by how much; 0 is no more than chance.
export interface Diff extends Header {
  tree: { before: Tree; after: Tree };
  change: Int8Array;
  factor: Float64Array;
}

// unpackDiff reads what packDiff of internal/report/html/diff.go writes: nodes with their callees behind them.
export function unpackDiff(data: ArrayBuffer): Diff {
  const [header, c] = split<Header>(data);
  if (header.version !== version) throw new Error(
    `the graph is of version ${header.version}, this page reads ${version}`);
  const n = header.nodes;
  const column = () => Float64Array.from({ length: n }, () => c.next());
  const callees = column();
  const frame = Int32Array.from(column(), (x) => x - 1);
  const before = column();
  const after = column();
  const change = Int8Array.from(column(), (x) => x - 3);
  const factor = column().map((x) => x / 1000);
  const parent = new Int32Array(n).fill(-1);
  const depth = new Int32Array(n);
  const first = new Int32Array(n).fill(-1);
  const next = new Int32Array(n).fill(-1);
  const last = new Int32Array(n).fill(-1); // child so far
  const open: number[] = []; // calls that still have callees to come
  for (let i = 0; i < n; i++) {
    const up = open[open.length - 1];
    if (up !== undefined) {
      parent[i] = up;
      depth[i] = depth[up] + 1;
      if (last[up] < 0) first[up] = i;
      else next[last[up]] = i;
      last[up] = i;
      if (--callees[up] === 0) open.pop();
    }
    if (callees[i] > 0) open.push(i);
  }
  const order = before.map((x, i) => x + after[i]);
  const side = (total: Float64Array): Tree => {
    const self = total.slice();
    for (let i = 1; i < n; i++) self[parent[i]] -= total[i];
    return { size: n, frame, parent, depth, first, next, self, total, count: total, marks: new Map(), groups: [],
      proof: new Map(), order };
  };
  return { ...header, tree: { before: side(before), after: side(after) }, change, factor };
}
