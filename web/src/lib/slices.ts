/** Parts of tensors, cut as glassformer/server/slices.py cuts them: `0,:,2:5` takes the first of axis 0, all of axis 1 and three of
 * axis 2. */

import { Refusal } from "./api";

export type Entry = number | readonly [from: number, to: number]; // an index drops its axis

export function parse(text: string, shape: number[]): Entry[] {
  const entries = text.trim() ? text.split(",") : [];
  return shape.map((size, axis) => {
    const found = /^\s*(?:(\d+)|(\d*):(\d*))\s*$/.exec(entries[axis] ?? ":");
    if (!found || entries.length > shape.length) throw new Refusal("bad-slice", text);
    if (found[1] !== undefined && Number(found[1]) < size) return Number(found[1]);
    const [from, to] = [Number(found[2] || 0), found[3] ? Number(found[3]) : size];
    if (found[1] !== undefined || !(from < to && to <= size)) throw new Refusal("out-of-range", text);
    return [from, to] as const;
  });
}

/** The part of a tensor of this shape, of which `range` brings the numbers [from, to), row by row. */
export async function cut(
  range: (from: number, to: number) => Promise<Float32Array>,
  shape: number[],
  entries: Entry[],
): Promise<{ data: Float32Array; shape: number[] }> {
  const strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1));
  const ranges = entries.map((entry) => (typeof entry === "number" ? ([entry, entry + 1] as const) : entry));
  const first = ranges.reduce((at, [from], axis) => at + from * strides[axis]!, 0);
  const last = ranges.reduce((at, [, to], axis) => at + (to - 1) * strides[axis]!, 0);
  const held = await range(first, last + 1);
  const out = new Float32Array(ranges.reduce((size, [from, to]) => size * (to - from), 1));
  let n = 0;
  const walk = (axis: number, at: number): void => {
    if (axis === shape.length) {
      out[n++] = held[at - first]!;
      return;
    }
    const [from, to] = ranges[axis]!;
    if (axis === shape.length - 1) {
      out.set(held.subarray(at + from - first, at + to - first), n);
      n += to - from;
    } else for (let i = from; i < to; i++) walk(axis + 1, at + i * strides[axis]!);
  };
  walk(0, 0);
  return { data: out, shape: ranges.flatMap(([from, to], axis) => (typeof entries[axis] === "number" ? [] : [to - from])) };
}

/** Each of the last two axes cut to at most `most` entries, each the mean or the largest of some neighbours. −∞ does not count in a
 * mean, unless there is nothing else. */
export function pooled(data: Float32Array, shape: number[], most: number, largest: boolean): { data: Float32Array; shape: number[] } {
  const [rows, cols] = shape.length > 1 ? [shape.at(-2)!, shape.at(-1)!] : [1, shape[0]!];
  const [high, wide] = [Math.ceil(rows / most), Math.ceil(cols / most)];
  const [height, width] = [Math.ceil(rows / high), Math.ceil(cols / wide)];
  const count = data.length / (rows * cols || 1);
  const out = new Float32Array(count * height * width);
  for (let m = 0, n = 0; m < count; m++)
    for (let r = 0; r < rows; r += high)
      for (let c = 0; c < cols; c += wide) {
        let [sum, known, top] = [0, 0, -Infinity];
        for (let i = r; i < Math.min(rows, r + high); i++)
          for (let j = c; j < Math.min(cols, c + wide); j++) {
            const x = data[(m * rows + i) * cols + j]!;
            top = Math.max(top, x);
            if (Number.isFinite(x)) {
              sum += x;
              known++;
            }
          }
        out[n++] = largest ? top : known ? sum / known : -Infinity;
      }
  return { data: out, shape: shape.length > 1 ? [...shape.slice(0, -2), height, width] : [width] };
}
