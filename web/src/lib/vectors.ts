/** What the server tells of a model's vectors. */

import { raw, get, part, post, type Tensor } from "./api";
import { Grid, made } from "./grid";

export interface Plane {
  total: number; // words of the vocabulary
  width: number; // numbers of a vector
  words: string[];
  ids: number[];
  x: number[];
  y: number[];
  shares: number[]; // of the variance, along x and y
}

export interface Near {
  word: string;
  cosine: number;
}

export interface Neighbours {
  word: string; // as the vocabulary has it
  known: boolean; // or its vector was made of its n-grams
  near: Near[];
}

export interface Analogy {
  a: number[];
  b: number[];
  c: number[];
  sum: number[];
  best: number[] | null;
  near: Near[];
}

export interface Row {
  word: string;
  id: number;
  name: string;
  shape: [number, number];
  min: number;
  max: number;
  rows: number[]; // whose mean the vector is; mostly one
  scale: number; // what the model multiplies it by
  vector: number[];
}

export interface MapStage {
  id: string;
  state: "waiting" | "running" | "done" | "stopped" | "failed";
  done: number;
  steps: number;
  divergence: number | null;
  x?: number[];
  y?: number[];
}

export const MAPPED = 3000; // words that the server makes a map of

export const vectors = {
  plane: (model: string, count: number, signal: AbortSignal) => post<Plane>("api/vectors/plane", { model, count }, signal),
  near: (model: string, word: string, signal: AbortSignal) => post<Neighbours>("api/vectors/near", { model, word, count: 15 }, signal),
  analogy: (model: string, a: string, b: string, c: string, signal: AbortSignal) =>
    post<Analogy>("api/vectors/analogy", { model, a, b, c }, signal),
  row: (model: string, word: string, signal: AbortSignal) => post<Row>("api/vectors/row", { model, word }, signal),
  map: (model: string, count: number) => post<MapStage>("api/vectors/map", { model, count: Math.min(count, MAPPED) }),
  look: (id: string) => get<MapStage>(`api/vectors/map/${part(id)}`),
  stop: (id: string) => post<MapStage>(`api/vectors/map/${part(id)}/stop`, {}),
  spell: (model: string, ids: number[]) =>
    post<{ words: { id: number; text: string }[] }>("api/words", { model, ids, side: "source" }),
};

function ask(model: string, slice: string, pool = ""): Promise<Tensor> {
  return raw(`api/vectors/matrix?model=${part(model)}&slice=${part(slice)}${pool}`);
}

/** Some rows of the embedding matrix. */
export async function rowsOf(model: string, row: Row, which: number[]): Promise<Grid> {
  const out = new Float32Array(which.length * row.shape[1]);
  const rows = await Promise.all(which.map((r) => ask(model, `${r},:`)));
  rows.forEach(({ data }, i) => out.set(data, i * row.shape[1]));
  return made(row.name, out, which.length, row.shape[1]);
}

/** All of it, loaded as it is looked at. */
export function matrixOf(model: string, row: Row): Grid {
  return new Grid({
    name: row.name,
    rows: row.shape[0],
    cols: row.shape[1],
    low: row.min,
    high: row.max,
    load: async (r0, r1, c0, c1) => (await ask(model, `${r0}:${r1},${c0}:${c1}`)).data,
    pool: async (size) => {
      const { data, shape } = await ask(model, ":,:", `&pool=${size}`);
      return { data, rows: shape[0]!, cols: shape[1]! };
    },
  });
}

/** By its script: Chinese characters, Latin letters, or neither. */
export function script(word: string): "han" | "latin" | "other" {
  return /\p{Script=Han}/u.test(word) ? "han" : /\p{Script=Latin}/u.test(word) ? "latin" : "other";
}
