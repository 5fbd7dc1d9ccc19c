/** Light or dark: as the system says, or as the person chose. */

import { remember, remembered } from "./place.svelte";
import type { Theme } from "./colours";
import type { Inks } from "./draw";

const system = matchMedia("(prefers-color-scheme: dark)");
const kept = remembered("theme");

export const theme = $state({
  choice: (kept === "light" || kept === "dark" ? kept : "auto") as "auto" | Theme,
  system: (system.matches ? "dark" : "light") as Theme,
});

system.addEventListener("change", () => (theme.system = system.matches ? "dark" : "light"));

export function shown(): Theme {
  return theme.choice === "auto" ? theme.system : theme.choice;
}

export function choose(choice: Theme): void {
  theme.choice = choice;
  remember("theme", choice);
}

/** The page's inks, for what is drawn on a canvas or exported. */
export function inks(now: Theme): Inks {
  return now === "dark"
    ? { text: "#e8eceb", faint: "#97a3a2", accent: "#58c7c0", paper: "#171b1c" }
    : { text: "#1c2625", faint: "#66716f", accent: "#0c7a78", paper: "#ffffff" };
}
