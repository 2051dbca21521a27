// The flame graphs' part of the page: which profile, which of its samples, and in which form.

import type { ChartData } from "./data.js";
import { profile as readProfile } from "./data.js";
import { make } from "./dom.js";
import { collapsed, type Path, pprof, save, speedscope } from "./export.js";
import { Flame } from "./flame.js";
import { kinds, matcher, owners, percent, quantity } from "./format.js";
import type { Range } from "./range.js";
import { buckets, children, type Group, hits, idle, spots, type Tree, treeOf, type View, weight } from "./tree.js";
import type { Profile } from "./unpack.js";

type Form = "flame" | "tree" | "spots" | "sandwich";

const rows = 100; // of the table of hot spots: who looks for more searches
const view = "view"; // begins the page's address of what is shown
const branches = 40; // of one call in the call tree

// A Chosen is what stands out: what was searched, or what proves a finding.
interface Chosen {
  match: ((node: number) => boolean) | undefined;
  text: string;
}

export class Panel {
  private profile: Profile | undefined;
  private tree: Tree | undefined;
  private event = "";
  private form: Form = "flame";
  private finding = -1;
  private readonly flame: Flame;
  private readonly tabs = new Map<string, HTMLButtonElement>();
  private readonly forms = new Map<Form, HTMLButtonElement>();
  private readonly search = make("input", { type: "search", placeholder: "name, or /expression/", spellcheck: "false",
    id: "flame-search" });
  private readonly found = make("output", { class: "found", id: "flame-found" });
  private readonly group = make("select", { id: "flame-group" });
  private readonly only = make("select", { id: "flame-only" });
  private readonly state = make("select", {});
  private readonly scope = make("input", { type: "checkbox", id: "flame-target" });
  private readonly lines = make("input", { type: "checkbox", id: "flame-lines" });
  private readonly reverse = make("input", { type: "checkbox", id: "flame-reverse" });
  private readonly collapse = make("input", { type: "checkbox", id: "flame-collapse" });
  private readonly hide = make("input", { type: "text", placeholder: "java.util.stream., libc.so", spellcheck: "false",
    id: "flame-hide" });
  private readonly shown = owners.map(() => make("input", { type: "checkbox" }));
  private readonly is = make("p", { class: "quiet", id: "flame-is" });
  private readonly crumbs = make("p", { class: "crumbs" });
  private readonly now = make("p", { class: "over", "aria-live": "polite", id: "flame-now" });
  private readonly previous = make("button", { type: "button", id: "flame-previous", "aria-label": "previous hit" },
    "◂");
  private readonly next = make("button", { type: "button", id: "flame-next", "aria-label": "next hit" }, "▸");
  private readonly chip = make("button", { type: "button", hidden: true, id: "flame-proof" });
  private readonly body = make("div", {});

  constructor(place: HTMLElement, private readonly charts: ChartData, private readonly range: Range) {
    this.flame = new Flame({
      changed: (node) => this.flame.crumbs(this.crumbs, node), say: (text) => (this.now.textContent = text),
        about: (node) => this.about(node, this.tree as Tree, this.flame),
    });
    const events = [...document.querySelectorAll<HTMLElement>("#profiles [data-event]")];
    const shown = make("div", {}, this.tabRow(events), this.toolRow(), this.filterRow(), this.is, this.crumbs,
      this.body, this.legend(), this.now);
    place.append(...this.proofs(), shown);
    for (const e of [this.group, this.only, this.state, this.scope, this.lines, this.reverse, this.collapse,
      ...this.shown]) {
      e.addEventListener("change", () => this.rebuild());
    }
    this.hide.addEventListener("change", () => this.rebuild());
    this.search.addEventListener("input", () => this.choose());
    this.search.addEventListener("keydown", (e) => {
      if (e.key === "Enter") this.step(e.shiftKey ? -1 : 1);
    });
    this.previous.addEventListener("click", () => this.step(-1));
    this.next.addEventListener("click", () => this.step(1));
    this.chip.addEventListener("click", () => this.prove(-1));
    range.listen(() => this.rebuild());
    for (const act of ["change", "input", "click"]) place.addEventListener(act, () => this.remember());
    addEventListener("keydown", (e) => {
      if (e.key !== "/" || e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement) return;
      e.preventDefault();
      this.search.focus();
    });
  }

