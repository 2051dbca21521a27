// Numbers and names as a person reads them. Units are those of internal/recording/metric/quantity.

const steps: [number, string][] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
const binary: [number, string][] = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];

// digits gives three significant digits and no more zeros than there need be.
export function digits(n: number): string {
  if (n === 0) return "0";
  if (Math.abs(n) >= 100) return Math.round(n).toString();
  return Number(n.toPrecision(3)).toString();
}

function seconds(n: number): string {
  const a = Math.abs(n);
  if (a === 0 || a >= 1) return `${digits(n)} s`;
  if (a >= 1e-3) return `${digits(n * 1e3)} ms`;
  return `${digits(n * 1e6)} µs`;
}

// quantity gives a number with its unit.
export function quantity(n: number, unit: string): string {
  switch (unit) {
    case "ratio":
      return percent(n);
    case "s":
      return seconds(n);
    case "ns":
      return seconds(n / 1e9);
    case "B": {
      for (const [size, name] of binary) if (Math.abs(n) >= size) return `${digits(n / size)} ${name}`;
      return `${digits(n)} B`;
    }
  }
  for (const [size, name] of steps) if (Math.abs(n) >= size * 10) return `${digits(n / size)}${name} ${unit}`.trim();
  return `${digits(n)} ${unit}`.trim();
}

export function percent(share: number): string {
  const p = share * 100;
  return `${p !== 0 && Math.abs(p) < 10 ? Number(p.toPrecision(2)) : Math.round(p * 10) / 10} %`;
}

// shortName takes the package off the name of a Java method, the path off that of a Go function, and the parameters off
// a C++ function.
export function shortName(name: string): string {
  const java = /^(?:[\w$]+[./])+([\w$]+\.[\w$<>]+)$/.exec(name);
  if (java) return java[1];
  const path = /^[^\s(<[]*\//.exec(name)?.[0] ?? "";
  if (path !== "" || /^[\w.]+\.\(\*?\w+\)\./.test(name)) return name.slice(path.length);
  const i = name.indexOf("(");
  return i > 0 ? name.slice(0, i) : name;
}

// A matcher tells whether a text is meant: by a part of it in any case, or by /a regular expression/.
export function matcher(query: string): ((text: string) => boolean) | undefined {
  const q = query.trim();
  if (q === "") return undefined;
  const re = /^\/(.+)\/(i?)$/.exec(q);
  if (re) {
    try {
      const r = new RegExp(re[1], re[2]);
      return (text) => r.test(text);
    } catch {
      return () => false;
    }
  }
  const low = q.toLowerCase();
  return (text) => text.toLowerCase().includes(low);
}

// The kinds of code (stacks.Kind), by number: the letter that marks a frame, the style's colour, and words.
export const kinds = [
  { letter: "?", color: "--unknown", words: "without a symbol" },
  { letter: "0", color: "--interpreted", words: "Java, interpreted" },
  { letter: "j", color: "--compiled", words: "compiled (JIT)" },
  { letter: "i", color: "--inlined", words: "inlined" },
  { letter: "n", color: "--native", words: "native" },
  { letter: "k", color: "--kernel", words: "kernel" },
];

// The owners of code (hotcode.Owner), by number; 0 is none.
export const owners = ["", "application", "libraries", "JDK", "native and runtime", "kernel"];
