// Draws a call tree on a canvas: only what is wide enough to be seen, and of that only the rows in view.

import { color, Hover, make } from "./dom.js";
import { kinds, shortName } from "./format.js";
import { children, type Tree } from "./tree.js";
import type { Code } from "./unpack.js";

const row = 19; // pixels: a line of 12 pixels' text
const least = 0.6; // pixels below which a frame is not drawn
const onPaper = 690; // pixels: the width of A4 within its margins
const labelled = 24; // pixels from which on a frame has a label

interface Box {
  node: number;
  x: number;
  width: number;
  depth: number; // rows from the top
}

// What the flame graph shows beside the tree.
export interface Highlight {
  match: ((node: number) => boolean) | undefined; // frames to stand out; the others fade
}

// What a flame graph tells its page, and asks it.
export interface Page {
  changed(zoomed: number): void;
  say(text: string): void;
  about(node: number): string[]; // beside its name, a line each
  color?(node: number): string; // a colour of the style sheet; that of the kind of code where it is not given
}

export class Flame {
  readonly element: HTMLElement;
  private readonly canvas = make("canvas", {
    class: "flame-canvas", tabindex: "0", role: "application", "aria-roledescription": "flame graph",
    "aria-label": "Flame graph. Arrow keys go from frame to frame, Enter zooms, Escape zooms out. " +
      "The call tree has the same as a table.",
    "aria-describedby": "flame-now",
  });
  private readonly spacer = make("div", {});
  private readonly hover = new Hover();
  private profile: Code | undefined;
  private tree: Tree | undefined;
  private highlight: Highlight = { match: undefined };
  private boxes: Box[] = [];
  private rows: Box[][] = []; // by depth, from left to right
  private pending = false;
  private printing = false;
  zoomed = 0;
  current = 0;

  constructor(private readonly page: Page) {
    this.element = make("div", { class: "flame-box" }, this.spacer);
    this.spacer.append(this.canvas);
    this.canvas.style.position = "sticky";
    this.canvas.style.top = "0";
    this.element.addEventListener("scroll", () => this.redraw());
    this.canvas.addEventListener("click", (e) => this.onClick(e));
    this.canvas.addEventListener("mousemove", (e) => this.onMove(e));
    this.canvas.addEventListener("mouseleave", () => this.hover.hide());
    this.canvas.addEventListener("keydown", (e) => this.onKey(e));
    new ResizeObserver(() => this.layout()).observe(this.element);
  }

  // show draws a tree; what was zoomed to is looked for in it.
  show(profile: Code, tree: Tree, highlight: Highlight): void {
    const path = this.tree && this.profile === profile ? this.names(this.zoomed) : [];
    this.profile = profile;
    this.tree = tree;
    this.highlight = highlight;
    this.zoomed = this.find(path);
    this.current = this.zoomed;
    this.layout();
    this.page.changed(this.zoomed);
  }

  mark(highlight: Highlight): void {
    this.highlight = highlight;
    this.redraw();
  }

  zoom(node: number): void {
    if (!this.tree) return;
    this.zoomed = node;
    this.current = node;
    this.layout();
    this.page.changed(node);
    this.tell();
  }

  // reveal scrolls to a frame and makes it the current one.
  reveal(node: number): void {
    this.current = node;
    const box = this.boxes.find((b) => b.node === node);
    if (box) this.element.scrollTop = Math.max(0, box.depth * row - this.element.clientHeight / 2);
    this.redraw();
  }

  // goTo makes a frame the current one, and zooms to its caller where it is too narrow to be seen.
  goTo(node: number): void {
    if (!this.boxes.some((b) => b.node === node)) this.zoom((this.tree as Tree).parent[node]);
    this.reveal(node);
    this.canvas.focus({ preventScroll: true });
    this.tell();
  }

  label(node: number): string {
    const t = this.tree as Tree;
    const f = t.frame[node];
    if (f >= 0) return this.profile?.names[this.profile.frames.name[f]] ?? "";
    return node === 0 ? "all" : t.groups[-1 - f];
  }