  // proofs lists the findings that have a proof here, beside the graph.
  private proofs(): HTMLElement[] {
    const list = make("ul", {});
    for (const a of document.querySelectorAll<HTMLElement>(".evidence a[data-event]")) {
      const [event, finding] = [a.dataset["event"] ?? "", Number(a.dataset["finding"])];
      const b = make("button", { type: "button" }, `◆ ${this.charts.findings[finding]?.check ?? ""}`);
      b.addEventListener("click", () => void this.show(event, finding));
      list.append(make("li", {}, b, ` ${a.textContent ?? ""}`));
    }
    if (list.children.length === 0) return [];
    return [make("nav", { class: "flame-findings", "aria-label": "Findings with a proof here" }, list)];
  }

  private tabRow(events: HTMLElement[]): HTMLElement {
    const list = make("div", { class: "tabs", role: "tablist", "aria-label": "Profiles" });
    for (const e of events) {
      const event = e.dataset["event"] ?? "";
      const tab = make("button", { type: "button", role: "tab", id: `tab-${event}` }, e.dataset["title"] ?? event);
      tab.addEventListener("click", () => void this.open(event));
      this.tabs.set(event, tab);
      list.append(tab);
    }
    list.addEventListener("keydown", (e) => {
      const all = [...this.tabs.values()];
      const i = all.indexOf(document.activeElement as HTMLButtonElement) + (
        { ArrowRight: 1, ArrowLeft: -1 }[e.key] ?? 0);
      all[(i + all.length) % all.length]?.focus();
    });
    return list;
  }

  private toolRow(): HTMLElement {
    const forms: [Form, string][] = [["flame", "Flame graph"], ["tree", "Call tree"], ["spots", "Hot spots"],
      ["sandwich", "Callers and callees"]];
    const list = make("div", { class: "tabs" });
    for (const [form, title] of forms) {
      const b = make("button", { type: "button", id: `form-${form}` }, title);
      b.addEventListener("click", () => this.setForm(form));
      this.forms.set(form, b);
      list.append(b);
    }
    const all = make("button", { type: "button", id: "flame-reset" }, "Zoom out");
    all.addEventListener("click", () => this.flame.zoom(0));
    return make("div", { class: "tools" }, list, make("label", {}, "Search ", this.search), this.found, this.previous,
      this.next, all, this.chip, this.exports());
  }

  private filterRow(): HTMLElement {
    const label = (text: string, e: HTMLElement) => make("label", {}, `${text} `, e);
    const box = (text: string, e: HTMLElement) => make("label", {}, e, ` ${text}`);
    const options = (e: HTMLSelectElement, list: [string, string][]) => e.append(
      ...list.map(([value, text]) => make("option", { value }, text)));
    options(this.group, [["none", "nothing"], ["pool", "pool of threads"], ["thread", "thread"], ["class", "class"]]);
    options(this.state, [["busy", "with work"], ["all", "all, idle ones too"], ["running", "running"],
      ["waiting", "waiting"]]);
    const code = make("fieldset", {}, make("legend", {}, "Show code of"));
    owners.forEach((name, i) => {
      this.shown[i].checked = true;
      this.shown[i].id = `show-${i}`;
      if (i > 0) code.append(box(name, this.shown[i]));
    });
    code.append(label("hide what begins with", this.hide));
    this.scope.checked = true;
    return make(
      "div", { class: "tools" }, label("By", this.group), label("Only", this.only), label("Threads", this.state),
        box("the target only", this.scope),
      box("by line", this.lines), box("bottom-up (who calls it)", this.reverse),
      box("collapse recursion", this.collapse), code,
    );
  }

  private legend(): HTMLElement {
    const list = make("p", { class: "legend quiet" });
    for (const k of kinds) {
      const swatch = make("span", { class: "key" });
      swatch.style.background = `var(${k.color})`;
      list.append(make("span", {}, swatch, make("b", {}, k.letter), ` ${k.words}`));
    }
    list.append(make("span", {}, "◆ a finding's proof"));
    return list;
  }

  private controls(): [string, HTMLInputElement | HTMLSelectElement][] {
    return [["search", this.search], ["by", this.group], ["only", this.only], ["threads", this.state],
      ["hide", this.hide], ["target", this.scope], ["lines", this.lines], ["reverse", this.reverse],
      ["collapse", this.collapse]];
  }

