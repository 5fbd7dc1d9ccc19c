/** A matrix of which only what is looked at is loaded: whole if it is small, else a pooled overview and tiles. */

import { api, type Tensor, type TensorInfo, type Trace } from "./api";

export interface Overview {
  data: Float32Array;
  rows: number;
  cols: number;
}

type Load = (r0: number, r1: number, c0: number, c1: number) => Promise<Float32Array>;
type Pool = (size: number) => Promise<Overview>;

export interface Parts {
  name: string;
  lead?: string; // the leading indices of the slice, as in the address: "2," for head 2
  rows: number;
  cols: number;
  low: number;
  high: number;
  load: Load;
  pool: Pool;
  index?: (row: number, col: number) => number[];
  tile?: readonly [rows: number, cols: number];
}

const WHOLE = 1 << 16; // numbers that are fetched at once
export const OVERVIEW = 256;

export class Grid {
  readonly name: string;
  readonly lead: string;
  readonly rows: number;
  readonly cols: number;
  readonly low: number;
  readonly high: number;
  readonly index: ((row: number, col: number) => number[]) | null;
  overview: Overview | null = null;
  onload: () => void = () => {};
  onerror: (error: unknown) => void = () => {};
  private readonly tileRows: number;
  private readonly tileCols: number;
  private readonly tiles = new Map<number, Float32Array | null>();
  private asked = false;

  constructor(private readonly parts: Parts) {
    this.name = parts.name;
    this.lead = parts.lead ?? "";
    this.rows = parts.rows;
    this.cols = parts.cols;
    this.low = parts.low;
    this.high = parts.high;
    this.index = parts.index ?? null;
    const small = this.rows * this.cols <= WHOLE && !parts.tile;
    this.tileRows = Math.max(1, small ? this.rows : (parts.tile?.[0] ?? Math.min(this.rows, 128)));
    this.tileCols = Math.max(1, small ? this.cols : (parts.tile?.[1] ?? Math.min(this.cols, 256)));
  }

  /** Whether one fetch brings everything. */
  get whole(): boolean {
    return this.tileRows >= this.rows && this.tileCols >= this.cols;
  }

  /** The number at a cell, or undefined while it is not here. */
  value(row: number, col: number): number | undefined {
    const tile = this.tiles.get(this.key(row, col));
    if (!tile) return undefined;
    const width = Math.min(this.tileCols, this.cols - Math.floor(col / this.tileCols) * this.tileCols);
    return tile[(row % this.tileRows) * width + (col % this.tileCols)];
  }

  /** Begins to load what is missing of a part; `onload` is called as it comes. */
  want(r0: number, r1: number, c0: number, c1: number): void {
    for (let r = Math.floor(r0 / this.tileRows) * this.tileRows; r < r1; r += this.tileRows)
      for (let c = Math.floor(c0 / this.tileCols) * this.tileCols; c < c1; c += this.tileCols) void this.bring(r, c);
  }

  wantOverview(): void {
    if (this.asked) return;
    this.asked = true;
    this.parts.pool(OVERVIEW).then(
      (overview) => {
        this.overview = overview;
        this.onload();
      },
      (error) => this.onerror(error),
    );
  }

  /** All numbers, row by row. */
  async all(): Promise<Float32Array> {
    const tasks: Promise<void>[] = [];
    for (let r = 0; r < this.rows; r += this.tileRows)
      for (let c = 0; c < this.cols; c += this.tileCols) tasks.push(this.bring(r, c));
    await Promise.all(tasks);
    const out = new Float32Array(this.rows * this.cols);
    for (let r = 0; r < this.rows; r++)
      for (let c = 0; c < this.cols; c++) out[r * this.cols + c] = this.value(r, c) ?? NaN;
    return out;
  }

  /** Other numbers in the same place, as of another frame; what is small is one tile. */
  replace(data: Float32Array): void {
    this.tiles.set(this.key(0, 0), data);
    this.coming.set(this.key(0, 0), Promise.resolve());
    this.onload();
  }

  private key(row: number, col: number): number {
    return Math.floor(row / this.tileRows) * 1e6 + Math.floor(col / this.tileCols);
  }

  private readonly coming = new Map<number, Promise<void>>();

  private bring(row: number, col: number): Promise<void> {
    const key = this.key(row, col);
    const under = this.coming.get(key);
    if (under) return under;
    const r1 = Math.min(this.rows, row + this.tileRows);
    const c1 = Math.min(this.cols, col + this.tileCols);
    const task = this.parts.load(row, r1, col, c1).then(
      (data) => {
        if (this.coming.get(key) !== task) return; // replaced meanwhile
        this.tiles.set(key, data);
        this.onload();
      },
      (error) => {
        this.coming.delete(key);
        this.onerror(error);
      },
    );
    this.coming.set(key, task);
    return task;
  }
}

// -- tensors, fetched once

const kept = new Map<string, Promise<Tensor>>();
const KEPT = 400;

