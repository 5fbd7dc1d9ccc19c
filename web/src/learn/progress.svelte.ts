/** Which exercises were solved, remembered by this browser if it remembers anything. */

import { remember, remembered } from "../lib/place.svelte";
import { CHAPTERS } from "./chapters";

const KNOWN = new Set(CHAPTERS.flatMap((chapter) => chapter.exercises.map((one) => `${chapter.id}.${one}`)));
const kept = (remembered("learn") ?? "").split(",").filter((id) => KNOWN.has(id));
const solved: Record<string, boolean> = $state(Object.fromEntries(kept.map((id) => [id, true])));

export const all = KNOWN.size;

export function isSolved(id: string): boolean {
  return solved[id] === true;
}

export function solvedOf(chapter: string): number {
  return Object.keys(solved).filter((id) => id.startsWith(`${chapter}.`)).length;
}

export function solvedAll(): number {
  return Object.keys(solved).length;
}

export function solve(id: string): void {
  if (solved[id]) return;
  solved[id] = true;
  remember("learn", Object.keys(solved).join());
}

export function startAgain(): void {
  for (const id of Object.keys(solved)) delete solved[id];
  remember("learn", "");
}