  // remember puts what is shown into the page's address, so that it can be passed on.
  private remember(): void {
    const q = new URLSearchParams({ event: this.event, form: this.form });
    for (const [name, e] of this.controls()) {
      const value = e instanceof HTMLInputElement && e.type === "checkbox" ? String(e.checked) : e.value;
      if (value !== "") q.set(name, value);
    }
    if (!this.range.all) q.set("range", `${this.range.from} ${this.range.to}`);
    history.replaceState(null, "", `#${view}?${q}`);
  }

  // restore shows what the page's address says, if it says so.
  async restore(): Promise<boolean> {
    const [head, tail] = [location.hash.slice(0, view.length + 2), location.hash.slice(view.length + 2)];
    if (head !== `#${view}?`) return false;
    const q = new URLSearchParams(tail);
    if (!this.tabs.has(q.get("event") ?? "")) return false;
    await this.open(q.get("event") as string);
    for (const [name, e] of this.controls()) {
      const value = q.get(name);
      if (value === null) continue;
      if (e instanceof HTMLInputElement && e.type === "checkbox") e.checked = value === "true";
      else e.value = value;
    }
    const [from, to] = (q.get("range") ?? "").split(" ").map(Number);
    if (to > from) this.range.set(from, to);
    this.rebuild();
    const form = q.get("form");
    if (form === "tree" || form === "spots" || form === "sandwich") this.setForm(form);
    document.getElementById("profiles")?.scrollIntoView();
    return true;
  }

  // open shows the profile of an event.
  async open(event: string): Promise<void> {
    if (this.event === event) return;
    this.event = event;
    for (const [e, tab] of this.tabs) {
      tab.setAttribute("aria-selected", String(e === event));
      tab.tabIndex = e === event ? 0 : -1;
    }
    const p = await readProfile(event);
    if (this.event !== event) return; // another was asked for meanwhile
    this.profile = p;
    this.offer(p);
    this.rebuild();
  }

  // offer sets what can be chosen of a profile.
  private offer(p: Profile): void {
    const pools = [...new Set(p.threads.map((t) => t.pool))].sort();
    this.only.replaceChildren(make("option", { value: "" }, "all threads"),
      ...pools.map((v) => make("option", { value: v }, v)));
    const has = (e: HTMLElement, yes: boolean) => ((e.parentElement as HTMLElement).hidden = !yes);
    has(this.only, pools.length > 1);
    const wall = p.event === "wall" || p.event === "goroutine";
    has(this.state, wall);
    has(this.scope, p.threads.some((t) => !t.target) && p.threads.some((t) => t.target));
    this.state.value = wall ? "busy" : "all";
    for (const o of this.group.options) o.hidden = o.value === "class" && p.classes.every((c) => c === "");
    if (this.group.selectedOptions[0]?.hidden) this.group.value = "none";
  }

  // prove makes what proves a finding stand out; -1 ends that.
  async show(event: string, finding: number): Promise<void> {
    this.search.value = "";
    this.range.clear();
    await this.open(event);
    this.setForm("flame");
    this.flame.zoom(0);
    this.prove(finding);
    this.reveal();
  }

  private prove(finding: number): void {
    this.finding = finding;
    const f = this.charts.findings[finding];
    this.chip.hidden = !f;
    this.chip.textContent = f ? `◆ proof of ${f.check} ✕` : "";
    this.choose();
  }

  private viewed(): View {
    const p = this.profile as Profile;
    const prefixes = this.hide.value.split(/[\s,]+/).filter((x) => x !== "");
    const hidden = (f: number) =>
      !this.shown[p.frames.owner[f]].checked ||
      prefixes.some((x) => p.names[p.frames.name[f]].startsWith(x) || p.modules[p.frames.module[f]].startsWith(x));
    return {
      from: this.range.from, to: this.range.to, reverse: this.reverse.checked, group: this.group.value as Group,
        only: this.only.value,
      target: this.scope.checked && p.threads.some((t) => t.target), state: this.state.value as View["state"],
        lines: this.lines.checked, collapse: this.collapse.checked, hidden,
    };
  }

  private rebuild(): void {
    const p = this.profile;
    if (!p) return;
    this.tree = treeOf(p, this.viewed());
    this.tell(p, this.tree);
    this.flame.show(p, this.tree, { match: undefined });
    this.choose();
    this.draw();
  }

