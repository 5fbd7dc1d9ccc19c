/** Every figure that a chapter states, computed from its inputs. A test computes each of them again. */

import { softmax } from "../lib/sampling";

// -- arithmetic

export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

export function total(x: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += x[i]!;
  return sum;
}

export function length(x: ArrayLike<number>): number {
  return Math.sqrt(dot(x, x));
}

export function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  return dot(a, b) / (length(a) * length(b) || 1);
}

export function mean(x: ArrayLike<number>): number {
  return total(x) / x.length;
}

/** √ of the mean squared distance from the mean: divided by n, as LayerNorm does. */
export function deviation(x: ArrayLike<number>): number {
  const middle = mean(x);
  return Math.sqrt(mean(Array.from(x, (one) => (one - middle) ** 2)));
}

/** In nats: 0 when all weight is on one, log n when it is equal. */
export function entropy(p: ArrayLike<number>): number {
  return -total(Array.from(p, (x) => (x > 0 ? x * Math.log(x) : 0)));
}

/** The smallest and the largest of many, also of more than fit into the arguments of one call. */
export function least(x: ArrayLike<number>): number {
  return Array.from(x).reduce((a, b) => Math.min(a, b), Infinity);
}

export function most(x: ArrayLike<number>): number {
  return Array.from(x).reduce((a, b) => Math.max(a, b), -Infinity);
}

/** Where the largest is. */
export function largest(x: ArrayLike<number>): number {
  return Array.from(x).reduce((best, one, i) => (one > x[best]! ? i : best), 0);
}

// -- soft look-up

export const FRUITS = ["apple", "banana", "kiwi", "plum"] as const;
export const FEATURES = ["red", "green", "blue", "sweet", "sour"] as const;

export interface Dictionary {
  keys: number[][]; // FRUITS × FEATURES
  values: number[]; // a price for each
  query: number[];
}

export const DICTIONARY: Dictionary = {
  keys: [
    [1, 0, 0, 0.8, 0.2],
    [1, 1, 0, 1, 0],
    [0, 1, 0, 0.5, 0.5],
    [1, 0, 1, 0.2, 0.8],
  ],
  values: [3, 2, 5, 6],
  query: [1, 0, 0, 0, 0],
};

/** A dictionary as a link has it; what cannot be read is the one above. */
export function dictionary(text: string): Dictionary {
  const numbers = text.split(",").map(Number);
  const [f, n] = [FRUITS.length, FEATURES.length];
  if (numbers.length !== f * n + f + n || !numbers.every((x) => Number.isFinite(x) && Math.abs(x) <= 100)) return DICTIONARY;
  return {
    keys: FRUITS.map((_, j) => numbers.slice(j * n, (j + 1) * n)),
    values: numbers.slice(f * n, f * n + f),
    query: numbers.slice(f * n + f),
  };
}

export function written({ keys, values, query }: Dictionary): string {
  return [...keys.flat(), ...values, ...query].join();
}

/** The same question, but it looks away from the colours that are not meant; and three times as firmly. */
export const AWAY = [1, -1, -1, 0, 0];
export const FIRM = 3;

export interface LookUp {
  scores: number[];
  exponentials: number[];
  sum: number;
  weights: number[];
  result: number;
}

export function lookUp({ keys, values, query }: Dictionary): LookUp {
  const scores = keys.map((key) => dot(query, key));
  const exponentials = scores.map(Math.exp);
  const weights = Array.from(softmax(scores));
  return { scores, exponentials, sum: total(exponentials), weights, result: dot(weights, values) };
}

// -- tokens

/** Two different one-hot vectors: how far apart they are, and their dot product. */
export function twoOneHots(size: number): { distance: number; product: number } {
  const a = Array.from({ length: size }, (_, i) => (i === 0 ? 1 : 0));
  const b = Array.from({ length: size }, (_, i) => (i === 1 ? 1 : 0));
  return { distance: length(a.map((x, i) => x - b[i]!)), product: dot(a, b) };
}

// -- position

