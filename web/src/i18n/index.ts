/** Which dictionary is open. */

import { place } from "../lib/place.svelte";
import { en, type Words } from "./en";
import { zh } from "./zh";

const DICTIONARIES: Record<typeof place.lang, Words> = { en, zh };

export function words(): Words {
  return DICTIONARIES[place.lang];
}

/** The same for a view that brings its own words, which are loaded with it. */
export function wordsOf<W>(dictionaries: Record<typeof place.lang, W>): W {
  return dictionaries[place.lang];
}