  // tell says what is shown.
  private tell(p: Profile, t: Tree): void {
    let when = "of the whole window";
    if (!this.range.all) {
      const [first, last] = buckets(p, this.range);
      when = p.bucket > 0
        ? `of ${(first * p.bucket).toFixed(1)} s to ${((last + 1) * p.bucket).toFixed(1)} s`
        : "of the whole window: the samples of this profile have no times, so that the range does not change it";
    }
    const idleThreads = this.state.value === "busy" && p.state.includes(idle) ? "; idle threads are left out" : "";
    const lost = p.lost > 0 ? `; ${p.lost} samples were lost` : "";
    const bare = t.total[0] > 0 ? t.self[0] / t.total[0] : 0;
    const without = bare >= 0.001 ? `; ${percent(bare)} of it is without a stack` : "";
    const samples = p.event === "off-cpu" ? "finished waits" : "samples"; // a wait is counted where it ends
    this.is.textContent = `${quantity(t.total[0], p.unit)} in ${t.count[0]} ${samples} ${when}${idleThreads}${without}${lost} (${p.engine})`;
  }

  private setForm(form: Form): void {
    this.form = form;
    this.draw();
  }

  private draw(): void {
    for (const [f, b] of this.forms) b.setAttribute("aria-pressed", String(f === this.form));
    if (!this.tree || !this.profile) return;
    switch (this.form) {
      case "flame":
        if (this.flame.element.parentElement !== this.body) this.body.replaceChildren(this.flame.element);
        break;
      case "tree":
        this.body.replaceChildren(this.callTree());
        break;
      case "spots":
        this.body.replaceChildren(this.hotSpots());
        break;
      case "sandwich":
        this.body.replaceChildren(this.sandwich());
        break;
    }
    this.crumbs.hidden = this.form !== "flame";
  }

  // about is what the flame graph tells of a frame.
  private about(node: number, t: Tree, flame: Flame): string[] {
    const p = this.profile as Profile;
    const f = t.frame[node];
    const lines: string[] = [];
    if (f >= 0) {
      const line = this.lines.checked && p.frames.line[f] > 0 ? `, line ${p.frames.line[f]}` : "";
      const module = p.modules[p.frames.module[f]] ? ` of ${p.modules[p.frames.module[f]]}` : "";
      lines.push(kinds[p.frames.kind[f]].words + module + line);
    }
    const zoomed = flame.zoomed;
    const of = zoomed !== 0 &&
      t.total[zoomed] > 0 ? `, ${percent(t.total[node] / t.total[zoomed])} of the zoomed frame` : "";
    lines.push(`${percent(t.total[0] > 0 ? t.total[node] / t.total[0] : 0)} (${quantity(t.total[node], p.unit)}, ${t.count[node]} samples)${of}`);
    if (t.self[node] > 0) lines.push(
      `itself ${percent(t.self[node] / t.total[0])} (${quantity(t.self[node], p.unit)})`);
    const findings = [...(t.marks.get(node) ?? [])].map((i) => this.charts.findings[i]?.check ?? "").join(", ");
    if (findings) lines.push(`◆ ${findings}`);
    return lines;
  }

  // chosen gives what is to stand out: the search goes before the finding.
  private chosen(): Chosen {
    const t = this.tree as Tree;
    const p = this.profile as Profile;
    const wanted = matcher(this.search.value);
    if (wanted) {
      const hit = p.names.map(wanted);
      const groups = t.groups.map(wanted);
      return {
        match: (n) => (t.frame[n] >= 0 ? hit[p.frames.name[t.frame[n]]] : n !== 0 && groups[-1 - t.frame[n]]),
        text: "found",
      };
    }
    if (this.finding >= 0) return { match: (n) => t.marks.get(n)?.has(this.finding) ?? false, text: "proof" };
    return { match: undefined, text: "" };
  }

  private choose(): void {
    if (!this.tree || !this.profile) return;
    const c = this.chosen();
    this.flame.mark({ match: c.match });
    this.previous.hidden = this.next.hidden = c.match === undefined;
    if (!c.match) {
      this.found.textContent = "";
      return;
    }
    const w = weight(this.tree, c.match);
    const all = this.tree.total[0];
    const total = (c.text === "proof" ? this.tree.proof.get(this.finding) : undefined) ?? w.total;
    this.found.textContent = w.nodes === 0
      ? `nothing ${c.text}`
      : `${c.text}: ${percent(all > 0 ? total / all : 0)}, ${quantity(total, this.profile.unit)} in ${w.nodes} ${w.nodes === 1 ? "place" : "places"}`;
    if (this.form !== "flame") this.draw();
  }

