/** From a cell of a matrix to its explanation and back. */

import { tick } from "svelte";

let from: HTMLElement | null = null;

/** Opened by the keyboard, the explanation gets the focus; on a phone it is scrolled to. */
export async function toCell(byKey: boolean): Promise<void> {
  from = document.activeElement instanceof HTMLElement ? document.activeElement : null;
  await tick();
  const title = document.getElementById("cell-title");
  if (byKey) title?.focus();
  else if (innerWidth < 1000) title?.scrollIntoView({ block: "nearest", behavior: "smooth" });
}

export function back(): void {
  from?.focus();
}
