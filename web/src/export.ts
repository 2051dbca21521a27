// Writes stacks for other programs: collapsed lines (flamegraph.pl), speedscope, and pprof.

// A Path is a stack, the outermost call first, and what was sampled in its last call itself.
export interface Path {
  names: string[];
  value: number;
  count: number; // samples, with all below: not of the stack alone
}

// collapsed gives lines of "main;work;leaf 7". A semicolon in a name would be read as two calls.
export function collapsed(paths: Path[]): string {
  return paths.map((p) => `${p.names.map((n) => n.replace(/[;\n\r]/g, ",")).join(";")} ${Math.round(p.value)}\n`).join("");
}

// speedscope gives a file of https://www.speedscope.app/file-format-schema.json.
export function speedscope(paths: Path[], name: string, unit: string): string {
  const frames: { name: string }[] = [];
  const index = new Map<string, number>();
  const number = (n: string) => {
    const known = index.get(n) ?? frames.length;
    if (known === frames.length) frames.push({ name: n });
    index.set(n, known);
    return known;
  };
  const samples = paths.map((p) => p.names.map(number));
  const weights = paths.map((p) => p.value);
  return JSON.stringify({
    $schema: "https://www.speedscope.app/file-format-schema.json", exporter: "perfdoctor", name, shared: { frames },
    profiles: [{ type: "sampled", name, unit: { ns: "nanoseconds", B: "bytes" }[unit] ?? "none", startValue: 0,
      endValue: weights.reduce((a, b) => a + b, 0), samples, weights }],
  });
}

// Fields of github.com/google/pprof/blob/main/proto/profile.proto.
const field = { sampleType: 1, sample: 2, location: 4, functions: 5, strings: 6 };

// pprof gives a profile.proto in gzip: each function has one location.
export async function pprof(paths: Path[], name: string, unit: string): Promise<Blob> {
  const strings = [""];
  const index = new Map([["", 0]]);
  const number = (s: string) => {
    const known = index.get(s) ?? strings.length;
    if (known === strings.length) strings.push(s);
    index.set(s, known);
    return known;
  };
  const out: number[] = [];
  message(out, field.sampleType, [[1, number(name)], [2, number({ ns: "nanoseconds", B: "bytes" }[unit] ?? "count")]]);
  const functions = new Map<string, number>(); // ids are from 1
  const id = (n: string) => {
    const known = functions.get(n) ?? functions.size + 1;
    functions.set(n, known);
    return known;
  };
  for (const p of paths) {
    const leafFirst = p.names.map(id).reverse();
    message(out, field.sample, [...leafFirst.map((f): [number, number] => [1, f]), [2, Math.round(p.value)]]);
  }
  for (const [n, f] of functions) {
    const line: number[] = [];
    message(line, 4, [[1, f]]); // Location.line, whose function_id is 1
    bytes(out, field.location, [...varint(1 << 3), ...varint(f), ...line]);
    message(out, field.functions, [[1, f], [2, number(n)]]);
  }
  for (const s of strings) bytes(out, field.strings, [...new TextEncoder().encode(s)]);
  const gzip = new Blob([Uint8Array.from(out)]).stream().pipeThrough(new CompressionStream("gzip"));
  return await new Response(gzip).blob();
}

// message appends a message of numbers.
function message(out: number[], of: number, numbers: [number, number][]): void {
  bytes(out, of, numbers.flatMap(([n, value]) => [...varint(n << 3), ...varint(value)]));
}

function bytes(out: number[], of: number, content: number[]): void {
  for (const list of [varint((of << 3) | 2), varint(content.length), content]) for (const b of list) out.push(b);
}

function varint(n: number): number[] {
  const out: number[] = [];
  for (; n >= 128; n = Math.floor(n / 128)) out.push((n % 128) | 128);
  return [...out, n];
}

// save offers a file to the person who reads.
export function save(name: string, parts: BlobPart[]): void {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(new Blob(parts));
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 60_000); // the browser has read it by then
}
