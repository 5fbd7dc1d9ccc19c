/** The recurrent layers of a trace, and what their tensors are over time. */

import type { Model, Trace } from "./api";
import { everything } from "./grid";

export interface Layer {
  stack: "encoder" | "decoder";
  level: number;
  back: boolean;
  both: boolean; // it reads in two directions
  path: string; // encoder.0.ahead
  leaves: string[]; // gate_f, gate_i …, as far as it has them
}

export const LEAVES = ["gate_f", "gate_i", "gate_r", "gate_z", "candidate", "cell", "gate_o", "hidden"];

export function recurrentLayers(trace: Trace): Layer[] {
  return Object.keys(trace.tensors).flatMap((name) => {
    const found = /^(encoder|decoder)\.(\d+)\.(?:(ahead|back)\.)?hidden$/.exec(name);
    if (!found) return [];
    const path = name.slice(0, -".hidden".length);
    const leaves = LEAVES.filter((leaf) => `${path}.${leaf}` in trace.tensors);
    return [{ stack: found[1] as Layer["stack"], level: Number(found[2]), back: found[3] === "back", both: found[3] !== undefined, path, leaves }];
  });
}

/** A tensor (T, U) as one number for each token: of one unit, or the mean of all; of signed states the mean of their size. */
export async function course(trace: Trace, name: string, unit: number): Promise<Float64Array> {
  const [rows, cols] = trace.tensors[name]!.shape as [number, number];
  const data = await everything(trace, name, []);
  const signed = !name.includes("gate_");
  return Float64Array.from({ length: rows }, (_, t) => {
    if (unit >= 0) return data[t * cols + unit]!;
    let sum = 0;
    for (let u = 0; u < cols; u++) sum += signed ? Math.abs(data[t * cols + u]!) : data[t * cols + u]!;
    return sum / cols;
  });
}

/** Whether another model can do with a text what this one did: of a translation, between the same languages in this direction. */
export function canToo(one: Model, model: Model, trace: Trace): boolean {
  if (one.id === model.id || one.task !== model.task) return false;
  if (model.task !== "translate") return true;
  const spoken = (each: Model) => [...(each.languages ?? [])].sort().join();
  return spoken(one) === spoken(model) && (Boolean(one.both_ways) || one.languages?.[1] === trace.to);
}

/** Those models, Transformers first. */
export function besides(models: Model[], model: Model, trace: Trace): Model[] {
  const same = models.filter((one) => canToo(one, model, trace));
  return [...same.filter((one) => one.kind !== "rnn"), ...same.filter((one) => one.kind === "rnn")];
}

/** The last attention of a trace whose weights say what was looked at: over the source, or else back at what was written. */
export function looking(trace: Trace): string | null {
  const names = Object.keys(trace.tensors).filter((name) => name.endsWith(".pattern"));
  return names.findLast((name) => name.includes(".cross.")) ?? names.at(-1) ?? null;
}
