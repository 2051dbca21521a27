// Reads what pack in internal/report/html/profile.go writes: a profile in columns of numbers.

const version = 2;

export interface Thread {
  name: string;
  id: number;
  pool: string;
  target: boolean;
}

interface Mark {
  finding: number;
  frames: number[];
  places: [number, number][];
  stacks: number[];
}

// Code is the functions that a graph shows, and what its values are.
export interface Code {
  unit: string; // ns, B or samples
  names: string[];
  modules: string[];
  frames: { name: number[]; module: number[]; line: number[]; kind: number[]; owner: number[] };
}

interface Header extends Code {
  version: number;
  event: string;
  engine: string;
  interval: number;
  duration: number;
  lost: number;
  bucket: number;
  scale: number;
  classes: string[];
  threads: Thread[];
  marks: Mark[];
  stacks: number;
  samples: number;
}

// A Profile is sampled stacks. Stack i is frames[start[i]] to frames[start[i+1]], the outermost call first. Samples are
// in the order of stacks; thread is -1 where it is unknown.
export interface Profile extends Header {
  start: Int32Array;
  calls: Int32Array;
  fresh: number; // calls that differ from those of the stack before: a tree of all stacks has no more nodes
  stack: Int32Array;
  thread: Int32Array;
  at: Int32Array;
  state: Uint8Array;
  class: Int32Array;
  count: Float64Array;
  value: Float64Array;
  marked: Map<number, [number, number][]>; // by stack: depth and finding
  markedFrames: Map<number, number[]>; // by frame: findings
}

// split gives the header and what follows it.
export function split<H>(data: ArrayBuffer): [H, Cursor] {
  const length = new DataView(data).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length))) as H;
  return [header, new Cursor(new Uint8Array(data, 4 + length))];
}

class Cursor {
  private at = 0;
  constructor(private readonly bytes: Uint8Array) {}

  // next gives the next number. Beyond 2^53 it is not exact, which 104 days of nanoseconds are not.
  next(): number {
    const first = this.bytes[this.at];
    if (first < 0x80) { // most are one byte
      this.at++;
      return first;
    }
    let n = 0;
    let factor = 1;
    for (;;) {
      const b = this.bytes[this.at++];
      if (b === undefined) throw new Error("the profile is cut off");
      n += (b & 0x7f) * factor;
      if (b < 0x80) return n;
      factor *= 128;
    }
  }

  // column gives the next n numbers. Int32Array.from with a function takes ten times as long.
  column(n: number): Int32Array {
    const out = new Int32Array(n);
    for (let i = 0; i < n; i++) out[i] = this.next();
    return out;
  }
}

// unpack reads a profile. It throws when the data is of another version or cut off.
export function unpack(data: ArrayBuffer): Profile {
  const [header, c] = split<Header>(data);
  if (header.version !== version) throw new Error(
    `the profile is of version ${header.version}, this page reads ${version}`);
  const { start, calls, same, fresh } = readStacks(c, header.stacks, header.frames.name.length);
  const n = header.samples;
  const large = () => {
    const out = new Float64Array(n);
    for (let i = 0; i < n; i++) out[i] = c.next();
    return out;
  };
  const stack = c.column(n);
  for (let i = 1; i < n; i++) stack[i] += stack[i - 1];
  const thread = c.column(n).map((x) => x - 1);
  const at = c.column(n);
  const state = new Uint8Array(c.column(n));
  const kind = c.column(n);
  const count = large();
  const value = header.scale > 0 ? large().map((x) => x * header.scale) : count.map((x) => x * header.interval);
  const marks = readMarks(header.marks, same);
  return { ...header, start, calls, fresh, stack, thread, at, state, class: kind, count, value, ...marks };
}

function readStacks(c: Cursor, n: number, frames: number) {
  const same = c.column(n);
  const fresh = c.column(n);
  const start = new Int32Array(n + 1);
  let all = 0;
  for (let i = 0; i < n; i++) {
    start[i + 1] = start[i] + same[i] + fresh[i];
    all += fresh[i];
  }
  const places = c.column(all);
  const calls = new Int32Array(start[n]);
  // by caller, the one called last first; at the end of no caller
  const callees: number[][] = Array.from({ length: frames + 1 }, () => []);
  let known = 0;
  let p = 0;
  for (let i = 0; i < n; i++) {
    if (same[i] > 0) calls.copyWithin(start[i], start[i - 1], start[i - 1] + same[i]);
    for (let j = start[i] + same[i]; j < start[i + 1]; j++) {
      const list = callees[j > start[i] ? calls[j - 1] : frames];
      const place = places[p++];
      if (place === 0) {
        const frame = c.next();
        list.unshift(frame === 0 ? known++ : frame - 1);
      } else if (place > 1) {
        const called = list[place - 1];
        for (let k = place - 1; k > 0; k--) list[k] = list[k - 1];
        list[0] = called;
      }
      calls[j] = list[0];
    }
  }
  return { start, calls, same, fresh: all };
}

// readMarks gives each stack its marked calls: a place is of all stacks that are equal up to it, which lie side by
// side.
function readMarks(marks: Mark[], same: Int32Array) {
  const marked = new Map<number, [number, number][]>();
  const markedFrames = new Map<number, number[]>();
  const put = (stack: number, depth: number, finding: number) => {
    const list = marked.get(stack);
    if (list) list.push([depth, finding]);
    else marked.set(stack, [[depth, finding]]);
  };
  for (const m of marks) {
    for (const f of m.frames) markedFrames.set(f, [...(markedFrames.get(f) ?? []), m.finding]);
    for (const [stack, depth] of m.places) {
      put(stack, depth, m.finding);
      for (let i = stack; i > 0 && same[i] > depth; i--) put(i - 1, depth, m.finding);
      for (let i = stack + 1; i < same.length && same[i] > depth; i++) put(i, depth, m.finding);
    }
  }
  return { marked, markedFrames };
}
