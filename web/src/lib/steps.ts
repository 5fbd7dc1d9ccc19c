/** The walk: every step of a pass in the order in which it is computed, from the model's own map. */

import type { Model, Stack, Trace } from "./api";

export type StepKind =
  | "tokens" | "token" | "position" | "type" | "sum"
  | "norm" | "qkv" | "scores" | "scaled" | "masked" | "pattern" | "z" | "heads" | "out" | "add"
  | "ffnPre" | "ffnGate" | "ffnAct" | "ffnOut"
  | "headIn" | "transformed" | "pooled" | "dense"
  | "logits" | "temperature" | "topK" | "softmax" | "topP" | "chosen" | "labels" | "score" | "other";

/** Which cells of an operand a cell of the result was made of. */
export type Mark = "cell" | "row" | "col" | "colAsRow" | "none";

export interface Panel {
  name: string;
  mark: Mark;
  sign: string; // what stands before it: "×", "+"
  beside?: boolean; // heads beside one another
}

export interface Step {
  id: string;
  kind: StepKind;
  box: string; // the box of the map that it belongs to
  stack: string;
  layer: number | null;
  path: string; // encoder.0.self
  operands: Panel[];
  results: Panel[]; // the last is the one whose cells are open at first
}

const SUBLAYER: Record<string, string> = { norm1: "self", norm2: "cross", norm3: "ffn" };

class Walk {
  readonly steps: Step[] = [];
  private box = "";
  private stack = "";
  private layer: number | null = null;
  private path = "";

  constructor(
    private readonly model: Model,
    private readonly trace: Trace,
  ) {}

  run(): Step[] {
    for (const stack of this.model.map) this.walkStack(stack);
    return this.steps;
  }

  private get pre(): boolean {
    return this.model.options["norm"] === "pre";
  }

  private walkStack(stack: Stack): void {
    for (const step of stack.steps) {
      this.box = step.id;
      this.stack = stack.name;
      this.layer = step.layer ?? null;
      this.path = step.id;
      const emit = { embed: this.embed, attention: this.attention, norm: this.norm, ffn: this.ffn, head: this.head, logits: this.logits }[step.kind];
      if (emit) emit.call(this);
      else if (step.kind !== "block") for (const name of step.tensors) this.push("other", name, [], [name]);
    }
  }

  private has(name: string): boolean {
    return name in this.trace.tensors;
  }

  private push(kind: StepKind, id: string, operands: (Panel | string)[], results: (Panel | string)[]): void {
    const whole = (panel: Panel | string): Panel => (typeof panel === "string" ? { name: panel, mark: "none", sign: "" } : panel);
    const there = (panels: (Panel | string)[]) => panels.map(whole).filter((panel) => this.has(panel.name));
    const shown = there(results);
    if (results.length && !shown.length) return;
    this.steps.push({
      id, kind, box: this.box, stack: this.stack, layer: this.layer, path: this.path, operands: there(operands), results: shown,
    });
  }

  private embed(): void {
    const p = this.path;
    this.push("tokens", `${p}.tokens`, [], []);
    this.push("token", `${p}.token`, [], [`${p}.token`]);
    this.push("position", `${p}.position`, [], [`${p}.position`]);
    this.push("type", `${p}.type`, [], [`${p}.type`]);
    const parts = ["token", "position", "type"].filter((part) => this.has(`${p}.${part}`));
    if (parts.length > 1 || !this.has(`${p}.token`))
      this.push("sum", `${p}.sum`, parts.map((part, i) => ({ name: `${p}.${part}`, mark: "cell", sign: i ? "+" : "" })), [`${p}.sum`]);
  }

  /** block.{self,cross,ffn} → what it reads, the stream before it, the stream after it. */
  private around(block: string, part: string): { input: string; before: string; after: string } {
    const cross = this.has(`${block}.cross.out`);
    const [norm, before, after] = {
      self: ["norm1", "resid_pre", "resid_mid"],
      cross: ["norm2", "resid_mid", "resid_cross"],
      ffn: ["norm3", cross ? "resid_cross" : "resid_mid", "resid_post"],
    }[part] as [string, string, string];
    if (this.has(`${block}.hidden`)) return { input: `${block}.hidden`, before: "", after: "" }; // of a recurrent layer
    return { input: this.pre ? `${block}.${norm}.out` : `${block}.${before}`, before: `${block}.${before}`, after: `${block}.${after}` };
  }

  private get memory(): string {
    if (this.has("encoder.norm.out")) return "encoder.norm.out";
    return Object.keys(this.trace.tensors).findLast((name) => /^encoder\.\d+\.(resid_post|joined|hidden)$/.test(name)) ?? "";
  }

