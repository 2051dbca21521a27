// Filters the tables of facts.

import { byId } from "./dom.js";

export function filterFacts(): void {
  const input = document.getElementById("filter");
  if (!(input instanceof HTMLInputElement)) return;
  const is = byId("filter-is", HTMLOutputElement);
  const parts = [...document.querySelectorAll<HTMLDetailsElement>("#facts details.facts")];
  const open = parts.map((p) => p.open);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter((w) => w !== "");
    let shown = 0;
    parts.forEach((part, i) => {
      let some = 0;
      for (const row of part.querySelectorAll<HTMLTableRowElement>("tbody tr")) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((w) => text.includes(w));
        if (!row.hidden) some++;
      }
      shown += some;
      part.hidden = some === 0;
      part.open = words.length > 0 ? some > 0 : open[i];
    });
    is.textContent = words.length > 0 ? `${shown} rows` : "";
  });
}
