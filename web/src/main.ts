// Starts the page: what is needed to see something first, profiles when they are looked at.

import { drawCharts } from "./charts.js";
import { chartData } from "./data.js";
import { startDiff } from "./diff.js";
import { byId } from "./dom.js";
import { filterFacts } from "./facts.js";
import { Panel } from "./panel.js";
import { Range } from "./range.js";

function themes(redraw: () => void, print: (on: boolean) => void): void {
  const button = byId("theme", HTMLButtonElement);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => {
    const chosen = document.documentElement.dataset["theme"];
    return chosen ? chosen === "dark" : system.matches;
  };
  const themed = () => {
    button.setAttribute("aria-pressed", String(dark()));
    dispatchEvent(new Event("themed"));
    redraw();
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset["theme"] = dark() ? "light" : "dark";
    themed();
  });
  system.addEventListener("change", themed);
  // Paper is white: canvases are drawn again for it.
  let before: string | undefined;
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset["theme"];
    document.documentElement.dataset["theme"] = "light";
    themed();
    print(true);
  });
  addEventListener("afterprint", () => {
    if (before) document.documentElement.dataset["theme"] = before;
    else delete document.documentElement.dataset["theme"];
    print(false);
    themed();
  });
  themed();
}

function rangeForm(range: Range): void {
  const form = document.getElementById("range");
  if (!(form instanceof HTMLFormElement)) return;
  const [from, to] = [byId("range-from", HTMLInputElement), byId("range-to", HTMLInputElement)];
  const is = byId("range-is", HTMLOutputElement);
  const hint = is.textContent;
  const show = () => {
    from.value = range.from.toFixed(1);
    to.value = range.to.toFixed(1);
    is.textContent = range.all ? hint : `Selected ${from.value} s to ${to.value} s: the flame graphs show that range.`;
  };
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    range.set(Number(from.value), Number(to.value));
  });
  form.addEventListener("reset", (e) => {
    e.preventDefault();
    range.clear();
  });
  range.listen(show);
  form.hidden = false;
  show();
}

// proofs make links to flame graphs open the right one, and links into closed parts open those.
function proofs(panel: Panel | undefined): void {
  for (const a of document.querySelectorAll<HTMLAnchorElement>("a[data-event]")) {
    a.addEventListener("click", () => void panel?.show(a.dataset["event"] ?? "", Number(a.dataset["finding"])));
  }
  const reveal = () => {
    const e = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!e) return;
    for (let d = e.closest("details"); d; d = d.parentElement?.closest("details") ?? null) d.open = true;
    e.scrollIntoView({ block: e.tagName === "TR" ? "center" : "start" });
    if (e.tabIndex >= -1 && e.hasAttribute("tabindex")) e.focus({ preventScroll: true });
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();
}

async function start(): Promise<void> {
  document.documentElement.classList.add("running");
  if (document.getElementById("data-charts")) await startReport();
  else {
    const diff = await startDiff();
    themes(() => diff?.redraw(), (on) => diff?.print(on));
  }
  performance.mark("ready");
  document.documentElement.dataset["ready"] = "";
}

async function startReport(): Promise<void> {
  const data = await chartData();
  const range = new Range(data.duration);
  const charts = drawCharts(data, range);
  rangeForm(range);
  filterFacts();
  const place = document.getElementById("flame");
  const panel = place ? new Panel(place, data, range) : undefined;
  themes(() => {
    charts.redraw();
    panel?.redraw();
  }, (on) => {
    charts.print(on);
    panel?.print(on);
  });
  proofs(panel);
  if (panel && await panel.restore()) return;
  const first = document.querySelector<HTMLElement>("a[data-event]")?.dataset["event"] ??
    document.querySelector<HTMLElement>("#profiles [data-event]")?.dataset["event"];
  if (panel && first) await panel.open(first);
}

start().catch((e: unknown) => {
  document.documentElement.classList.remove("running");
  const trouble = document.getElementById("trouble");
  if (trouble) {
    trouble.hidden = false;
    trouble.classList.remove("program");
    trouble.textContent = `Charts and flame graphs cannot be drawn: ${e instanceof Error ? e.message : String(e)}. ` +
      "They need a browser of 2024 or newer. All findings and tables are here.";
  }
});

