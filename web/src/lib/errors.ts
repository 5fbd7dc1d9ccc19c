/** What went wrong, as a sentence in the person's language. */

import type { Words } from "../i18n/en";
import type { Refusal } from "./api";
import { count } from "./format";
import { place } from "./place.svelte";

export function said(w: Words, problem: Refusal): string {
  const known = w.errors[problem.code];
  const { length, limit, unit, model } = problem.details;
  if (known && problem.code === "too-long" && length !== undefined && limit !== undefined)
    return w.tooLong(known, count(Number(length)), count(Number(limit)), unit === "characters" ? "characters" : "tokens");
  if (known && problem.code === "unknown-model" && model) return `${known} (${String(model)})`;
  if (known) return known;
  return place.lang === "en" ? problem.message : `${w.errors["other"]} ${problem.message}`;
}