  path(node: number): number[] {
    const out: number[] = [];
    for (let i = node; i >= 0; i = (this.tree as Tree).parent[i]) out.unshift(i);
    return out;
  }

  // print shows all rows at the width of a sheet, or ends that.
  print(on: boolean): void {
    this.printing = on;
    this.element.style.width = on ? `${onPaper}px` : "";
    this.layout();
  }

  redraw(): void {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
    });
  }

  private names(node: number): number[] {
    return this.path(node).slice(1).map((i) => (this.tree as Tree).frame[i]);
  }

  private find(path: number[]): number {
    const t = this.tree as Tree;
    let node = 0;
    for (const f of path) {
      const down = children(t, node).find((c) => t.frame[c] === f);
      if (down === undefined) return node;
      node = down;
    }
    return node;
  }

  // layout places all frames that are wide enough: the path to the zoomed one over the whole width, and what is below
  // it.
  private layout(): void {
    const t = this.tree;
    const width = this.element.clientWidth;
    if (!t || width === 0) { // it is not in view: what was placed is of another tree
      this.boxes = [];
      this.rows = [];
      return;
    }
    const path = this.path(this.zoomed);
    this.boxes = path.map((node, depth) => ({ node, x: 0, width, depth }));
    const scale = t.total[this.zoomed] > 0 ? width / t.total[this.zoomed] : 0;
    const open: Box[] = [this.boxes[this.boxes.length - 1]];
    for (let b = open.pop(); b; b = open.pop()) {
      let x = b.x;
      for (const c of children(t, b.node, scale > 0 ? least / scale : Infinity)) {
        const box = { node: c, x, width: t.total[c] * scale, depth: b.depth + 1 };
        x += box.width;
        this.boxes.push(box);
        open.push(box);
      }
    }
    this.rows = [];
    for (const b of this.boxes) (this.rows[b.depth] ??= []).push(b);
    for (const r of this.rows) r.sort((a, b) => a.x - b.x);
    const height = this.rows.length * row;
    this.spacer.style.height = `${height}px`;
    this.draw();
  }

  private draw(): void {
    const { profile: p, tree: t } = this;
    if (!p || !t) return;
    const width = this.element.clientWidth;
    const most = this.printing ? Infinity : Math.max(row, Math.round(innerHeight * 0.7));
    const height = Math.min(this.rows.length * row, most);
    const ratio = devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const g = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    g.setTransform(ratio, 0, 0, ratio, 0, -this.element.scrollTop * ratio);
    g.clearRect(0, this.element.scrollTop, width, height);
    g.font = '12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';
    g.textBaseline = "middle";
    const paint = new Paint(g);
    const firstRow = Math.floor(this.element.scrollTop / row);
    const lastRow = Math.ceil((this.element.scrollTop + height) / row);
    for (const r of this.rows.slice(firstRow, lastRow + 1)) for (const b of r) this.drawBox(g, paint, b, p, t);
  }

  private drawBox(g: CanvasRenderingContext2D, paint: Paint, b: Box, p: Code, t: Tree): void {
    const f = t.frame[b.node];
    const kind = f >= 0 ? kinds[p.frames.kind[f]] : undefined;
    const y = b.depth * row;
    const w = Math.max(b.width - (b.width > 3 ? 1 : 0), 0.5);
    const marked = t.marks.has(b.node);
    const faded = this.highlight.match !== undefined && !this.highlight.match(b.node);
    g.globalAlpha = faded ? 0.35 : b.depth < this.path(this.zoomed).length - 1 ? 0.6 : 1;
    g.fillStyle = paint.of(this.page.color?.(b.node) ?? kind?.color ?? "--group");
    g.fillRect(b.x, y, w, row - 1);
    if (marked || (this.highlight.match !== undefined && !faded)) {
      g.fillStyle = paint.of("--mark");
      g.fillRect(b.x, y + row - 4, w, 3);
      if (marked && w > 6) g.fillRect(b.x, y, 3, row - 1);
    }
    if (b.node === this.current && document.activeElement === this.canvas) {
      g.strokeStyle = paint.of("--focus");
      g.lineWidth = 2;
      g.strokeRect(b.x + 1, y + 1, Math.max(w - 2, 1), row - 3);
    }
    if (faded) g.globalAlpha = 0.75; // what is around what stands out can be read
    if (w >= labelled) this.drawLabel(g, paint, b, (marked ? "◆ " : "") + (kind ? `${kind.letter} ` : ""), w, y);
    g.globalAlpha = 1;
  }

  private drawLabel(g: CanvasRenderingContext2D, paint: Paint, b: Box, before: string, w: number, y: number): void {
    const name = this.label(b.node);
    const room = w - 8;
    let text = before + name;
    if (paint.width(text) > room) text = before + shortName(name);
    if (paint.width(text) > room) {
      const fit = Math.floor((text.length * room) / paint.width(text)) - 1;
      if (fit < 3) return;
      text = `${text.slice(0, fit)}…`;
    }
    g.fillStyle = paint.of("--ink");
    g.fillText(text, b.x + 5, y + row / 2, room + 3);
  }

  private at(e: MouseEvent): Box | undefined {
    const r = this.canvas.getBoundingClientRect();
    const x = e.clientX - r.left;
    const line = this.rows[Math.floor((e.clientY - r.top + this.element.scrollTop) / row)];
    return line?.find((b) => x >= b.x && x < b.x + Math.max(b.width, 1));
  }

  private onClick(e: MouseEvent): void {
    const b = this.at(e);
    this.canvas.focus({ preventScroll: true });
    if (b) this.zoom(b.node);
  }

  private onMove(e: MouseEvent): void {
    const b = this.at(e);
    this.canvas.style.cursor = b ? "pointer" : "default";
    if (b) this.hover.show(e.clientX, e.clientY, this.about(b.node));
    else this.hover.hide();
  }

  // about says all that is known of a frame.
  about(node: number): string {
    return [this.label(node), ...this.page.about(node)].join("\n");
  }

  // crumbs lists the calls that lead to a node, each to zoom to.
  crumbs(into: HTMLElement, node: number): void {
    into.replaceChildren();
    const path = node === 0 ? [] : this.path(node);
    for (const n of path.length > 8 ? [0, ...path.slice(-7)] : path) {
      const b = make("button", { type: "button" }, this.label(n));
      b.addEventListener("click", () => this.zoom(n));
      into.append(b, " ");
    }
  }

  private tell(): void {
    this.page.say(this.about(this.current).replaceAll("\n", ". "));
  }

  private onKey(e: KeyboardEvent): void {
    const t = this.tree;
    if (!t || e.ctrlKey || e.altKey || e.metaKey) return;
    const line = this.rows.find((r) => r.some((b) => b.node === this.current)) ?? [];
    const i = line.findIndex((b) => b.node === this.current);
    const to: Record<string, () => number | undefined> = {
      ArrowDown: () => children(t, this.current)[0],
      ArrowUp: () => (this.current === 0 ? undefined : t.parent[this.current]),
      ArrowLeft: () => line[i - 1]?.node,
      ArrowRight: () => line[i + 1]?.node,
      Home: () => 0,
    };
    if (to[e.key]) {
      const next = to[e.key]();
      if (next !== undefined) this.reveal(next);
      this.tell();
    } else if (e.key === "Enter" || e.key === " ") this.zoom(this.current);
    else if (e.key === "Escape" || e.key === "Backspace") this.zoom(this.zoomed === 0 ? 0 : t.parent[this.zoomed]);
    else return;
    e.preventDefault();
  }
}

// Paint keeps colours and widths of one drawing: both are slow to find.
class Paint {
  private readonly colors = new Map<string, string>();
  private readonly letter: number;

  constructor(private readonly g: CanvasRenderingContext2D) {
    this.letter = g.measureText("n").width;
  }

  of(name: string): string {
    let c = this.colors.get(name);
    if (c === undefined) {
      c = color(name);
      this.colors.set(name, c);
    }
    return c;
  }

  // width measures only what may or may not fit.
  width(text: string): number {
    return text.length > 400 ? text.length * this.letter : this.g.measureText(text).width;
  }
}