/** The position of one token: sine and cosine in turn, of ever slower waves. */
export function positionOf(position: number, width: number): number[] {
  return Array.from({ length: width }, (_, d) => {
    const angle = position / 10000 ** ((d - (d % 2)) / width);
    return d % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

/** R_k: turns every pair (sin, cos) by the angle that the pair runs through in k positions. */
export function shifted(vector: number[], by: number): number[] {
  const width = vector.length;
  return vector.map((x, d) => {
    const angle = by / 10000 ** ((d - (d % 2)) / width);
    return d % 2 ? x * Math.cos(angle) - vector[d - 1]! * Math.sin(angle) : x * Math.cos(angle) + (vector[d + 1] ?? 0) * Math.sin(angle);
  });
}

export interface Positions {
  table: number[][];
  low: number;
  high: number;
  shortest: number; // the vectors' lengths
  longest: number;
  nearest: number; // the smallest distance of two different positions
  neighbours: number; // cosine of two neighbours
  products: number[]; // P_0 · P_k for each k
  spread: number; // how much P_p · P_{p+by} differs over all p
  missed: number; // how far R_by P_p is from P_{p+by}, at most
  rises: number; // the first k at which the product is larger than the one before
}

export function positions(count: number, width: number, by: number): Positions {
  const table = Array.from({ length: count }, (_, p) => positionOf(p, width));
  const lengths = table.map(length);
  let nearest = Infinity;
  for (let p = 0; p < count; p++)
    for (let q = 0; q < p; q++) nearest = Math.min(nearest, length(table[p]!.map((x, d) => x - table[q]![d]!)));
  const products = table.map((row) => dot(table[0]!, row));
  const apart = table.slice(0, count - by).map((row, p) => dot(row, table[p + by]!));
  const missed = table.slice(0, count - by).map((row, p) => most(shifted(row, by).map((x, d) => Math.abs(x - table[p + by]![d]!))));
  return {
    table,
    low: least(table.flat()),
    high: most(table.flat()),
    shortest: least(lengths),
    longest: most(lengths),
    nearest,
    neighbours: cosine(table[0]!, table[1]!),
    products,
    spread: most(apart) - least(apart),
    missed: most(missed),
    rises: products.findIndex((x, k) => k > 0 && x > products[k - 1]!),
  };
}

// -- query, key, value

/** Two tokens of two numbers, and two small matrices. */
export const SMALL = {
  x: [
    [1, 2],
    [0, 1],
  ],
  query: [
    [1, 0],
    [1, -1],
  ],
  key: [
    [0, 1],
    [2, 1],
  ],
};

/** x W. */
export function times(x: ArrayLike<number>, matrix: number[][]): number[] {
  return matrix[0]!.map((_, c) => dot(x, matrix.map((row) => row[c]!)));
}

// -- scores

/** "Thinking" looks at "Thinking" and "Machines": vectors with the products 112 and 96. */
export const THINKING = { width: 64, query: 1, keys: [1.75, 1.5] };

export interface Scaling {
  scores: number[];
  root: number;
  scaled: number[];
  weights: number[];
  unscaled: number[]; // the weights without the division
}

export function scaling(scores: number[], width: number): Scaling {
  const root = Math.sqrt(width);
  const scaled = scores.map((x) => x / root);
  return { scores, root, scaled, weights: Array.from(softmax(scaled)), unscaled: Array.from(softmax(scores)) };
}

export function thinking(): number[] {
  const { width, query, keys } = THINKING;
  return keys.map((key) => dot(Array(width).fill(query), Array(width).fill(key)));
}

/** The product of two vectors of n signs, each + or − with the same chance: every possible value and its probability. */
export function signProduct(width: number): { values: number[]; chances: number[]; variance: number } {
  const values: number[] = [];
  const chances: number[] = [];
  let chance = 0.5 ** width;
  for (let agree = 0; agree <= width; agree++) {
    values.push(2 * agree - width);
    chances.push(chance);
    chance *= (width - agree) / (agree + 1);
  }
  return { values, chances, variance: total(values.map((x, i) => x * x * chances[i]!)) };
}

// -- mask

/** 今天天气很好: how much each character takes of those before it, as the example has it. */
export const CAUSAL = {
  text: "今天天气很好",
  weights: [
    [1, 0, 0, 0, 0, 0],
    [0.5, 0.5, 0, 0, 0, 0],
    [0.25, 0.25, 0.5, 0, 0, 0],
    [0.1, 0.2, 0.3, 0.4, 0, 0],
    [0.05, 0.1, 0.25, 0.27, 0.33, 0],
    [0.05, 0.05, 0.1, 0.2, 0.3, 0.5],
  ],
};

export interface Causal {
  sums: number[];
  wrong: number; // the row that does not add up to 1
  mended: number[]; // that row divided by its sum
  hidden: number; // places above the diagonal
}

export function causal(weights: number[][]): Causal {
  const sums = weights.map(total);
  const wrong = sums.findIndex((sum) => Math.abs(sum - 1) > 1e-9);
  return {
    sums,
    wrong,
    mended: (weights[wrong] ?? []).map((x) => x / sums[wrong]!),
    hidden: total(weights.map((row, t) => row.length - t - 1)),
  };
}

// -- residual and norm

export function layerNorm(x: number[]): { mean: number; deviation: number; out: number[] } {
  const [middle, spread] = [mean(x), deviation(x)];
  return { mean: middle, deviation: spread, out: x.map((one) => (one - middle) / spread) };
}

// -- feed-forward

/** A feed-forward layer of two numbers in, two within and two out, without biases. */
export const LAYER = {
  x: [1, 2],
  first: [
    [1, 0],
    [1, -1],
  ],
  second: [
    [0.5, 1],
    [4, 2],
  ],
};

export function feedForward(x: number[]): { pre: number[]; act: number[]; out: number[]; sum: number[]; unbent: number[] } {
  const pre = times(x, LAYER.first);
  const act = pre.map(relu);
  const out = times(act, LAYER.second);
  return { pre, act, out, sum: out.map((one, i) => one + x[i]!), unbent: times(pre, LAYER.second) };
}

export function relu(x: number): number {
  return Math.max(0, x);
}

export function silu(x: number): number {
  return x / (1 + Math.exp(-x));
}

/** x Φ(x); the normal distribution by its series, or by a continued fraction far from 0. */
export function gelu(x: number): number {
  return x * normal(x);
}

function normal(x: number): number {
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  if (Math.abs(x) > 5) {
    let below = 0;
    for (let k = 40; k > 0; k--) below = k / (Math.abs(x) + below);
    const tail = density / (Math.abs(x) + below);
    return x > 0 ? 1 - tail : tail;
  }
  let [term, sum] = [x, x];
  for (let k = 3; k < 200; k += 2) sum += term *= (x * x) / k;
  return 0.5 + density * sum;
}

export function geluTanh(x: number): number {
  return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
}

export function activated(kind: string, pre: number, gate: number): number {
  switch (kind) {
    case "relu":
      return relu(pre);
    case "silu":
      return silu(pre);
    case "swiglu":
      return silu(pre) * gate;
    case "gelu-tanh":
      return geluTanh(pre);
    default:
      return gelu(pre);
  }
}

// -- sampling

export const LOGITS = [3, 2, 1, 0];

export function tempered(logits: number[], temperature: number): number[] {
  return Array.from(softmax(logits.map((x) => x / temperature)));
}
