/** What went wrong, as a sentence in the person's language. */

import type { Words } from "../i18n/en";
import { exported, type Refusal } from "./api";
import { count } from "./format";
import { place } from "./place.svelte";

export function said(w: Words, problem: Refusal): string {
  const known = w.errors[problem.code];
  const { length, limit, unit, model } = problem.details;
  if (known && problem.code === "too-long" && length !== undefined && limit !== undefined)
    return w.tooLong(known, count(Number(length)), count(Number(limit)), unit === "characters" ? "characters" : "tokens");
  if (known && problem.code === "unknown-model" && model) return `${exported ? w.exported.noModel : known} (${String(model)})`;
  if (known) return known;
  return place.lang === "en" ? problem.message : `${w.errors["other"]} ${problem.message}`;
}

/** Where asking once more, as it stands, may be answered. */
const PASSING = ["busy", "timeout", "unreachable", "internal", "status", "page", "no-memory", "expired", "unknown-trace", "notebook-gone", "export-file"];

export function passing(problem: Refusal): boolean {
  return PASSING.includes(problem.code);
}
