// The time range that all charts and flame graphs show.

export class Range {
  private readonly listeners: (() => void)[] = [];
  from = 0;
  to: number;

  constructor(private readonly duration: number) {
    this.to = duration;
  }

  get all(): boolean {
    return this.from <= 0 && this.to >= this.duration;
  }

  // set selects a range, within the window; one that is turned round is meant the other way.
  set(from: number, to: number): void {
    const within = (n: number) => Math.min(this.duration, Math.max(0, n));
    [from, to] = [within(Math.min(from, to)), within(Math.max(from, to))];
    if (from === this.from && to === this.to) return;
    this.from = from;
    this.to = to;
    for (const l of this.listeners) l();
  }

  clear(): void {
    this.set(0, this.duration);
  }

  listen(changed: () => void): void {
    this.listeners.push(changed);
  }
}
