/** How a matrix is laid out and drawn: on the screen's canvas, in a PNG, in an SVG. */

import { colour, ink, painter, type Domain, type Scale, type Theme } from "./colours";
import { brief } from "./format";
import type { Grid } from "./grid";

export const FONT = 'system-ui, -apple-system, "Segoe UI", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", "Noto Sans SC", sans-serif';

export interface Look {
  scale: Scale;
  span: Domain;
  theme: Theme;
  rowLabels: string[] | null; // null: numbers
  colLabels: string[] | null;
  groups: number; // a line after every so many columns, 0 for none
}

export interface Layout {
  cw: number; // size of a cell
  ch: number;
  gutter: number; // room for the labels of rows
  header: number; // and of columns
  upright: boolean; // column labels stand on end
}

export interface Port {
  x: number; // how far the cells are scrolled
  y: number;
  w: number; // size of the picture
  h: number;
}

export interface Marks {
  cursor: { row: number; col: number } | null;
  rows: number[];
  cols: number[];
}

export interface Inks {
  text: string;
  faint: string;
  accent: string;
  paper: string;
}

export const LABEL = 12;
const LONGEST = 96;

let ruler: CanvasRenderingContext2D | null = null;
const measured = new Map<string, number>();

export function width(text: string): number {
  const known = measured.get(text);
  if (known !== undefined) return known;
  ruler ??= document.createElement("canvas").getContext("2d")!;
  ruler.font = `${LABEL}px ${FONT}`;
  const found = ruler.measureText(text).width;
  if (measured.size > 20_000) measured.clear();
  measured.set(text, found);
  return found;
}

function longest(labels: string[] | null, size: number): number {
  if (!labels) return width(String(Math.max(0, size - 1)));
  let most = 0;
  for (const label of labels) most = Math.max(most, width(label));
  return Math.min(LONGEST, most);
}

export function clip(text: string, room: number): string {
  if (width(text) <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && width(letters.join("") + "…") > room) letters.pop();
  return letters.join("") + "…";
}

export interface Wish {
  square: boolean;
  room: number; // width there is
  zoom: number; // 0 is what fits
  compact: boolean;
}

/** Cells as large as fit the width, within what a person can read, times the zoom. */
export function layout(grid: Grid, look: Look, { square, room, zoom, compact }: Wish): Layout {
  const gutter = Math.ceil(longest(look.rowLabels, grid.rows)) + 12;
  const free = Math.max(40, room - gutter - 2);
  const factor = 1.5 ** zoom;
  let cw = free / grid.cols;
  let ch: number;
  if (square) {
    const most = compact ? Math.max(10, Math.min(26, 240 / grid.rows)) : 42;
    cw = Math.min(most, cw) * factor;
    ch = Math.min(cw, 42);
  } else {
    cw = Math.min(44, cw) * factor;
    const tall = grid.rows <= 24 ? 18 : grid.rows <= 60 ? 13 : Math.max(1.5, 420 / grid.rows);
    ch = zoom > 0 ? Math.max(tall, Math.min(18, tall * factor)) : tall;
  }
  cw = Math.min(cw, 64);
  const label = longest(look.colLabels, grid.cols);
  const upright = look.colLabels !== null && label > cw - 3;
  return { cw, ch, gutter, header: upright ? Math.ceil(label) + 12 : 20, upright };
}

export function extent(grid: Grid, l: Layout): { width: number; height: number } {
  return { width: Math.ceil(l.gutter + grid.cols * l.cw) + 1, height: Math.ceil(l.header + grid.rows * l.ch) + 1 };
}

/** Below this, cells are too small to be told apart, and a pooled overview is drawn until the person looks closer. */
export function coarse(grid: Grid, l: Layout): boolean {
  return !grid.whole && (l.cw < 3 || l.ch < 1.5);
}

function span(from: number, size: number, room: number, count: number): [number, number] {
  return [Math.max(0, Math.floor(from / size)), Math.min(count, Math.ceil((from + room) / size))];
}

export function visible(grid: Grid, l: Layout, port: Port): [number, number, number, number] {
  const [r0, r1] = span(port.y, l.ch, port.h - l.header, grid.rows);
  const [c0, c1] = span(port.x, l.cw, port.w - l.gutter, grid.cols);
  return [r0, r1, c0, c1];
}

