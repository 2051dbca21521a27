// The differential flame graph of a comparison: one tree with the samples of both recordings, which the reader sees as
// it was before or after.

import { block } from "./data.js";
import { make } from "./dom.js";
import { Flame } from "./flame.js";
import { kinds, matcher, percent } from "./format.js";
import { type Tree, weight } from "./tree.js";
import { type Diff, unpackDiff } from "./unpackdiff.js";

const colors = ["--shrank3", "--shrank2", "--shrank1", "--same", "--grew1", "--grew2", "--grew3"];

type Side = "before" | "after";

// DiffPanel shows a diff.
class DiffPanel {
  private side: Side = "after";
  private readonly flame: Flame;
  private readonly sides = new Map<Side, HTMLButtonElement>();
  private readonly search = make("input", { type: "search", placeholder: "name, or /expression/", spellcheck: "false",
    id: "flame-search" });
  private readonly found = make("output", { class: "found", id: "flame-found" });
  private readonly crumbs = make("p", { class: "crumbs" });
  private readonly now = make("p", { class: "over", "aria-live": "polite", id: "flame-now" });

  constructor(place: HTMLElement, private readonly diff: Diff) {
    this.flame = new Flame({
      changed: (node) => this.flame.crumbs(this.crumbs, node), say: (text) => (this.now.textContent = text),
      about: (node) => this.about(node), color: (node) => colors[diff.change[node] + 3],
    });
    const sides = make("div", { class: "tabs" });
    for (const [side, title] of [["after", "As it is after: what grew is wide"],
      ["before", "As it was before: what is gone is there"]] as const) {
      const b = make("button", { type: "button", id: `side-${side}` }, title);
      b.addEventListener("click", () => this.show(side));
      this.sides.set(side, b);
      sides.append(b);
    }
    const all = make("button", { type: "button", id: "flame-reset" }, "Zoom out");
    all.addEventListener("click", () => this.flame.zoom(0));
    this.search.addEventListener("input", () => this.choose());
    this.search.addEventListener("keydown", (e) => {
      if (e.key === "Enter") this.reveal();
    });
    place.append(sides, make("div", { class: "tools" }, make("label", {}, "Search ", this.search), this.found, all),
      this.crumbs, this.flame.element, this.now);
    for (const b of document.querySelectorAll<HTMLButtonElement>("button[data-method]")) {
      b.addEventListener("click", () => {
        this.search.value = b.dataset["method"] ?? "";
        this.choose();
        this.reveal();
        place.scrollIntoView();
      });
    }
    this.show("after");
  }

  private show(side: Side): void {
    this.side = side;
    for (const [s, b] of this.sides) b.setAttribute("aria-pressed", String(s === side));
    this.flame.show(this.diff, this.diff.tree[side], { match: undefined });
    this.choose();
  }

  private match(): ((node: number) => boolean) | undefined {
    const wanted = matcher(this.search.value);
    if (!wanted) return undefined;
    const hit = this.diff.names.map(wanted);
    return (n) => this.diff.tree.after.frame[n] >= 0 && hit[this.diff.frames.name[this.diff.tree.after.frame[n]]];
  }

  // choose tells the share of what is searched for, before and after.
  private choose(): void {
    const match = this.match();
    this.flame.mark({ match });
    if (!match) {
      this.found.textContent = "";
      return;
    }
    const share = (t: Tree) => percent(t.total[0] > 0 ? weight(t, match).total / t.total[0] : 0);
    const places = weight(this.diff.tree.after, match).nodes;
    this.found.textContent = places === 0 ? "nothing found"
      : `found: ${share(this.diff.tree.before)} → ${share(this.diff.tree.after)} in ${places} ${places === 1 ? "place" : "places"}`;
  }

  private reveal(): void {
    const match = this.match();
    const widest = match ? weight(this.diff.tree[this.side], match).widest : -1;
    if (widest >= 0) this.flame.reveal(widest);
  }

  private about(node: number): string[] {
    const { before, after } = this.diff.tree;
    const f = after.frame[node];
    const share = (t: Tree) => percent(t.total[0] > 0 ? t.total[node] / t.total[0] : 0);
    const change = this.diff.change[node] === 0 ? "no more than chance" : `${Number(this.diff.factor[node].toPrecision(3))} times as much`;
    return [
      ...(f >= 0 ? [kinds[this.diff.frames.kind[f]].words] : []),
      `${share(before)} → ${share(after)} of the samples (${before.total[node]} → ${after.total[node]})`,
      ...(node === 0 ? [] : [change]),
    ];
  }

  redraw(): void {
    this.flame.redraw();
  }

  print(on: boolean): void {
    this.flame.print(on);
  }
}

// startDiff draws the graph, if the page has one.
export async function startDiff(): Promise<{ redraw(): void; print(on: boolean): void } | undefined> {
  const place = document.getElementById("diff");
  if (!place) return undefined;
  return new DiffPanel(place, unpackDiff(await block("diff")));
}

