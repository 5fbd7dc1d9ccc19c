/** What is particular to this model at a step, in a sentence or two. */

import type { Words } from "../i18n/en";
import type { Model, Trace } from "./api";
import { additive, causal, type Step } from "./steps";

/** Whether a row of the embedding is multiplied by √D: by all that are not BERT or GPT. */
export function scaled(model: Model): boolean {
  return model.kind !== "gpt" && model.kind !== "bert";
}

export function notes(w: Words, model: Model, trace: Trace, step: Step): string[] {
  const n = w.notes;
  const o = model.options;
  const cross = step.path.endsWith(".cross");
  switch (step.kind) {
    case "token":
      return [
        ...(model.kind === "transformer" ? [n.scaledEmbedding] : scaled(model) ? [n.scaledAlone] : []),
        ...(o["positions"] === "rotary" ? [n.rotary] : []),
        ...(model.kind === "rnn" ? [n.inOrder] : []),
      ];
    case "position":
      return [o["positions"] === "sinusoidal" ? n.sinusoidal : n.learned];
    case "norm":
      return [o["norm"] === "pre" ? n.pre : n.post, ...(o["norm_kind"] === "rms" ? [n.rms] : [])];
    case "qkv": {
      const keys = trace.tensors[`${step.path}.k`]?.shape[0] ?? 1;
      const group = (trace.tensors[`${step.path}.q`]?.shape[0] ?? keys) / keys;
      return [cross ? n.crossRead : n.selfRead, ...(group > 1 ? [n.shared(group)] : []), ...(o["positions"] === "rotary" && !cross ? [n.rotary] : [])];
    }
    case "scores":
      return [...(cross ? [n.crossRead] : []), ...(additive(model) ? [n.additive] : [])];
    case "scaled":
      return additive(model) ? [n.additive] : [];
    case "masked":
      return [causal(step) ? n.causal : n.open];
    case "ffnAct":
      return [{ relu: n.relu, silu: n.silu, swiglu: n.swiglu }[String(o["activation"])] ?? n.gelu];
    case "pooled":
      return [{ last: n.pooledLast, max: n.pooledMax, mean: n.pooledMean }[String(o["pooling"])] ?? n.pooledFirst];
    case "logits":
      return o["tie"] === true || o["tie"] === "all" || o["tie"] === "output" ? [n.tied] : [];
    default:
      return [];
  }
}