export function draw(ctx: CanvasRenderingContext2D, grid: Grid, look: Look, l: Layout, port: Port, marks: Marks, inks: Inks): void {
  ctx.clearRect(0, 0, port.w, port.h);
  const [r0, r1, c0, c1] = visible(grid, l, port);
  ctx.save();
  ctx.beginPath();
  ctx.rect(l.gutter, l.header, port.w - l.gutter, port.h - l.header);
  ctx.clip();
  cells(ctx, grid, look, l, port, [r0, r1, c0, c1]);
  if (l.cw >= 9 && l.ch >= 9) lines(ctx, l, port, [r0, r1, c0, c1], inks.paper);
  if (look.groups) groups(ctx, look.groups, l, port, [r0, r1, c0, c1], inks.faint);
  if (l.cw >= 34 && l.ch >= 14) values(ctx, grid, look, l, port, [r0, r1, c0, c1]);
  frames(ctx, grid, l, port, marks, inks);
  ctx.restore();
  labels(ctx, grid, look, l, port, marks, inks, [r0, r1, c0, c1]);
}

type Range = readonly [number, number, number, number];

let stage: HTMLCanvasElement | null = null;

function cells(ctx: CanvasRenderingContext2D, grid: Grid, look: Look, l: Layout, port: Port, [r0, r1, c0, c1]: Range): void {
  if (r1 <= r0 || c1 <= c0) return;
  const over = grid.overview;
  const rough = coarse(grid, l) && over;
  const [fr, fc] = rough ? [grid.rows / over.rows, grid.cols / over.cols] : [1, 1];
  const [a0, a1, b0, b1] = rough
    ? [Math.floor(r0 / fr), Math.min(over.rows, Math.ceil(r1 / fr)), Math.floor(c0 / fc), Math.min(over.cols, Math.ceil(c1 / fc))]
    : [r0, r1, c0, c1];
  const number = (r: number, c: number) => (rough ? over.data[r * over.cols + c] : (grid.value(r, c) ?? guess(grid, r, c)));
  const step = Math.max(1, Math.floor(1 / (l.cw * fc))); // columns that share a point of the screen
  const image = new ImageData(Math.ceil((b1 - b0) / step), a1 - a0);
  const paint = painter(look.scale, look.span, look.theme);
  let at = 0;
  for (let r = a0; r < a1; r++)
    for (let c = b0; c < b1; c += step, at += 4) {
      const x = step === 1 ? number(r, c) : loudest(number, r, c, Math.min(b1, c + step));
      if (x === undefined) continue; // not here yet: left empty
      paint(image.data, at, x);
    }
  stage ??= document.createElement("canvas");
  stage.width = image.width;
  stage.height = image.height;
  stage.getContext("2d")!.putImageData(image, 0, 0);
  ctx.imageSmoothingEnabled = false;
  const [w, h] = [l.cw * fc, l.ch * fr];
  ctx.drawImage(stage, l.gutter + b0 * w - port.x, l.header + a0 * h - port.y, image.width * w * step, image.height * h);
}

/** Of cells too narrow to be seen, the one that stands out most is drawn. */
function loudest(number: (r: number, c: number) => number | undefined, row: number, from: number, to: number): number | undefined {
  let found = number(row, from);
  for (let c = from + 1; c < to; c++) {
    const x = number(row, c);
    if (x !== undefined && (found === undefined || Math.abs(x) > Math.abs(found))) found = x;
  }
  return found;
}

/** While a tile is on its way, its place shows the overview. */
function guess(grid: Grid, row: number, col: number): number | undefined {
  const over = grid.overview;
  if (!over) return undefined;
  const r = Math.min(over.rows - 1, Math.floor((row * over.rows) / grid.rows));
  const c = Math.min(over.cols - 1, Math.floor((col * over.cols) / grid.cols));
  return over.data[r * over.cols + c];
}

