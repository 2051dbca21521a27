// Draws the charts over the window with uPlot, on one time axis: what is selected in one is selected in all.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { ChartData, Plot } from "./data.js";
import { color, Hover, make } from "./dom.js";
import { quantity } from "./format.js";
import type { Range } from "./range.js";

const height = 190; // pixels, of a chart with lines
const colors = 8; // --plot1 to --plot8

type Column = (number | null)[];

const onPaper = { width: 312, height: 150 }; // pixels: two columns of charts on A4, within its margins

export interface Charts {
  redraw(): void;
  print(on: boolean): void; // sizes the charts for paper, or back: no layout tells of it before it is printed
}

export function drawCharts(data: ChartData, range: Range): Charts {
  const plots: uPlot[] = [];
  const places: HTMLElement[] = [];
  const heights: number[] = [];
  let printing = false;
  const resize = (i: number) => plots[i].setSize(
    printing ? { ...onPaper, height: Math.min(onPaper.height, heights[i]) } : { width: Math.max(places[i].clientWidth,
      200), height: heights[i] },
  );
  for (const c of data.charts) {
    const place = document.querySelector<HTMLElement>(`[data-chart="${c.id}"]`);
    if (!place || !c.times || c.times.length === 0) continue;
    const u = c.heat ? heatMap(c, place, data.duration) : lines(c, place, data.duration);
    const i = plots.push(u) - 1;
    places.push(place);
    heights.push(u.height);
    selectable(u, range);
    new ResizeObserver(() => resize(i)).observe(place);
  }
  const showRange = () => {
    for (const u of plots) {
      const left = range.all ? 0 : u.valToPos(range.from, "x");
      const width = range.all ? 0 : u.valToPos(range.to, "x") - left;
      u.setSelect({ left, width, top: 0, height: u.over.clientHeight }, false);
    }
  };
  range.listen(showRange);
  return {
    redraw: () => plots.forEach((u) => u.redraw(false)),
    print: (on) => {
      printing = on;
      plots.forEach((_u, i) => resize(i));
    },
  };
}

