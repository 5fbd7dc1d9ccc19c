/** The chapters in their order, each loaded when it is opened, with the names of its exercises. */

import type { Component } from "svelte";

export interface Chapter {
  id: string;
  exercises: string[];
  load: () => Promise<{ default: Component }>;
}

export const CHAPTERS: Chapter[] = [
  { id: "lookup", exercises: ["equal", "apple"], load: () => import("./lookup/Chapter.svelte") },
  { id: "tokens", exercises: ["zeros", "distance"], load: () => import("./tokens/Chapter.svelte") },
  { id: "embedding", exercises: ["size", "nearest"], load: () => import("./embedding/Chapter.svelte") },
  { id: "position", exercises: ["sine", "length"], load: () => import("./position/Chapter.svelte") },
  { id: "qkv", exercises: ["weights", "product"], load: () => import("./qkv/Chapter.svelte") },
  { id: "scores", exercises: ["weight", "scaled"], load: () => import("./scores/Chapter.svelte") },
  { id: "mask", exercises: ["row", "share", "open"], load: () => import("./mask/Chapter.svelte") },
  { id: "heads", exercises: ["width", "sharpest"], load: () => import("./heads/Chapter.svelte") },
  { id: "residual", exercises: ["norm", "changed"], load: () => import("./residual/Chapter.svelte") },
  { id: "ffn", exercises: ["relu", "weights"], load: () => import("./ffn/Chapter.svelte") },
  { id: "rounds", exercises: ["rounds", "product", "keys"], load: () => import("./rounds/Chapter.svelte") },
  { id: "sampling", exercises: ["temperature", "nucleus"], load: () => import("./sampling/Chapter.svelte") },
];
