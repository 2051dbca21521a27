// Makes elements. Names of the diagnosed host come into a page as text only: nothing here takes markup.

type Child = Node | string;

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Record<string, string | boolean | undefined> = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) e.setAttribute(name, "");
    else if (value !== undefined && value !== false) e.setAttribute(name, value);
  }
  e.append(...children);
  return e;
}

export function byId<T extends HTMLElement>(id: string, type: new () => T): T {
  const e = document.getElementById(id);
  if (!(e instanceof type)) throw new Error(`the page has no ${id}`);
  return e;
}

const probe = make("span", { hidden: true });

// color gives a colour of the style sheet in the present theme, for canvases.
export function color(name: string): string {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// A Hover is the one box at the pointer.
export class Hover {
  private readonly box = make("div", { class: "hover", hidden: true, "aria-hidden": "true" });

  show(x: number, y: number, text: string): void {
    if (!this.box.isConnected) document.body.append(this.box);
    this.box.textContent = text;
    this.box.hidden = false;
    const r = this.box.getBoundingClientRect();
    this.box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - r.width - 8))}px`;
    this.box.style.top = `${y + 18 + r.height > innerHeight ? Math.max(4, y - r.height - 12) : y + 18}px`;
  }

  hide(): void {
    this.box.hidden = true;
  }
}
