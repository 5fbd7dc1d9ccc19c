/** Which attention, head and token a chapter looks at: what the person chose, as far as this trace has it. */

import type { Token, Trace } from "../lib/api";
import { attentions } from "../lib/attend";
import { place } from "../lib/place.svelte";

export interface Chosen {
  path: string;
  paths: string[];
  head: number;
  heads: number;
  row: number;
  from: Token[]; // who looks
  to: Token[]; // what is looked at
}

export function chosen(trace: Trace, only: (path: string) => boolean = () => true): Chosen {
  const all = attentions(trace).filter((one) => only(one.path));
  const own = all.filter((one) => one.kind !== "cross"); // a text that looks at itself comes first
  const here = all.find((one) => one.path === place.attention) ?? own[0] ?? all[0]!;
  const from = here.kind === "encoder" ? trace.source : trace.target;
  const to = here.kind === "decoder" ? trace.target : trace.source;
  return {
    path: here.path,
    paths: all.map((one) => one.path),
    head: Math.min(place.head, here.heads - 1),
    heads: here.heads,
    row: tokenOf(from),
    from,
    to,
  };
}

/** The token that is looked at: the second at first, for the first is often a sign of the model's own. */
export function tokenOf(tokens: Token[]): number {
  return Math.min(place.row < 0 ? 1 : place.row, tokens.length - 1);
}

/** The text as the model reads it: the source, or what a language model goes on from and writes. */
export function readOf(trace: Trace): { stack: "encoder" | "decoder"; tokens: Token[] } {
  return trace.source.length ? { stack: "encoder", tokens: trace.source } : { stack: "decoder", tokens: trace.target };
}