function selectable(u: uPlot, range: Range): void {
  u.over.addEventListener("mouseup", () => {
    if (u.select.width >= 4) range.set(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
    else if (!range.all) range.clear();
  });
}

function axes(unit: string): uPlot.Axis[] {
  const look = { stroke: () => color("--quiet"), font: "12px system-ui, sans-serif",
    grid: { stroke: () => color("--grid"), width: 1 }, ticks: { show: false } };
  return [
    { ...look, values: (_u, ticks) => ticks.map((t) => `${t} s`), size: 26 },
    {
      ...look, values: (_u, ticks) => ticks.map((t) => (t === null ? "" : quantity(t, unit))), size: axisSize,
      ...(unit === "B" ? { incrs: powersOfTwo } : {}),
    },
  ];
}

// Bytes are told in KiB, MiB and GiB: so are the steps of their axis.
const powersOfTwo = Array.from({ length: 50 }, (_x, i) => 2 ** i);

// axisSize makes room for the longest number.
function axisSize(_u: uPlot, values: string[] | null): number {
  return 18 + 6.6 * Math.max(4, ...(values ?? []).map((v) => v.length));
}

function common(c: Plot, place: HTMLElement, duration: number): Omit<uPlot.Options, "series"> {
  return {
    width: Math.max(place.clientWidth, 200),
    height,
    legend: { show: false },
    cursor: {
      sync: { key: "window", setSeries: false }, drag: { x: true, y: false, setScale: false }, y: false,
      points: { show: !c.heat },
    },
    scales: { x: { time: false, range: [0, duration] } },
    axes: axes(c.unit),
  };
}

// lines draws a chart of lines, or of areas that add up.
function lines(c: Plot, place: HTMLElement, duration: number): uPlot {
  const stroke = c.lines.map((l, i) => () => (l.limit ? color("--critical") : color(`--plot${(i % colors) + 1}`)));
  const shown = c.lines.map(() => true);
  const series: uPlot.Series[] = c.lines.map((l, i) => ({
    label: l.label, stroke: stroke[i], width: l.marked ? 3 : l.limit ? 2 : 1.5, spanGaps: true,
    ...(l.limit ? { dash: [6, 4] } : {}),
    ...(c.stacked && !l.limit ? { fill: () => translucent(stroke[i]()) } : {}),
    ...(l.limit ? {} : { paths: (uPlot.paths.stepped as (o: object) => uPlot.Series.PathBuilder)({ align: -1 }) }),
    points: { show: (c.times as number[]).length < 3 },
  }));
  const keys = keyList(c, stroke, (i) => {
    shown[i] = !shown[i];
    u.setSeries(i + 1, { show: shown[i] }, false);
    u.delBand(null);
    for (const b of bands(c, shown)) u.addBand(b);
    u.setData(columns(c, shown) as uPlot.AlignedData);
    return shown[i];
  });
  const u: uPlot = new uPlot({
    ...common(c, place, duration),
    scales: { x: { time: false, range: [0, duration] }, y: { range: (_u, _min, max) => [0, top(c, max)] } },
    series: [{}, ...series],
    bands: bands(c, shown),
    hooks: { setCursor: [(p) => showValues(c, keys, p)] },
  }, columns(c, shown) as uPlot.AlignedData, place);
  place.append(keys.element);
  return u;
}

function top(c: Plot, max: number): number {
  if (c.unit === "ratio" && c.stacked) return 1;
  return max > 0 ? max * 1.08 : 1;
}

function translucent(rgb: string): string {
  return rgb.replace(/^rgb\((.*)\)$/, "rgba($1, 0.35)");
}

// columns gives times and lines as uPlot wants them. Stacked, a line is drawn on top of those before it. A value is
// that of the interval before its time: the first one's begins as much earlier as the second one's.
function columns(c: Plot, shown: boolean[]): Column[] {
  const times = c.times as number[];
  const sums = new Array<number>(times.length).fill(0);
  const values = c.lines.map((l, i) => {
    if (!c.stacked || l.limit || !shown[i]) return l.values;
    return l.values.map((v, k) => (v === null ? null : (sums[k] += v)));
  });
  if (times.length < 2) return [times, ...values];
  return [[Math.max(0, 2 * times[0] - times[1]), ...times], ...values.map((v) => [v[0], ...v])];
}

// bands keep the area of each line above that of the line below it.
function bands(c: Plot, shown: boolean[]): uPlot.Band[] {
  const stacked = c.stacked ? c.lines.map((_l, i) => i).filter((i) => shown[i] && !c.lines[i].limit) : [];
  return stacked.slice(1).map((i, k) => ({ series: [i + 1, stacked[k] + 1] }));
}

interface Keys {
  element: HTMLElement;
  values: HTMLElement[];
  time: HTMLElement;
}

function keyList(c: Plot, stroke: (() => string)[], toggle: (i: number) => boolean): Keys {
  const element = make("ul", { class: "keys" });
  const time = make("li", { class: "quiet" });
  const values = c.lines.map((l, i) => {
    const value = make("span", {});
    const swatch = make("span", { class: l.limit ? "key limit" : "key" });
    const paint = () => (l.limit ? (swatch.style.borderColor = stroke[i]()) : (swatch.style.background = stroke[i]()));
    paint();
    addEventListener("themed", paint);
    const button = make("button", { type: "button", "aria-pressed": "true", title: "show or hide",
      class: l.marked ? "key-line" : undefined }, swatch, l.label);
    button.addEventListener("click", () => button.setAttribute("aria-pressed", String(toggle(i))));
    element.append(make("li", {}, button, " ", value));
    return value;
  });
  element.append(time);
  return { element, values, time };
}

function showValues(c: Plot, keys: Keys, u: uPlot): void {
  const times = c.times as number[];
  const x = (u.cursor.left ?? -1) >= 0 ? u.posToVal(u.cursor.left as number, "x") : Infinity;
  const found = times.findIndex((t) => t >= x);
  const at = found >= 0 ? found : x === Infinity ? null : times.length - 1;
  keys.time.textContent = at === null ? "" : `at ${times[at].toFixed(1)} s`;
  c.lines.forEach((l, i) => {
    const v = at === null ? null : l.values[at];
    keys.values[i].textContent = v === null || v === undefined ? "" : quantity(v, c.unit);
  });
}

// heatMap draws a row of cells for each line, from light to the colour of heat.
function heatMap(c: Plot, place: HTMLElement, duration: number): uPlot {
  const n = c.lines.length;
  const hover = new Hover();
  const times = c.times as number[];
  const step = Math.max(1, Math.ceil(n / 16)); // labels of rows
  const u = new uPlot({
    ...common(c, place, duration),
    height: Math.min(420, Math.max(110, 40 + n * (n <= 16 ? 22 : 8))),
    scales: { x: { time: false, range: [0, duration] }, y: { range: [0, n], dir: -1 } },
    axes: [axes("s")[0], {
      ...axes("")[1], grid: { show: false }, size: 62, splits: () => c.lines.map((_l, i) => i + 0.5).filter(
        (_x, i) => i % step === 0),
      values: (_u, splits) => splits.map((s) => c.lines[Math.floor(s)]?.label ?? ""),
    }],
    series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
    hooks: { draw: [(p) => drawCells(c, p)] },
  }, [times, times.map(() => 0)], place);
  u.over.addEventListener("mousemove", (e) => {
    const r = u.over.getBoundingClientRect();
    const line = c.lines[Math.floor(u.posToVal(e.clientY - r.top, "y"))];
    const at = times.findIndex((t) => t >= u.posToVal(e.clientX - r.left, "x"));
    const v = line?.values[at];
    if (line && v !== null && v !== undefined) hover.show(e.clientX, e.clientY,
      `${line.label}: ${quantity(v, c.unit)}\nup to ${times[at].toFixed(1)} s`);
    else hover.hide();
  });
  u.over.addEventListener("mouseleave", () => hover.hide());
  place.append(heatKey());
  return u;
}

function heatKey(): HTMLElement {
  const list = make("ul", { class: "keys" });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const swatch = make("span", { class: "key" });
    const paint = () => (swatch.style.background = heat()(share));
    paint();
    addEventListener("themed", paint);
    list.append(make("li", {}, swatch, quantity(share, "ratio")));
  }
  return list;
}