  private reveal(): void {
    const c = this.chosen();
    if (!c.match || !this.tree) return;
    const w = weight(this.tree, c.match);
    if (w.widest >= 0) this.flame.reveal(w.widest);
  }

  // step goes to the next frame that stands out, largest first, or to the one before.
  private step(by: number): void {
    const c = this.chosen();
    if (!c.match || !this.tree) return;
    const list = hits(this.tree, c.match);
    if (list.length === 0) return;
    const at = list.indexOf(this.flame.current);
    const to = at < 0 ? (by > 0 ? 0 : list.length - 1) : (at + by + list.length) % list.length;
    this.setForm("flame");
    this.flame.goTo(list[to]);
  }

  // exports are the samples that are shown, for other programs.
  private exports(): HTMLElement {
    const list = make("span", { class: "tabs", role: "group", "aria-label": "Copy and save" });
    const add = (id: string, title: string, act: () => Promise<void>) => {
      const b = make("button", { type: "button", id }, title);
      b.addEventListener("click", () => void act());
      list.append(b);
    };
    add("flame-copy", "Copy stacks", async () => navigator.clipboard.writeText(this.collapsed()));
    add("save-collapsed", "Save collapsed", async () => save(`${this.event}.collapsed`, [this.collapsed()]));
    add("save-speedscope", "speedscope", async () => save(`${this.event}.speedscope.json`,
      [speedscope(this.paths(), this.event, this.profile?.unit ?? "")]));
    add("save-pprof", "pprof", async () => save(`${this.event}.pb.gz`,
      [await pprof(this.paths(), this.event, this.profile?.unit ?? "")]));
    return list;
  }

  private collapsed(): string {
    return collapsed(this.paths());
  }

  private paths(): Path[] {
    const t = this.tree as Tree;
    const out: Path[] = [];
    for (let n = 0; n < t.size; n++) {
      if (t.self[n] > 0) out.push({ names: this.flame.path(n).slice(1).map((i) => this.flame.label(i)),
        value: t.self[n], count: t.count[n] });
    }
    return this.reverse.checked ? out.map((p) => ({ ...p, names: p.names.reverse() })) : out;
  }

  print(on: boolean): void {
    this.flame.print(on);
  }

  redraw(): void {
    this.flame.redraw();
  }

  // focus is the function of the current frame, of the widest that was searched for, or the one with most of its own.
  private focus(): number {
    const [t, p, c] = [this.tree as Tree, this.profile as Profile, this.chosen()];
    const node = c.match ? hits(t, c.match)[0] ?? -1 : this.flame.current;
    if (node > 0 && t.frame[node] >= 0) return p.frames.name[t.frame[node]];
    const hot = spots(t, p.frames.name).sort((a, b) => b.self - a.self)[0];
    return hot ? p.frames.name[hot.frame] : -1;
  }

  // sandwich is one function between its callers and its callees.
  private sandwich(): HTMLElement {
    const p = this.profile as Profile;
    const name = this.focus();
    const part = (title: string, id: string, callers: boolean) => {
      const tree = treeOf(p, { ...this.viewed(), group: "none", focus: { name, callers } });
      const flame: Flame = new Flame({
        changed: () => undefined, say: (text) => (this.now.textContent = text),
        about: (node) => this.about(node, tree, flame),
      });
      flame.element.id = id;
      requestAnimationFrame(() => flame.show(p, tree, { match: undefined }));
      return [make("h4", {}, title), flame.element];
    };
    return make("div", { class: "sandwich" }, ...part(`Who calls ${p.names[name] ?? "it"}`, "flame-callers", true),
      ...part("What it calls", "flame-callees", false));
  }

