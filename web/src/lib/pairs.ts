/** Two passes beside each other, the logit lens, and how far gradients reach: the calls of the views that look at a model so. */

import { part, post, raw, type Candidate, type Model, type Trace } from "./api";
import { token } from "./format";
import { Grid } from "./grid";
import { labels } from "./labels";

export type By = "place" | "token";

/** How much a tensor of the second pass differs, or why that cannot be said. */
export interface Told {
  shape?: number[];
  min?: number;
  max?: number;
  mean?: number; // of |Δ|
  why?: string;
}

export interface Comparison {
  by: By;
  source: [number, number][]; // tokens that stand for each other
  target: [number, number][];
  tensors: Record<string, Told>;
}

export interface Weighed {
  same_words: boolean;
  rows: { text: string; id?: number; before: number | null; after: number | null }[];
  moved: number | null; // half the sum of |Δp|
}

export interface Lens {
  normalised: boolean;
  predictions: { position: number; place: number; token: string }[];
  layers: { tensor: string; layer: number; p: number[]; rank: number[]; best: Candidate[]; top: Candidate[] }[];
}

export interface Reach {
  model: string;
  length: number;
  texts: number;
  of: "decoder" | "last";
  norms: number[];
}

const path = (a: Trace, b: Trace) => `api/compare/${part(a.id)}/${part(b.id)}`;

export const pairs = {
  compare: (a: Trace, b: Trace, by: By | null) => post<Comparison>(path(a, b), { by }),
  outputs: (a: Trace, b: Trace, place: number | null, other: number | null) =>
    post<Weighed>(`${path(a, b)}/outputs`, { place, other_place: other }),
  lens: (trace: Trace, place: number | null) => post<Lens>(`api/trace/${part(trace.id)}/lens`, { place }),
  reach: (model: string, length: number) => post<Reach>("api/distance", { model, length }),
};

/** b − a of one matrix of a tensor, of the tokens that are paired. */
export function differenceOf(a: Trace, b: Trace, name: string, told: Told, by: By, lead: number[]): Grid {
  const shape = told.shape!;
  const vector = shape.length - lead.length === 1;
  const start = lead.map((i) => `${i},`).join("");
  const bring = (slice: string, pool = "") =>
    raw(`${path(a, b)}/tensor/${part(name)}?by=${by}&slice=${encodeURIComponent(start + slice)}${pool && `&pool=${pool}`}`);
  return new Grid({
    name: `difference-${name}`,
    lead: start,
    rows: vector ? 1 : shape.at(-2)!,
    cols: shape.at(-1)!,
    low: told.min!,
    high: told.max!,
    load: async (r0, r1, c0, c1) => (await bring(vector ? `${c0}:${c1}` : `${r0}:${r1},${c0}:${c1}`)).data,
    pool: async (size) => {
      const { data, shape } = await bring(vector ? ":" : ":,:", String(size));
      return { data, rows: data.length / shape.at(-1)!, cols: shape.at(-1)! };
    },
    index: (row, col) => (vector ? [...lead, col] : [...lead, row, col]),
  });
}

/** The pairs of tokens along an axis, or null if it does not stand for tokens. */
export function along(found: Comparison, trace: Trace, name: string, axis: string): [number, number][] | null {
  if (axis !== "T" && axis !== "S") return null;
  const decodes = name.startsWith("decoder.") || (name === "logits" && trace.target.length > 0);
  return decodes && !(axis === "S" && name.includes(".cross.")) ? found.target : found.source;
}

/** What the places of an axis of a difference are called: one name where both have the same, else both. */
export function pairLabels(model: Model, a: Trace, b: Trace, found: Comparison, name: string, axis: string): string[] | null {
  const pairs = along(found, a, name, axis);
  if (!pairs) return labels(model, a, name, axis);
  const sides = pairs === found.target ? [a.target, b.target] : [a.source, b.source];
  return pairs.map(([i, j]) => {
    const [one, other] = [token(sides[0]![i]!.text), token(sides[1]![j]!.text)];
    return one === other ? one : `${one} | ${other}`;
  });
}

/** Where an index of a difference is in the two passes. */
export function places(found: Comparison, trace: Trace, name: string, index: number[]): [number[], number[]] {
  const axes = trace.tensors[name]!.axes;
  const both = index.map((i, axis) => along(found, trace, name, axes[axis]!)?.[i] ?? [i, i]);
  return [both.map((pair) => pair[0]!), both.map((pair) => pair[1]!)];
}