// heat gives the colour of a share: its hue says where, a number at the pointer how much.
function heat(): (share: number) => string {
  const numbers = (name: string) => (color(name).match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
  const [cold, hot] = [numbers("--heat0"), numbers("--heat1")];
  return (share) => {
    const s = Math.min(1, Math.max(0, share));
    return `rgb(${cold.map((c, i) => Math.round(c + (hot[i] - c) * s)).join(" ")})`;
  };
}

function drawCells(c: Plot, u: uPlot): void {
  const shade = heat();
  const times = c.times as number[];
  const g = u.ctx;
  g.save();
  c.lines.forEach((l, i) => {
    const y0 = u.valToPos(i, "y", true);
    const y1 = u.valToPos(i + 1, "y", true);
    const gap = y1 - y0 > 6 ? 1 : 0;
    l.values.forEach((v, k) => {
      if (v === null) return;
      const x0 = u.valToPos(k > 0 ? times[k - 1] : Math.max(0, times[0] - (times[1] - times[0] || times[0])), "x",
        true);
      g.fillStyle = shade(v);
      g.fillRect(x0, y0, u.valToPos(times[k], "x", true) - x0 - 1, y1 - y0 - gap);
    });
    if (l.marked) {
      g.strokeStyle = color("--mark");
      g.lineWidth = 3;
      g.strokeRect(u.bbox.left + 1, y0, u.bbox.width - 2, y1 - y0 - 1);
    }
  });
  g.restore();
}
