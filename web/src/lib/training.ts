/** Trainings on this machine: the courses of runs, and films. */

import { bytes, get, part, Refusal } from "./api";

export interface Run {
  id: string;
  task: string;
  kind: string;
  title: string;
  updates: number; // that its recipe asks for
  state: "bundled" | "finished" | "running" | "stopped";
  film: boolean;
}

export type Entry = Record<string, number>;

export interface Course extends Run {
  stamp: string;
  same?: boolean; // as the stamp that was sent: nothing else is
  entries?: Entry[];
  count?: number;
  broken?: number[]; // numbers of lines that could not be read
  brokenCount?: number;
  cut?: boolean;
}

export interface Piece {
  text: string;
  special: boolean;
}

export interface Probe {
  text: string;
  second?: string;
  to?: string;
  reference?: string;
  source: Piece[];
  target: Piece[];
  patterns: Record<string, [heads: number, rows: number, cols: number]>;
}

export interface Said {
  text?: string;
  score?: number;
  log_probs?: (number | null)[];
  label?: string;
  probability?: number;
  labels?: Record<string, number>;
  words?: { text: string; label: string; probability: number }[];
  candidates?: { text: string; p: number }[][];
}

export interface Frame {
  update: number;
  tokens: number;
  loss?: number;
  dev?: Record<string, number>;
  answers: Said[];
}

export interface Film {
  id: string;
  task: string;
  weights: string; // "plain" or "ema"
  probes: Probe[];
  frames: Frame[];
}

export const training = {
  runs: () => get<{ runs: Run[]; problems: Record<string, string>; more: number }>("api/runs"),
  course: (run: string, known = "") => get<Course>(`api/runs/log?run=${part(run)}&known=${part(known)}`),
  film: (run: string) => get<Film>(`api/runs/film?run=${part(run)}`),
};

const ANSWER = 1_000_000; // bytes that one answer holds

export function frameSize(probe: Probe): number {
  return Object.values(probe.patterns).reduce((sum, [h, t, s]) => sum + h * t * s, 0);
}

/** The patterns of a probe in frames first, first + 1 …: a block of bytes for each. */
export async function pictures(film: Film, probe: number, first = 0): Promise<Uint8Array[]> {
  const size = frameSize(film.probes[probe]!);
  const out: Uint8Array[] = [];
  if (!size) return film.frames.slice(first).map(() => new Uint8Array());
  const at = Math.max(1, Math.floor(ANSWER / size));
  for (let from = first; from < film.frames.length; from += at) {
    const count = Math.min(at, film.frames.length - from);
    const address = `api/runs/film/patterns?run=${part(film.id)}&probe=${probe}&first=${from}&count=${count}`;
    const found = await bytes(address);
    if (found.length !== count * size) throw new Refusal("broken-film", "the film has changed meanwhile", { run: film.id });
    for (let i = 0; i < count; i++) out.push(found.subarray(i * size, (i + 1) * size));
  }
  return out;
}

export interface Attention {
  path: string;
  kind: "encoder" | "decoder" | "cross";
  layer: number;
  heads: number;
  rows: number;
  cols: number;
  at: number; // where its bytes begin in a frame
}

/** Every attention of a probe: the encoder's, the decoder's own, and across; each by its layers. */
export function attentionsOf(probe: Probe): Attention[] {
  let at = 0;
  const all = Object.entries(probe.patterns).map(([path, [heads, rows, cols]]) => {
    const kind: Attention["kind"] = path.endsWith(".cross") ? "cross" : path.startsWith("encoder") ? "encoder" : "decoder";
    const one = { path, kind, layer: Number(path.split(".")[1]), heads, rows, cols, at };
    at += heads * rows * cols;
    return one;
  });
  const order = ["cross", "encoder", "decoder"];
  return all.sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind) || a.layer - b.layer);
}

/** What a model answered, in a line. */
export function inWords(said: Said): string {
  if (said.words) return said.words.map((word) => `${word.text}/${word.label}`).join(" ");
  if (said.label !== undefined) return `${said.label} ${(100 * (said.probability ?? 0)).toFixed(1)} %`;
  if (said.candidates) return said.text ?? "";
  if (said.text !== undefined) return said.text.replaceAll("\ufffd", "▯");
  return said.score === undefined ? "" : said.score.toFixed(3);
}

/** The mean −log p of the tokens that were given. */
export function surprise(said: Said): number | null {
  const known = (said.log_probs ?? []).filter((x) => x !== null);
  return known.length ? -known.reduce((a, b) => a + b, 0) / known.length : null;
}

// -- what a log has

const ABOUT = ["update", "epoch", "seconds", "tokens"];
const FIRST = ["loss", "dev_loss", "bleu", "chrf", "accuracy", "rate", "tokens_per_second"];

/** dev_loss_zh and dev_loss_en are one thing in two directions. */
export function stem(key: string): string {
  return key.replace(/^(dev_loss|bleu|chrf)_.+$/, "$1");
}

/** What can be drawn of some courses. */
export function measures(courses: Entry[][]): string[] {
  const found = new Set<string>();
  for (const entries of courses) for (const entry of entries) for (const key in entry) if (!ABOUT.includes(key)) found.add(stem(key));
  const rank = (key: string) => (FIRST.includes(key) ? FIRST.indexOf(key) : FIRST.indexOf("accuracy"));
  return [...found].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

/** The lines of one measure: one for each key that has it. */
export function curves(entries: Entry[], measure: string, against: string): { key: string; points: [number, number][] }[] {
  const keys = new Set<string>();
  for (const entry of entries) for (const key in entry) if (stem(key) === measure) keys.add(key);
  return [...keys].sort().map((key) => ({
    key,
    points: entries.filter((entry) => key in entry && against in entry).map((entry) => [entry[against]!, entry[key]!]),
  }));
}
