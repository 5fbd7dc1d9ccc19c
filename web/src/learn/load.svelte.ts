/** Numbers of the trace that a chapter speaks of. */

import type { Trace } from "../lib/api";
import { everything, tensor } from "../lib/grid";
import { session } from "../lib/session.svelte";

/** What `ask` promises, once it is here; null while it is not. What was asked before it is forgotten. */
export function load<T>(ask: () => Promise<T> | null): { readonly value: T | null } {
  let value = $state.raw<T | null>(null);
  $effect(() => {
    let stale = false;
    value = null;
    ask()?.then(
      (found) => {
        if (!stale) value = found;
      },
      (error) => session.report(error),
    );
    return () => {
      stale = true;
    };
  });
  return {
    get value() {
      return value;
    },
  };
}

/** One row of a tensor as plain numbers: the indices before its last axis are given. */
export async function row(trace: Trace, name: string, ...at: number[]): Promise<number[]> {
  const { data } = await tensor(trace, name, [...at, ":"].join());
  return Array.from(data);
}

/** One matrix of a tensor as rows of plain numbers; `lead` fixes the axes before the last two. */
export async function rows(trace: Trace, name: string, ...lead: number[]): Promise<number[][]> {
  const data = await everything(trace, name, lead);
  const width = trace.tensors[name]!.shape.at(-1)!;
  return Array.from({ length: data.length / width }, (_, r) => Array.from(data.subarray(r * width, (r + 1) * width)));
}
