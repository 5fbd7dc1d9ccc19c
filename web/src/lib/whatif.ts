/** The changes of a pass: as they stand in the address, and as the server is asked for them. */

import type { Edit, Trace } from "./api";

/** One change. `head-off:decoder.0.self:3`, `no-scale:decoder.0.self`, `patch:decoder.1.resid_post:HEAD:HERE:THERE`, `-` for all. */
export interface Change {
  kind: "head-off" | "no-scale" | "no-mask" | "no-positions" | "patch";
  path: string; // an attention, a stack, or a tensor
  head: number | null;
  here: number | null;
  there: number | null;
}

const KINDS = ["head-off", "no-scale", "no-mask", "no-positions", "patch"];

export function parse(text: string): Change[] {
  return text.split(";").flatMap((one) => {
    const [kind, path, ...places] = one.split(":");
    if (!KINDS.includes(kind ?? "") || !/^[\w.]+$/.test(path ?? "")) return [];
    const [head, here, there] = [0, 1, 2].map((i) => (/^\d+$/.test(places[i] ?? "") ? Number(places[i]) : null)) as [number | null, number | null, number | null];
    return kind === "head-off" && head === null ? [] : [{ kind: kind as Change["kind"], path: path!, head, here, there }];
  });
}

export function written(changes: Change[]): string {
  const place = (i: number | null) => (i === null ? "-" : String(i));
  return changes
    .map(({ kind, path, head, here, there }) =>
      kind === "patch" ? [kind, path, place(head), place(here), place(there)].join(":") : head === null ? `${kind}:${path}` : `${kind}:${path}:${head}`,
    )
    .join(";");
}

/** Those that this pass can have, for the server; patches need the other pass. */
export function asEdits(changes: Change[], trace: Trace, other: Trace | null): Edit[] {
  return changes.flatMap((one): Edit[] => {
    if (!fits(one, trace)) return [];
    if (one.kind === "head-off") return [{ kind: one.kind, path: one.path, head: one.head! }];
    if (one.kind !== "patch") return [{ kind: one.kind, path: one.path }];
    return other ? [{ kind: "patch", name: one.path, other: other.id, head: one.head, position: one.here, other_position: one.there }] : [];
  });
}

/** Whether a pass has what is to be changed: another model may not. */
export function fits(change: Change, trace: Trace): boolean {
  if (change.kind === "patch") return change.path in trace.tensors;
  if (change.kind === "no-positions") return placed(trace).includes(change.path);
  const pattern = trace.tensors[`${change.path}.pattern`];
  return pattern !== undefined && (change.head === null || change.head < pattern.shape[0]!);
}

/** Stacks that know where their tokens stand, as far as a pass shows: what is added to the embedding. Rotary ones are the model's. */
export function placed(trace: Trace, rotary = true): string[] {
  return ["encoder", "decoder"].filter(
    (stack) => `${stack}.embed.position` in trace.tensors || (rotary && Object.keys(trace.tensors).some((name) => name.startsWith(`${stack}.`) && name.endsWith(".self.q"))),
  );
}

/** Which axis of a tensor stands for positions: its rows, or of keys and values what is looked at. */
export function positionAxis(axes: string[]): number {
  return axes.findIndex((letter) => letter === "T" || letter === "S");
}

export function headed(axes: string[]): boolean {
  return axes[0] === "H" || axes[0] === "K";
}

/** The attentions that hide something: what a decoder's tokens look at among themselves. */
export function masked(path: string): boolean {
  return path.startsWith("decoder.") && path.endsWith(".self");
}
