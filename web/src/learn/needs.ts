/** What a chapter needs of a model, whether the one that is open has it, and which others have. */

import type { Model, Trace } from "../lib/api";

export type Need = "tokens" | "embedding" | "sinusoidal" | "attention" | "causal" | "cross" | "blocks" | "ffn" | "writes";

const TENSORS: Partial<Record<Need, RegExp>> = {
  embedding: /^(en|de)coder\.embed\.token$/,
  sinusoidal: /^(en|de)coder\.embed\.position$/,
  attention: /^(en|de)coder\.\d+\.(self|cross)\.pattern$/,
  causal: /^decoder\.\d+\.self\.masked$/,
  cross: /^decoder\.\d+\.cross\.pattern$/,
  blocks: /^(en|de)coder\.\d+\.resid_mid$/,
  ffn: /^(en|de)coder\.\d+\.ffn\.pre$/,
};

function asked(need: Need, model: Model, names: string[]): boolean {
  if (need === "sinusoidal" && model.options["positions"] !== "sinusoidal") return false;
  if (need === "writes") return model.task === "translate" || model.task === "language";
  const pattern = TENSORS[need];
  return !pattern || names.some((name) => pattern.test(name));
}

export function meets(need: Need, model: Model, trace: Trace): boolean {
  return asked(need, model, Object.keys(trace.tensors));
}

export function offers(need: Need, models: Model[]): Model[] {
  return models.filter((model) => asked(need, model, model.map.flatMap((stack) => stack.steps.flatMap((step) => step.tensors))));
}
