// Packs profiles for tests, as pack of internal/report/html/profile.go does.

export interface Plain {
  version?: number;
  event?: string;
  names: string[];
  interval: number;
  scale: number;
  bucket: number;
  stacks: number[][];
  samples: {
    stack: number; thread: number; at: number; state?: number; class?: number; count: number; value?: number;
  }[];
  marks: { finding: number; frames: number[]; places: [number, number][]; stacks?: number[] }[];
  frames?: { name: number[]; line: number[]; kind: number[] }; // one for each name, where none are given
  threads?: { name: string; id: number; pool: string; target: boolean }[];
}

export function pack(p: Plain): ArrayBuffer {
  const name = p.frames?.name ?? p.names.map((_n, i) => i);
  const zeros = name.map(() => 0);
  const header = {
    version: p.version ?? 2, event: p.event ?? "cpu", unit: "ns", engine: "test", interval: p.interval, duration: 10,
      lost: 0, bucket: p.bucket, scale: p.scale,
    names: p.names, modules: [""], classes: [""], marks: p.marks.map((m) => ({ stacks: [], ...m })),
      stacks: p.stacks.length, samples: p.samples.length,
    frames: { name, module: zeros, line: p.frames?.line ?? zeros, kind: p.frames?.kind ?? zeros,
      owner: name.map(() => 1) },
    threads: p.threads ?? [{ name: "t", id: 1, pool: "t", target: true }],
  };
  const columns: number[][] = Array.from({ length: 11 }, () => []);
  const callees: number[][] = [...name, 0].map(() => []);
  let known = 0;
  let before: number[] = [];
  for (const s of p.stacks) {
    let same = 0;
    while (same < s.length && s[same] === before[same]) same++;
    columns[0].push(same);
    columns[1].push(s.length - same);
    for (let i = same; i < s.length; i++) {
      const list = callees[i > 0 ? s[i - 1] : name.length];
      const at = list.indexOf(s[i]);
      columns[2].push(at + 1);
      if (at >= 0) list.splice(at, 1);
      else columns[3].push(s[i] === known ? 0 : s[i] + 1);
      if (s[i] === known) known++;
      list.unshift(s[i]);
    }
    before = s;
  }
  let last = 0;
  for (const s of p.samples) {
    columns[4].push(s.stack - last);
    last = s.stack;
    columns[5].push(s.thread + 1);
    columns[6].push(s.at);
    columns[7].push(s.state ?? 0);
    columns[8].push(s.class ?? 0);
    columns[9].push(s.count);
    if (p.scale > 0) columns[10].push(s.value ?? 0);
  }
  return packed(header, columns);
}

// packed puts a header before columns of numbers.
export function packed(header: object, columns: number[][]): ArrayBuffer {
  const head = new TextEncoder().encode(JSON.stringify(header));
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, head.length, true);
  return Uint8Array.from([...length, ...head, ...columns.flat().flatMap(varint)]).buffer;
}

function varint(n: number): number[] {
  const out: number[] = [];
  for (; n >= 128; n = Math.floor(n / 128)) out.push((n % 128) | 128);
  return [...out, n];
}
