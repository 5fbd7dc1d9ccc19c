/** Words on a plane: where they come on the screen, which of them have room for their name, and how they are drawn. */

import { FONT, LABEL, width as wide, type Inks } from "./draw";
import type { Theme } from "./colours";

export type Kind = "han" | "latin" | "other";

export interface Points {
  words: string[];
  kinds: Kind[];
  x: ArrayLike<number>;
  y: ArrayLike<number>;
  drawn: number[]; // which of them
}

export interface Eye {
  zoom: number;
  midX: number; // of the width of all that is drawn
  midY: number;
}

export interface Dot {
  i: number;
  x: number;
  y: number;
  kind: Kind;
  mark: "" | "chosen" | "near";
}

export interface Name {
  text: string;
  x: number;
  y: number;
  strong: boolean;
}

export interface Scene {
  dots: Dot[];
  names: Name[];
}

const PAD = 28;
const CELL = 48; // of the table in which room for names is looked up

export interface Frame {
  scale: number;
  left: number;
  top: number;
  w: number;
  h: number;
}

/** All points, as large as fits, in the middle; then closer. Up and across have one scale. */
export function frame(points: Points, w: number, h: number): Frame {
  let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const i of points.drawn) {
    left = Math.min(left, points.x[i]!);
    right = Math.max(right, points.x[i]!);
    low = Math.min(low, points.y[i]!);
    high = Math.max(high, points.y[i]!);
  }
  const [across, up] = [right - left || 1, high - low || 1];
  const scale = Math.min((w - 2 * PAD) / across, (h - 2 * PAD) / up);
  return { scale, left, top: high, w: across, h: up };
}

export function scene(points: Points, eye: Eye, w: number, h: number, chosen: number, near: Set<number>): Scene {
  const at = frame(points, w, h);
  const scale = at.scale * eye.zoom;
  const dots: Dot[] = [];
  for (const i of points.drawn) {
    const x = w / 2 + (points.x[i]! - at.left - eye.midX * at.w) * scale;
    const y = h / 2 + (at.top - points.y[i]! - eye.midY * at.h) * scale;
    if (x < -20 || y < -20 || x > w + 20 || y > h + 20) continue;
    dots.push({ i, x, y, kind: points.kinds[i]!, mark: i === chosen ? "chosen" : near.has(i) ? "near" : "" });
  }
  const rank = { chosen: 0, near: 1, "": 2 };
  dots.sort((a, b) => rank[a.mark] - rank[b.mark] || a.i - b.i);
  const names = named(dots, points.words, w, h);
  dots.reverse(); // what matters is drawn last, on top
  return { dots, names };
}

/** Names from the most important on, each if it touches no other. */
function named(dots: Dot[], words: string[], w: number, h: number): Name[] {
  const taken = new Map<number, [number, number, number, number][]>();
  const names: Name[] = [];
  const most = Math.round((w * h) / 1800);
  for (const { i, x, y, mark } of dots) {
    if (names.length >= most) break;
    const text = words[i]!;
    const [x0, y0, y1] = [x + 5, y - LABEL / 2 - 1, y + LABEL / 2 + 1];
    const x1 = x0 + wide(text) + 3;
    if (x1 > w || x0 < 0 || y0 < 0 || y1 > h) continue;
    const cells: number[] = [];
    for (let a = Math.floor(x0 / CELL); a <= Math.floor(x1 / CELL); a++)
      for (let b = Math.floor(y0 / CELL); b <= Math.floor(y1 / CELL); b++) cells.push(a * 1000 + b);
    const hit = cells.some((cell) => taken.get(cell)?.some((box) => box[0] < x1 && x0 < box[1] && box[2] < y1 && y0 < box[3]));
    if (hit) continue;
    for (const cell of cells) taken.set(cell, [...(taken.get(cell) ?? []), [x0, x1, y0, y1]]);
    names.push({ text, x: x0, y, strong: mark !== "" });
  }
  return names;
}

export function colourOf(kind: Kind, theme: Theme): string {
  const colours = theme === "dark" ? { han: "#f0a35c", latin: "#58c7c0", other: "#97a3a2" } : { han: "#b4530f", latin: "#0c7a78", other: "#7b8684" };
  return colours[kind];
}

const SIZE = 2.6;

/** Squares for Chinese characters, discs for Latin letters, diamonds for the rest: told apart without colours too. */
function path(kind: Kind, x: number, y: number, r: number): string {
  const f = (n: number) => n.toFixed(1);
  if (kind === "han") return `M${f(x - r)} ${f(y - r)}h${f(2 * r)}v${f(2 * r)}h${f(-2 * r)}z`;
  if (kind === "latin") return `M${f(x - r)} ${f(y)}a${f(r)} ${f(r)} 0 1 0 ${f(2 * r)} 0a${f(r)} ${f(r)} 0 1 0 ${f(-2 * r)} 0z`;
  return `M${f(x)} ${f(y - r)}L${f(x + r)} ${f(y)}L${f(x)} ${f(y + r)}L${f(x - r)} ${f(y)}z`;
}

export function draw(ctx: CanvasRenderingContext2D, { dots, names }: Scene, w: number, h: number, theme: Theme, inks: Inks): void {
  ctx.clearRect(0, 0, w, h);
  for (const { x, y, kind, mark } of dots) {
    ctx.fillStyle = colourOf(kind, theme);
    ctx.globalAlpha = mark ? 1 : 0.65;
    const r = mark === "chosen" ? 6 : mark ? 4.5 : SIZE;
    ctx.beginPath();
    if (kind === "han") ctx.rect(x - r, y - r, 2 * r, 2 * r);
    else if (kind === "latin") ctx.arc(x, y, r, 0, 2 * Math.PI);
    else {
      ctx.moveTo(x, y - r);
      ctx.lineTo(x + r, y);
      ctx.lineTo(x, y + r);
      ctx.lineTo(x - r, y);
    }
    ctx.fill();
    if (mark) {
      ctx.strokeStyle = inks.text;
      ctx.lineWidth = mark === "chosen" ? 2 : 1;
      ctx.stroke();
    }
  }
  ctx.globalAlpha = 1;
  ctx.textBaseline = "middle";
  ctx.lineJoin = "round";
  for (const { text, x, y, strong } of names) {
    ctx.font = `${strong ? "600 " : ""}${LABEL}px ${FONT}`;
    ctx.strokeStyle = inks.paper;
    ctx.lineWidth = 3;
    ctx.strokeText(text, x, y);
    ctx.fillStyle = inks.text;
    ctx.fillText(text, x, y);
  }
}

export function svg({ dots, names }: Scene, w: number, h: number, theme: Theme, inks: Inks): string {
  const escape = (text: string) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");
  const shapes = dots.map(
    ({ x, y, kind, mark }) =>
      `<path d="${path(kind, x, y, mark === "chosen" ? 6 : mark ? 4.5 : SIZE)}" fill="${colourOf(kind, theme)}"` +
      (mark ? ` stroke="${inks.text}"/>` : ` fill-opacity="0.65"/>`),
  );
  const texts = names.map(
    ({ text, x, y, strong }) =>
      `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" dominant-baseline="central"${strong ? ' font-weight="600"' : ""}>${escape(text)}</text>`,
  );
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}">` +
    `<rect width="100%" height="100%" fill="${inks.paper}"/>${shapes.join("")}` +
    `<g font-family="${escape(FONT)}" font-size="${LABEL}" fill="${inks.text}">${texts.join("")}</g></svg>`
  );
}
