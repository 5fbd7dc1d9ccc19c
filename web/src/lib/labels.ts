/** What the rows and columns of a tensor stand for. */

import type { Model, Token, Trace } from "./api";
import { token } from "./format";

export function names(tokens: Token[]): string[] {
  return tokens.map((one) => token(one.text));
}

/** The labels of one axis of a tensor, or null if its places have no names but numbers. */
export function labels(model: Model, trace: Trace, name: string, axis: string): string[] | null {
  const decoder = name.startsWith("decoder.") || (name === "logits" && trace.target.length > 0);
  if (axis === "S") return names(decoder && !name.includes(".cross.") ? trace.target : trace.source);
  if (axis === "T") return names(decoder ? trace.target : trace.source);
  if (axis === "V" && model.labels?.length) return model.labels;
  return null;
}

/** The letters of a tensor's axes. */
export function axes(trace: Trace, name: string): string[] {
  return trace.tensors[name]?.axes ?? [];
}

/** Which head of keys and values serves a head of queries. */
export function headOf(trace: Trace, name: string, head: number, heads: number): number {
  const own = trace.tensors[name]!.shape[0]!;
  return own === heads ? head : Math.floor((head * own) / heads);
}