  private hotSpots(): HTMLElement {
    const t = this.tree as Tree;
    const p = this.profile as Profile;
    const wanted = matcher(this.search.value);
    const all = t.total[0] || 1;
    let list = spots(t, p.frames.name).sort((a, b) => b.self - a.self || b.total - a.total);
    if (wanted) list = list.filter((s) => wanted(p.names[p.frames.name[s.frame]]));
    const body = make("tbody", {});
    for (const s of list.slice(0, rows)) {
      const name = p.names[p.frames.name[s.frame]];
      const go = make("button", { type: "button", title: "search for it in the flame graph" }, name);
      go.addEventListener("click", () => {
        this.search.value = name;
        this.choose();
        this.setForm("flame");
        this.reveal();
      });
      body.append(make(
        "tr", {}, make("td", { class: "n" }, percent(s.self / all)),
          make("td", { class: "n" }, quantity(s.self, p.unit)),
        make("td", { class: "n" }, percent(s.total / all)), make("td", { class: "n" }, quantity(s.total, p.unit)),
        make("td", {}, `${kinds[p.frames.kind[s.frame]].letter} ${kinds[p.frames.kind[s.frame]].words}`),
          make("td", { class: "code tree-row" }, go),
        make("td", { class: "code" }, p.modules[p.frames.module[s.frame]]),
      ));
    }
    const more = list.length > rows ? `, and ${list.length - rows} more, which the search finds` : "";
    return table(`Methods by the ${p.unit === "B" ? "bytes" : "time"} of their own${more}`,
      ["self", "", "with callees", "", "code", "method", "module"], body, "hot-spots");
  }

  private callTree(): HTMLElement {
    const body = make("tbody", {});
    const t = this.tree as Tree;
    for (const n of children(t, 0).slice(0, branches)) body.append(...this.branch(n, 1));
    const view = table("Call tree, the heaviest first", ["with callees", "", "self", "call"], body, "call-tree");
    view.querySelector("table")?.setAttribute("role", "treegrid");
    const first = t.first[0] >= 0 ? body.querySelector<HTMLButtonElement>("button") : null;
    first?.click();
    return view;
  }

  // branch makes the row of a call; its callees come when it is opened.
  private branch(node: number, level: number): HTMLTableRowElement[] {
    const t = this.tree as Tree;
    const p = this.profile as Profile;
    const all = t.total[0] || 1;
    const f = t.frame[node];
    const open = make("button", { type: "button", "aria-label": "callees" }, t.first[node] >= 0 ? "▸" : "·");
    const kind = f >= 0 ? `${kinds[p.frames.kind[f]].letter} ` : "";
    const place = make("td", { class: "code" }, open,
      `${t.marks.has(node) ? "◆ " : ""}${kind}${this.flame.label(node)}`);
    place.style.paddingLeft = `${0.5 + (level - 1) * 1.1}rem`;
    const row = make(
      "tr", { class: this.chosen().match?.(node) ? "tree-row marked" : "tree-row", "aria-level": String(level),
        "aria-expanded": t.first[node] >= 0 ? "false" : undefined },
      make("td", { class: "n" }, percent(t.total[node] / all)),
        make("td", { class: "n" }, quantity(t.total[node], p.unit)),
      make("td", { class: "n" }, t.self[node] > 0 ? percent(t.self[node] / all) : ""), place,
    );
    let below: HTMLTableRowElement[] = [];
    open.addEventListener("click", () => {
      const closed = row.getAttribute("aria-expanded") === "false";
      row.setAttribute("aria-expanded", String(closed));
      open.textContent = closed ? "▾" : "▸";
      if (closed) {
        below = children(t, node).slice(0, branches).flatMap((c) => this.branch(c, level + 1));
        row.after(...below);
        // a single callee is the way on
        if (below.length === 1) below[0].querySelector<HTMLButtonElement>("button")?.click();
      } else {
        for (let next = row.nextElementSibling; next &&
          Number(next.getAttribute("aria-level")) > level; next = row.nextElementSibling) next.remove();
      }
    });
    if (t.first[node] < 0) open.disabled = true;
    open.addEventListener("keydown", (e) => {
      const expanded = row.getAttribute("aria-expanded") === "true";
      if ((e.key === "ArrowRight" && !expanded) || (e.key === "ArrowLeft" && expanded)) open.click();
      const to = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[e.key];
      if (to) {
        e.preventDefault();
        to.querySelector("button")?.focus();
      }
    });
    return [row];
  }
}

function table(caption: string, head: string[], body: HTMLElement, id: string): HTMLElement {
  return make(
    "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", { id }, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...head.map((h) => make("th", { scope: "col" }, h)))), body),
  );
}
