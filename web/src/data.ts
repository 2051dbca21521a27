// What lies in the page: base64 of gzip, in script elements that run nothing.

import { type Profile, unpack } from "./unpack.js";

// These are the types of internal/report/html/view.go.
export interface ChartData {
  duration: number;
  charts: Plot[];
  findings: { anchor: string; check: string; summary: string }[];
}

export interface Plot {
  id: string;
  unit: string;
  stacked: boolean;
  heat: boolean;
  times: number[] | null;
  lines: { label: string; limit: boolean; marked: boolean; values: (number | null)[] }[];
}

export async function block(id: string): Promise<ArrayBuffer> {
  const e = document.getElementById(`data-${id}`);
  const text = atob(e?.textContent ?? "");
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

export async function chartData(): Promise<ChartData> {
  return JSON.parse(new TextDecoder().decode(await block("charts"))) as ChartData;
}

export async function profile(event: string): Promise<Profile> {
  return unpack(await block(`profile-${event}`));
}