  private attention(): void {
    const p = this.path;
    const [block, part] = split(p);
    const { input, before, after } = this.around(block, part);
    this.push("qkv", `${p}.q`, part === "cross" ? [row(input), row(this.memory)] : [row(input)], [`${p}.k`, `${p}.v`, `${p}.q`]);
    this.push("scores", `${p}.scores`, [row(`${p}.q`), { name: `${p}.k`, mark: "colAsRow", sign: additive(this.model) ? "+" : "×" }], [`${p}.scores`]);
    this.push("scaled", `${p}.scaled`, [cell(`${p}.scores`)], [`${p}.scaled`]);
    this.push("masked", `${p}.masked`, [cell(`${p}.scaled`)], [`${p}.masked`]);
    this.push("pattern", `${p}.pattern`, [row(`${p}.masked`)], [`${p}.pattern`]);
    this.push("z", `${p}.z`, [row(`${p}.pattern`), { name: `${p}.v`, mark: "col", sign: "×" }], [`${p}.z`]);
    this.push("heads", `${p}.heads`, [], [{ name: `${p}.z`, mark: "none", sign: "", beside: true }]);
    this.push("out", `${p}.out`, [{ name: `${p}.z`, mark: "row", sign: "", beside: true }], [`${p}.out`]);
    if (this.pre) this.push("add", after, [cell(before), { ...cell(`${p}.out`), sign: "+" }], [after]);
  }

  private norm(): void {
    const [block, part] = split(this.path);
    const sublayer = SUBLAYER[part];
    if (sublayer && !this.pre) {
      const { before } = this.around(block, sublayer);
      const sum = `${this.path}.in`;
      this.push("add", sum, [cell(before), { ...cell(`${block}.${sublayer}.out`), sign: "+" }], [sum]);
    }
    this.normAt(this.path, Boolean(sublayer) && !this.pre);
    if (block === "head") this.push("transformed", "head.transformed", [], ["head.transformed"]);
  }

  private normAt(p: string, shown = false): void {
    const before = shown ? [] : [row(`${p}.in`)];
    this.push("norm", `${p}.out`, before, [`${p}.mean`, `${p}.deviation`, `${p}.rms`, `${p}.scaled`, `${p}.out`]);
  }

  private ffn(): void {
    const p = this.path;
    const [block] = split(p);
    const { input, before, after } = this.around(block, "ffn");
    this.push("ffnPre", `${p}.pre`, [row(input)], [`${p}.pre`]);
    this.push("ffnGate", `${p}.gate`, [row(input)], [`${p}.gate`]);
    this.push("ffnAct", `${p}.act`, [cell(`${p}.pre`), { ...cell(`${p}.gate`), sign: "⊙" }], [`${p}.act`]);
    this.push("ffnOut", `${p}.out`, [row(`${p}.act`)], [`${p}.out`]);
    if (this.pre) this.push("add", after, [cell(before), { ...cell(`${p}.out`), sign: "+" }], [after]);
  }

  private head(): void {
    this.push("headIn", "head.in", [], ["head.in"]);
    this.push("pooled", "head.pooled", ["head.in"], ["head.pooled"]);
    this.push("dense", "head.dense", [row("head.pooled")], ["head.dense"]);
  }

  private logits(): void {
    this.push("logits", "logits", [], ["logits"]);
    const { task } = this.model;
    if (task === "translate" || task === "language")
      for (const kind of ["temperature", "topK", "softmax", "topP", "chosen"] as const) this.push(kind, kind, [], []);
    else this.push(this.trace.answer.score === undefined || this.trace.answer.score === null ? "labels" : "score", "answer", [], []);
  }
}

/** Whether scores are wᵀ tanh(q + k): of a Transformer's attention, or of a recurrent decoder's. */
export function additive(model: Model): boolean {
  return model.options["scores"] === "additive" || model.options["attention"] === "additive";
}

function row(name: string): Panel {
  return { name, mark: "row", sign: "" };
}

function cell(name: string): Panel {
  return { name, mark: "cell", sign: "" };
}

function split(path: string): [string, string] {
  const at = path.lastIndexOf(".");
  return [path.slice(0, at), path.slice(at + 1)];
}

/** Whether what comes later is hidden from a token at this step. */
export function causal(step: Step): boolean {
  return step.stack === "decoder" && !step.path.endsWith(".cross");
}

export function walk(model: Model, trace: Trace): Step[] {
  return new Walk(model, trace).run();
}
