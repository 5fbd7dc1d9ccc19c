/** The formula of each chapter. */

import type { Model } from "../lib/api";
import { W, b, call, dk, eq, fn, formula, frac, i, n, o, root, sub, sup, transposed } from "../lib/formulas";
import type { StepKind } from "../lib/steps";

const at = (x: string, ...index: string[]) => sub(i(x), `<mrow>${index.join("")}</mrow>`);
const sum = (over: string) => `<munder>${o("∑")}${i(over)}</munder>`;
const power = (x: string) => sup(i("e"), `<mrow>${x}</mrow>`);
const angle = frac(i("pos"), sup(n(10000), `<mrow>${n(2)}${i("i")}${o("/")}${i("D")}</mrow>`));
const even = [i("pos"), o(","), n(2), i("i")];

export const LAWS = {
  lookup: [
    at("s", i("j")) + eq + i("q") + o("·") + at("k", i("j")) + o(",") + at("w", i("j")) + eq + frac(power(at("s", i("j"))), sum("u") + power(at("s", i("u")))),
    fn("out") + eq + sum("j") + at("w", i("j")) + at("v", i("j")),
  ],
  tokens: [at("x", i("j")) + eq + n(1) + o(",") + i("j") + eq + fn("id") + o(";") + at("x", i("j")) + eq + n(0) + o(",") + i("j") + o("≠") + fn("id")],
  embedding: [i("x") + i("E") + eq + i("E") + o("[") + fn("id") + o("]")],
  position: [
    at("P", ...even) + eq + fn("sin") + o("(") + angle + o(")"),
    at("P", ...even, o("+"), n(1)) + eq + fn("cos") + o("(") + angle + o(")"),
  ],
  shift: [at("P", i("pos"), o("+"), i("k")) + eq + at("R", i("k")) + at("P", i("pos"))],
  qkv: [i("Q") + eq + i("x") + W("Q") + o(",") + i("K") + eq + i("x") + W("K") + o(",") + i("V") + eq + i("x") + W("V")],
  scores: [call("Attention", i("Q"), i("K"), i("V")) + eq + fn("softmax") + o("(") + frac(i("Q") + transposed(i("K")), root(dk)) + o(")") + i("V")],
  mask: [at("S", i("t"), i("s")) + eq + o("−") + n("∞") + o(",") + i("s") + o("&gt;") + i("t") + o(";") + power(o("−") + n("∞")) + eq + n(0)],
  heads: [
    at("Z", i("h")) + eq + fn("softmax") + o("(") + frac(at("Q", i("h")) + transposed(at("K", i("h"))), root(dk)) + o(")") + at("V", i("h")),
    fn("out") + eq + call("concat", at("Z", n(1)), o("…"), at("Z", i("H"))) + W("O"),
  ],
  residual: [
    i("y") + eq + i("x") + o("+") + call("f", i("x")),
    call("LayerNorm", i("x")) + eq + i("γ") + frac(i("x") + o("−") + i("μ"), root(sup(i("σ"), n(2)) + o("+") + i("ε"))) + o("+") + i("β"),
  ],
  ffn: [call("FFN", i("x")) + eq + fn("max") + o("(") + n(0) + o(",") + i("x") + W("1") + o("+") + b("1") + o(")") + W("2") + o("+") + b("2")],
  rounds: [call("P", `${at("y", n(1))}${o("…")}${at("y", i("n"))}${o("|")}${i("x")}`) + eq + `<munder>${o("∏")}${i("t")}</munder>` + call("P", `${at("y", i("t"))}${o("|")}${at("y", n(1))}${o("…")}${at("y", i("t"), o("−"), n(1))}${o(",")}${i("x")}`)],
  sampling: [
    at("p", i("j")) + eq + frac(power(at("l", i("j")) + o("/") + i("T")), sum("u") + power(at("l", i("u")) + o("/") + i("T"))),
    at("p", o("("), n(1), o(")")) + o("+") + o("…") + o("+") + at("p", o("("), i("m"), o(")")) + o("≥") + i("p"),
  ],
} satisfies Record<string, string[]>;

/** The formula as this model has it. */
export function lawOf(model: Model, kind: StepKind): string[] {
  return formula(model, { id: "", kind, box: "", stack: "", layer: null, path: "", operands: [], results: [] });
}
