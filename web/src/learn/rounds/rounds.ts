/** The rounds in which a text was written. */

import type { Token, Trace } from "../../lib/api";
import { place } from "../../lib/place.svelte";

export interface Rounds {
  given: Token[]; // what stood there before the first round
  written: Token[];
  at: number; // the round that is looked at, from 0
  count: number; // the last one is for the end sign
  position: number; // of the logits of this round
}

export function roundsOf(trace: Trace): Rounds {
  const length = trace.answer.ids?.length ?? 0;
  const begin = trace.target.length - length;
  const at = Math.min(Math.max(0, place.round), length);
  return { given: trace.target.slice(0, begin), written: trace.target.slice(begin), at, count: length + 1, position: begin - 1 + at };
}