function lines(ctx: CanvasRenderingContext2D, l: Layout, port: Port, [r0, r1, c0, c1]: Range, paper: string): void {
  ctx.fillStyle = paper;
  const right = l.gutter + c1 * l.cw - port.x;
  const bottom = l.header + r1 * l.ch - port.y;
  for (let r = r0; r <= r1; r++) ctx.fillRect(l.gutter, l.header + r * l.ch - port.y - 0.5, right - l.gutter, 1);
  for (let c = c0; c <= c1; c++) ctx.fillRect(l.gutter + c * l.cw - port.x - 0.5, l.header, 1, bottom - l.header);
}

function groups(ctx: CanvasRenderingContext2D, size: number, l: Layout, port: Port, [r0, r1, c0, c1]: Range, faint: string): void {
  ctx.fillStyle = faint;
  const top = l.header + r0 * l.ch - port.y;
  for (let c = Math.ceil(Math.max(1, c0) / size) * size; c < c1; c += size)
    ctx.fillRect(l.gutter + c * l.cw - port.x - 0.5, top, 1, (r1 - r0) * l.ch);
}

function values(ctx: CanvasRenderingContext2D, grid: Grid, look: Look, l: Layout, port: Port, [r0, r1, c0, c1]: Range): void {
  ctx.font = `${l.cw >= 40 ? 11 : 10}px ${FONT}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (let r = r0; r < r1; r++)
    for (let c = c0; c < c1; c++) {
      const x = grid.value(r, c);
      if (x === undefined) continue;
      ctx.fillStyle = ink(x, look.scale, look.span, look.theme);
      ctx.fillText(brief(x), l.gutter + (c + 0.5) * l.cw - port.x, l.header + (r + 0.5) * l.ch - port.y + 0.5);
    }
}

function frames(ctx: CanvasRenderingContext2D, grid: Grid, l: Layout, port: Port, marks: Marks, inks: Inks): void {
  const frame = (r: number, c: number, rows: number, cols: number, style: string, line: number) => {
    ctx.strokeStyle = style;
    ctx.lineWidth = line;
    const [w, h] = [Math.max(3, cols * l.cw), Math.max(3, rows * l.ch)];
    ctx.strokeRect(l.gutter + c * l.cw - port.x + line / 2, l.header + r * l.ch - port.y + line / 2, w - line, h - line);
  };
  for (const r of marks.rows) if (r < grid.rows) frame(r, 0, 1, grid.cols, inks.accent, 1.5);
  for (const c of marks.cols) if (c < grid.cols) frame(0, c, grid.rows, 1, inks.accent, 1.5);
  if (marks.cursor) {
    frame(marks.cursor.row, marks.cursor.col, 1, 1, inks.paper, 4);
    frame(marks.cursor.row, marks.cursor.col, 1, 1, inks.text, 2);
  }
}

function every(size: number, room: number): number {
  return Math.max(1, Math.ceil(room / size));
}

function labels(
  ctx: CanvasRenderingContext2D, grid: Grid, look: Look, l: Layout, port: Port, marks: Marks, inks: Inks, [r0, r1, c0, c1]: Range,
): void {
  const place = (on: boolean) => {
    ctx.font = `${on ? "600 " : ""}${LABEL}px ${FONT}`;
    ctx.fillStyle = on ? inks.text : inks.faint;
  };
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, l.header - 2, l.gutter, port.h - l.header + 2);
  ctx.clip();
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const down = every(l.ch, 12);
  for (let r = r0; r < r1; r++) {
    const on = r === marks.cursor?.row || marks.rows.includes(r);
    if (r % down && !on) continue;
    if (down > 1 && marks.cursor && !on && Math.abs(r - marks.cursor.row) < down) continue;
    place(on);
    ctx.fillText(clip(look.rowLabels ? (look.rowLabels[r] ?? "") : String(r), l.gutter - 10), l.gutter - 7, l.header + (r + 0.5) * l.ch - port.y);
  }
  ctx.restore();
  ctx.save();
  ctx.beginPath();
  ctx.rect(l.gutter - 10, 0, port.w - l.gutter + 10, l.header); // the first label is wider than a narrow column
  ctx.clip();
  const across = every(l.cw, l.upright ? 13 : look.colLabels ? 1 : width(String(grid.cols)) + 8);
  for (let c = c0; c < c1; c++) {
    const on = c === marks.cursor?.col || marks.cols.includes(c);
    if (c % across && !on) continue;
    if (across > 1 && marks.cursor && !on && Math.abs(c - marks.cursor.col) < across) continue;
    place(on);
    const name = look.colLabels ? (look.colLabels[c] ?? "") : String(c);
    const text = clip(name, l.upright ? l.header - 10 : 80);
    const x = l.gutter + (c + 0.5) * l.cw - port.x;
    if (l.upright && width(name) > l.cw - 2) {
      ctx.save();
      ctx.translate(x, l.header - 6);
      ctx.rotate(-Math.PI / 2);
      ctx.textAlign = "left";
      ctx.textBaseline = "middle";
      ctx.fillText(text, 0, 0);
      ctx.restore();
    } else {
      ctx.textAlign = "center";
      ctx.textBaseline = "alphabetic";
      ctx.fillText(text, x, l.header - 6);
    }
  }
  ctx.restore();
}

// -- the same as a file

export function escape(text: string): string {
  return text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
}

const FEW = 20_000; // cells that a drawing program opens without pain

export function svg(grid: Grid, data: Float32Array, look: Look, l: Layout, inks: Inks): string {
  const { width: w, height: h } = extent(grid, l);
  const out = [`<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" font-family="${escape(FONT)}" font-size="${LABEL}">`];
  out.push(`<rect width="${w}" height="${h}" fill="${inks.paper}"/>`);
  if (grid.rows * grid.cols <= FEW) {
    for (let r = 0; r < grid.rows; r++)
      for (let c = 0; c < grid.cols; c++)
        out.push(`<rect x="${(l.gutter + c * l.cw).toFixed(2)}" y="${(l.header + r * l.ch).toFixed(2)}" width="${l.cw.toFixed(2)}" height="${l.ch.toFixed(2)}" fill="${colour(data[r * grid.cols + c]!, look.scale, look.span, look.theme)}"/>`);
  } else {
    out.push(`<image x="${l.gutter}" y="${l.header}" width="${grid.cols * l.cw}" height="${grid.rows * l.ch}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${bitmap(grid, data, look)}"/>`);
  }
  const down = every(l.ch, 12);
  for (let r = 0; r < grid.rows; r += down)
    out.push(`<text x="${l.gutter - 7}" y="${(l.header + (r + 0.5) * l.ch + 4).toFixed(1)}" text-anchor="end" fill="${inks.text}">${escape(look.rowLabels ? (look.rowLabels[r] ?? "") : String(r))}</text>`);
  const across = every(l.cw, l.upright ? 13 : look.colLabels ? 1 : 40);
  for (let c = 0; c < grid.cols; c += across) {
    const x = (l.gutter + (c + 0.5) * l.cw).toFixed(1);
    const name = look.colLabels ? (look.colLabels[c] ?? "") : String(c);
    const text = escape(name);
    out.push(
      l.upright && width(name) > l.cw - 2
        ? `<text transform="translate(${Number(x) + 4} ${l.header - 6}) rotate(-90)" fill="${inks.text}">${text}</text>`
        : `<text x="${x}" y="${l.header - 6}" text-anchor="middle" fill="${inks.text}">${text}</text>`,
    );
  }
  out.push("</svg>");
  return out.join("\n");
}

function bitmap(grid: Grid, data: Float32Array, look: Look): string {
  const canvas = document.createElement("canvas");
  canvas.width = grid.cols;
  canvas.height = grid.rows;
  const image = new ImageData(grid.cols, grid.rows);
  const paint = painter(look.scale, look.span, look.theme);
  data.forEach((x, i) => paint(image.data, 4 * i, x));
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

export function csv(grid: Grid, data: Float32Array, rowLabels: string[] | null, colLabels: string[] | null): string {
  const cell = (text: string) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const head = Array.from({ length: grid.cols }, (_, c) => cell(colLabels ? (colLabels[c] ?? "") : String(c)));
  const rows = [["", ...head].join(",")];
  for (let r = 0; r < grid.rows; r++) {
    const numbers = Array.from(data.subarray(r * grid.cols, (r + 1) * grid.cols), (x) => (x === -Infinity ? "-inf" : String(x)));
    rows.push([cell(rowLabels ? (rowLabels[r] ?? "") : String(r)), ...numbers].join(","));
  }
  return rows.join("\n") + "\n";
}
