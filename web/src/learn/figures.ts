/** Numbers that stand in a sentence: the text has {name}, and these say what is written there. */

import { count, number } from "../lib/format";

export type Figures = Record<string, string>;

/** A number with as many decimals as matter: 12, 0.88, 1.1e−7. */
export function show(x: number, digits = 4): string {
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return x < 0 ? `\u2212${count(-x)}` : count(x);
  const text = number(x, digits);
  return /^[^e]*\.[^e]*$/.test(text) ? text.replace(/\.?0+$/, "") : text;
}

/** The same for many: { a: 1, b: 0.5 } → { a: "1", b: "0.5" }. */
export function shown(numbers: Record<string, number>, digits = 4): Figures {
  return Object.fromEntries(Object.entries(numbers).map(([name, x]) => [name, show(x, digits)]));
}

export function list(numbers: ArrayLike<number>, digits = 4): string {
  return Array.from(numbers, (x) => show(x, digits)).join(", ");
}

/** What a person typed as a number: also with a comma, a long minus, a percent sign or wide digits; NaN if it is none. */
export function typed(text: string): number {
  const plain = text.normalize("NFKC").replace(/[\s\u202f]/g, "").replaceAll("\u2212", "-").replace(/^([^,.]*),([^,.]*)$/, "$1.$2");
  const found = /^([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(%?)$/i.exec(plain);
  return found ? Number(found[1]) / (found[2] ? 100 : 1) : NaN;
}
