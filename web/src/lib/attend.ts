/** Attention weights as words look at words: over one head or all, without special tokens, with pieces merged. */

import type { Token, Trace } from "./api";
import { everything } from "./grid";
import { token } from "./format";

export interface Group {
  name: string;
  members: number[]; // of the tokens
  special: boolean;
  unknown: boolean;
}

const HAN = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/u;
const WORD = /[\p{L}\p{M}\p{N}'’]/u;

function joins(a: string, b: string): boolean {
  return WORD.test(a) && WORD.test(b) && !HAN.test(a) && !HAN.test(b);
}

/** Tokens as they are, or pieces of one word together: those that no space parts, and the bytes of one character. */
export function group(tokens: Token[], text: string, options: { special: boolean; merge: boolean }): Group[] {
  const letters = Array.from(text); // spans count characters, not UTF-16 units
  const out: Group[] = [];
  let last: Token | null = null;
  tokens.forEach((one, i) => {
    if (one.special && !options.special) return void (last = one);
    const before = last;
    last = one;
    const open = out.at(-1);
    if (options.merge && open && before && !before.special && !one.special && continues(before, one, letters)) {
      open.members.push(i);
      open.unknown ||= one.unknown;
      if (!shares(before, one)) open.name += one.text;
    } else out.push({ name: one.text, members: [i], special: one.special, unknown: one.unknown });
  });
  return out.map((one) => ({ ...one, name: token(one.name) }));
}

/** Bytes of one character cover the same place, and the first of them has the character as its text. */
function shares(before: Token, one: Token): boolean {
  return one.start !== null && one.start === before.start && one.end === before.end;
}

function continues(before: Token, one: Token, letters: string[]): boolean {
  if (shares(before, one)) return true;
  if (one.start === null || before.end === null || one.start !== before.end) return false;
  const left = letters[before.end - 1];
  const right = letters[one.start];
  return left !== undefined && right !== undefined && joins(left, right);
}

/** All weights of a layer's head, or their mean or maximum over its heads: T × S. */
export async function weights(trace: Trace, name: string, heads: number[], over: "one" | "mean" | "max"): Promise<Float32Array> {
  const parts = await Promise.all(heads.map((head) => everything(trace, name, [head])));
  if (over === "one" || parts.length === 1) return parts[0]!;
  const out = new Float32Array(parts[0]!.length);
  for (const part of parts) for (let i = 0; i < out.length; i++) out[i] = over === "max" ? Math.max(out[i]!, part[i]!) : out[i]! + part[i]!;
  if (over === "mean") for (let i = 0; i < out.length; i++) out[i]! /= parts.length;
  return out;
}

/** Rows of merged pieces are averaged, their columns summed, so that rows still add up to 1 (less what is hidden). */
export function gather(data: Float32Array, width: number, rows: Group[], cols: Group[]): Float32Array {
  if (rows.length * cols.length === data.length) return data; // nothing hidden, nothing merged
  const out = new Float32Array(rows.length * cols.length);
  rows.forEach((row, r) =>
    cols.forEach((col, c) => {
      let sum = 0;
      for (const i of row.members) for (const j of col.members) sum += data[i * width + j]!;
      out[r * cols.length + c] = sum / row.members.length;
    }),
  );
  return out;
}

export interface Place {
  path: string; // decoder.1.cross
  kind: "encoder" | "decoder" | "cross";
  layer: number;
  heads: number;
}

/** Every attention of a trace, in the order of the layers. */
export function attentions(trace: Trace): Place[] {
  return Object.entries(trace.tensors)
    .filter(([name]) => name.endsWith(".pattern"))
    .map(([name, info]) => {
      const path = name.slice(0, -".pattern".length);
      const [stack, layer] = path.split(".");
      const kind: Place["kind"] = path.endsWith(".cross") ? "cross" : stack === "encoder" ? "encoder" : "decoder";
      return { path, kind, layer: Number(layer), heads: info.shape[0]! };
    })
    .sort((a, b) => a.layer - b.layer);
}
