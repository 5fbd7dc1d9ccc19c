/** Numbers and tokens as a person reads them, the same in both languages. */

const MINUS = "\u2212";

/** A number with about four digits that matter: 0.1234, 12.34, 1.2e−5, −∞. */
export function number(x: number | null | undefined, digits = 4): string {
  if (x === null || x === undefined || Number.isNaN(x)) return "\u2013";
  if (x === Infinity) return "∞";
  if (x === -Infinity) return `${MINUS}∞`;
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text =
    size < 0.5 * 10 ** -digits || size >= 1e6
      ? x.toExponential(1).replace("e+", "e")
      : x.toFixed(Math.max(0, digits - Math.max(0, Math.floor(Math.log10(size)))));
  return text.replaceAll("-", MINUS);
}

/** As short as fits into a cell of a matrix. */
export function brief(x: number): string {
  if (!Number.isFinite(x)) return number(x);
  const size = Math.abs(x);
  const text = size >= 99.5 ? x.toFixed(0) : size >= 9.95 ? x.toFixed(1) : x.toFixed(2);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", MINUS);
}

export function percent(p: number): string {
  if (p > 0 && p < 0.0005) return "< 0.1 %";
  return `${(100 * p).toFixed(p > 0.9995 && p < 1 ? 2 : 1)} %`;
}

export function count(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

export function shape(sizes: readonly number[]): string {
  return sizes.length ? sizes.join(" × ") : "1";
}

/** A token so that nothing about it is invisible: spaces, line ends and control characters are drawn. */
export function token(text: string): string {
  if (text === "") return "∅";
  return text
    .replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length))
    .replaceAll("\n", "↵")
    .replaceAll("\t", "⇥")
    .replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (c) =>
      `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
}
