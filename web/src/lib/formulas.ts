/** The formula of each step as MathML, which browsers draw by themselves. The same in both languages. */

import type { Model } from "./api";
import { scaled } from "./notes";
import { additive, causal, type Step } from "./steps";

export const i = (x: string) => `<mi>${x}</mi>`;
export const o = (x: string) => `<mo>${x}</mo>`;
export const n = (x: string | number) => `<mn>${x}</mn>`;
export const fn = (x: string) => `<mi mathvariant="normal">${x}</mi>`;
export const sub = (a: string, b: string) => `<msub>${a}${b}</msub>`;
export const sup = (a: string, b: string) => `<msup>${a}${b}</msup>`;
export const frac = (a: string, b: string) => `<mfrac><mrow>${a}</mrow><mrow>${b}</mrow></mfrac>`;
export const root = (a: string) => `<msqrt>${a}</msqrt>`;
export const call = (f: string, ...inside: string[]) => fn(f) + o("(") + inside.join(o(",")) + o(")");

export const W = (x: string) => sub(i("W"), i(x));
export const b = (x: string) => sub(i("b"), i(x));
export const transposed = (x: string) => sup(x, i("T"));
export const dk = sub(i("d"), i("k"));
export const eq = o("=");

function activation(model: Model): string {
  const pre = i("pre");
  switch (model.options["activation"]) {
    case "relu":
      return fn("max") + o("(") + n(0) + o(",") + pre + o(")");
    case "swiglu":
      return call("silu", pre) + o("⊙") + i("gate");
    case "silu":
      return call("silu", pre);
    default:
      return call("GELU", pre);
  }
}

function norm(model: Model): string[] {
  if (model.options["norm_kind"] === "rms") {
    return [
      fn("rms") + eq + root(call("mean", sup(i("x"), n(2))) + o("+") + i("ε")),
      i("y") + eq + i("γ") + o("·") + frac(i("x"), fn("rms")),
    ];
  }
  return [
    i("μ") + eq + call("mean", i("x")) + o(",") + i("σ") + eq + root(call("var", i("x")) + o("+") + i("ε")),
    i("y") + eq + i("γ") + o("·") + frac(i("x") + o("−") + i("μ"), i("σ")) + o("+") + i("β"),
  ];
}

function position(model: Model): string[] {
  if (model.options["positions"] !== "sinusoidal") return [i("P") + o("[") + i("pos") + o("]")];
  const angle = o("(") + i("pos") + o("/") + sup(n(10000), `<mrow>${n(2)}${i("i")}${o("/")}${i("D")}</mrow>`) + o(")");
  return [
    sub(i("P"), `<mrow>${i("pos")}${o(",")}${n(2)}${i("i")}</mrow>`) + eq + fn("sin") + angle,
    sub(i("P"), `<mrow>${i("pos")}${o(",")}${n(2)}${i("i")}${o("+")}${n(1)}</mrow>`) + eq + fn("cos") + angle,
  ];
}

/** One or more lines of MathML; none where a formula would say nothing. */
export function formula(model: Model, step: Step): string[] {
  const x = i("x");
  const m = step.path.endsWith(".cross") ? i("m") : x;
  switch (step.kind) {
    case "token":
      return [(scaled(model) ? root(i("D")) + o("·") : "") + i("E") + o("[") + i("id") + o("]")];
    case "position":
      return position(model);
    case "type":
      return [sub(i("E"), fn("type")) + o("[") + i("0 | 1") + o("]")];
    case "sum":
      return [x + eq + step.operands.map((panel) => fn(panel.name.split(".").pop()!)).join(o("+"))];
    case "norm":
      return norm(model);
    case "qkv":
      return [
        i("Q") + eq + x + W("Q") + o("+") + b("Q"),
        i("K") + eq + m + W("K") + o("+") + b("K"),
        i("V") + eq + m + W("V") + o("+") + b("V"),
      ].map((line) => (model.options["bias"] === false ? line.split(o("+"))[0]! : line));
    case "scores":
      return additive(model)
        ? [transposed(i("w")) + call("tanh", i("q") + o("+") + i("k"))]
        : [i("S") + eq + i("Q") + transposed(i("K"))];
    case "scaled":
      return additive(model) ? [] : [frac(i("Q") + transposed(i("K")), root(dk))];
    case "masked":
      return causal(step) ? [sub(i("S"), `<mrow>${i("t")}${i("s")}</mrow>`) + eq + o("−") + n("∞") + o(",") + i("s") + o("&gt;") + i("t")] : [];
    case "pattern":
      return [
        sub(i("A"), `<mrow>${i("t")}${i("s")}</mrow>`) + eq +
          frac(sup(i("e"), sub(i("S"), `<mrow>${i("t")}${i("s")}</mrow>`)),
            `<munder>${o("∑")}${i("u")}</munder>` + sup(i("e"), sub(i("S"), `<mrow>${i("t")}${i("u")}</mrow>`))),
      ];
    case "z":
      return [i("Z") + eq + i("A") + i("V")];
    case "heads":
      return [call("concat", sub(i("Z"), n(1)), o("…"), sub(i("Z"), i("H")))];
    case "out":
      return [call("concat", i("Z")) + W("O") + (model.options["bias"] === false ? "" : o("+") + b("O"))];
    case "add":
      return [i("y") + eq + x + o("+") + call("f", x)];
    case "ffnPre":
      return [i("pre") + eq + x + W("1") + (model.options["bias"] === false ? "" : o("+") + b("1"))];
    case "ffnGate":
      return [i("gate") + eq + x + W("3")];
    case "ffnAct":
      return [i("act") + eq + activation(model)];
    case "ffnOut":
      return [i("act") + W("2") + (model.options["bias"] === false ? "" : o("+") + b("2"))];
    case "transformed":
      return [call("LayerNorm", call("f", x + i("W") + o("+") + i("b")))];
    case "dense":
      return [call("tanh", i("pooled") + i("W") + o("+") + i("b"))];
    case "logits":
      return [i("logits") + eq + x + transposed(i("W"))];
    case "temperature":
      return [sub(i("l"), i("i")) + o("/") + i("T")];
    case "softmax":
    case "labels":
      return [sub(i("p"), i("i")) + eq + frac(sup(i("e"), sub(i("l"), i("i"))), `<munder>${o("∑")}${i("j")}</munder>` + sup(i("e"), sub(i("l"), i("j"))))];
    case "topP":
      return [`<munder>${o("∑")}${i("i")}</munder>` + sub(i("p"), i("i")) + o("≥") + i("p")];
    default:
      return [];
  }
}