export function tensor(trace: Trace, name: string, slice: string, pool = "", pooling = "mean"): Promise<Tensor> {
  const query = `slice=${encodeURIComponent(slice)}` + (pool ? `&pool=${pool}&pooling=${pooling}` : "");
  const key = `${trace.id} ${name} ${query}`;
  let found = kept.get(key);
  if (!found) {
    found = api.tensor(trace.id, name, query);
    found.catch(() => kept.delete(key));
  } else kept.delete(key);
  kept.set(key, found); // last used, last dropped
  for (const old of kept.keys()) {
    if (kept.size <= KEPT) break;
    kept.delete(old);
  }
  return found;
}

function info(trace: Trace, name: string): TensorInfo {
  const found = trace.tensors[name];
  if (!found) throw new Error(`this trace has no tensor ${name}`);
  return found;
}

/** One matrix of a tensor: the last two axes, with the leading one (a head) fixed; a vector is a matrix of one row. */
export function matrixOf(trace: Trace, name: string, lead: number[] = [], pooling = "mean"): Grid {
  const { shape, min, max } = info(trace, name);
  const vector = shape.length - lead.length === 1;
  const rows = vector ? 1 : shape[shape.length - 2]!;
  const cols = shape[shape.length - 1]!;
  const start = lead.map((i) => `${i},`).join("");
  return new Grid({
    name,
    lead: start,
    rows,
    cols,
    low: min,
    high: max,
    load: async (r0, r1, c0, c1) =>
      (await tensor(trace, name, vector ? `${start}${c0}:${c1}` : `${start}${r0}:${r1},${c0}:${c1}`)).data,
    pool: async (size) => {
      const { data, shape } = await tensor(trace, name, vector ? `${start}:` : `${start}:,:`, String(size), pooling);
      const cols = shape[shape.length - 1]!;
      return { data, rows: data.length / cols, cols };
    },
    index: (row, col) => (vector ? [...lead, col] : [...lead, row, col]),
  });
}

/** The heads of a tensor (H, T, d) beside one another: T × H·d, as W_O reads them. */
export function besideOneAnother(trace: Trace, name: string): Grid {
  const { shape, min, max } = info(trace, name);
  const [heads, rows, size] = shape as [number, number, number];
  const turn = (data: Float32Array, height: number): Float32Array => {
    const out = new Float32Array(data.length);
    for (let h = 0; h < heads; h++)
      for (let r = 0; r < height; r++)
        out.set(data.subarray((h * height + r) * size, (h * height + r + 1) * size), r * heads * size + h * size);
    return out;
  };
  return new Grid({
    name,
    rows,
    cols: heads * size,
    low: min,
    high: max,
    tile: [Math.max(1, Math.min(rows, Math.floor((WHOLE * 2) / (heads * size)))), heads * size],
    load: async (r0, r1) => turn((await tensor(trace, name, `:,${r0}:${r1},:`)).data, r1 - r0),
    pool: async () => {
      const height = Math.min(rows, Math.max(1, Math.floor((WHOLE * 2) / (heads * size))));
      return { data: turn((await tensor(trace, name, `:,0:${height},:`)).data, height), rows: height, cols: heads * size };
    },
    index: (row, col) => [Math.floor(col / size), row, col % size],
  });
}

/** Numbers that are here already: made of named tensors by the page, which says how. */
export function made(name: string, data: Float32Array, rows: number, cols: number): Grid {
  let low = Infinity;
  let high = -Infinity;
  for (const x of data)
    if (Number.isFinite(x)) {
      if (x < low) low = x;
      if (x > high) high = x;
    }
  return new Grid({
    name,
    rows,
    cols,
    low,
    high,
    load: async (r0, r1, c0, c1) => {
      if (c0 === 0 && c1 === cols) return data.subarray(r0 * cols, r1 * cols);
      const out = new Float32Array((r1 - r0) * (c1 - c0));
      for (let r = r0; r < r1; r++) out.set(data.subarray(r * cols + c0, r * cols + c1), (r - r0) * (c1 - c0));
      return out;
    },
    pool: async (size) => pooled(data, rows, cols, size),
  });
}

/** The largest of each small square. */
function pooled(data: Float32Array, rows: number, cols: number, size: number): Overview {
  const fy = Math.ceil(rows / size);
  const fx = Math.ceil(cols / size);
  const height = Math.ceil(rows / fy);
  const width = Math.ceil(cols / fx);
  const out = new Float32Array(height * width).fill(-Infinity);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < cols; c++) {
      const at = Math.floor(r / fy) * width + Math.floor(c / fx);
      out[at] = Math.max(out[at]!, data[r * cols + c]!);
    }
  return { data: out, rows: height, cols: width };
}

/** A whole matrix of a tensor, in as many slices as the limit on one answer asks for. */
export async function everything(trace: Trace, name: string, lead: number[]): Promise<Float32Array> {
  const { shape } = info(trace, name);
  const rows = shape[shape.length - 2]!;
  const cols = shape[shape.length - 1]!;
  const start = lead.map((i) => `${i},`).join("");
  const at = Math.max(1, Math.floor(200_000 / cols));
  const out = new Float32Array(rows * cols);
  const tasks: Promise<void>[] = [];
  for (let r = 0; r < rows; r += at)
    tasks.push(
      tensor(trace, name, `${start}${r}:${Math.min(rows, r + at)},:`).then(({ data }) => out.set(data, r * cols)),
    );
  await Promise.all(tasks);
  return out;
}
