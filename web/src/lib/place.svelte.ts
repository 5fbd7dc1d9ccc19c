/** Where the person is: everything that a link needs to show the same again. It is kept in the address after the #. */

import { seedOf } from "./seed";

export const VIEWS = [
  "walk", "translate", "attention", "next", "gates", "whatif", "compare", "tokens", "vectors", "training", "learn",
] as const;
export type View = (typeof VIEWS)[number];
export type Language = "en" | "zh";

export interface Place {
  view: View;
  lang: Language;
  // what is traced
  model: string;
  text: string;
  second: string;
  to: string;
  trace: string; // a pass that the server has already, as a notebook shows it, "" for one of this text
  more: number; // tokens a language model goes on by, -1: as many as the page likes
  off: string[]; // heads switched off: decoder.1.cross:3
  // walk
  step: string;
  head: number;
  cell: string; // the tensor of which a cell is open, "" for the step's result
  row: number; // the cell that is open, -1 for the one the page likes best
  col: number;
  position: number; // which prediction is looked at, -1 for the last
  // attention
  attention: string;
  as: "matrix" | "arcs";
  over: "one" | "mean" | "max";
  words: number[];
  special: boolean;
  merge: boolean;
  // translate
  round: number;
  layer: number; // -1: mean of all
  beam: number;
  penalty: number;
  // next token
  temperature: number;
  topK: number;
  topP: number;
  seed: number;
  written: number[];
  // gates
  stack: string; // encoder or decoder, "" for the first
  level: number; // which layer
  back: boolean; // the direction that reads from the end
  unit: number; // whose course is drawn, -1 for the mean of all
  far: number; // length of the texts that gradients are measured on
  beside: string; // the model beside it, "" for the one the page likes best, "-" for none
  // what if
  edits: string; // no-scale:decoder.0.self;no-positions:encoder;patch:decoder.1.resid_post:-:2:3
  patched: string; // the text that parts are taken from
  lens: number; // which answer of a reader the lens is over
  lensAfter: boolean; // and whether of the pass with the changes
  tensor: string; // of which the difference is drawn, here and in compare
  // compare
  against: "text" | "model" | "checkpoint";
  withText: string;
  withModel: string;
  by: "" | "place" | "token";
  // tokens
  passage: string; // what is cut into pieces
  left: string; // the two tokenizers: a model, :target:MODEL, :gpt2 or :cl100k
  right: string;
  at: number; // the character that is looked at, -1 for none
  // vectors
  space: string; // whose vectors, "" for those the page likes best
  plane: "pca" | "tsne";
  drawn: number; // how many words
  word: string; // the one that is looked at
  plus: string; // plus − minus + also
  minus: string;
  also: string;
  zoom: number; // 1: all is seen
  midX: number; // what is in the middle, of the plane's width and height
  midY: number;

  // training
  training: "film" | "curves";
  film: string; // the run whose film is shown
  probe: number;
  frame: number;
  look: string; // decoder.1.cross:3, or :mean
  pace: number; // frames a second
  runs: string; // whose courses are drawn, a line each
  measure: string;
  along: "update" | "tokens" | "seconds";
  logarithmic: boolean;

  // learn
  chapter: string; // by its name, "" for the first
  fruit: string; // the dictionary of the first chapter, "" as it is at first
  pair: string; // two scores and a width, of the chapter on scores
}

function language(): Language {
  const kept = remembered("language");
  if (kept === "en" || kept === "zh") return kept;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

/** What Tokens begins with. */
export const FIRST_TEXT = "Hello, my name is Ada. Let us see how GPT-4 cuts a sentence.\n你好，我叫艾达。来看看 GPT-4 怎样切分一句话。";

const DEFAULTS: Place = $state({
  view: "walk",
  lang: language(),
  model: "",
  text: "",
  second: "",
  to: "",
  trace: "",
  more: -1,
  off: [],
  step: "",
  head: 0,
  cell: "",
  row: -1,
  col: -1,
  position: -1,
  attention: "",
  as: "matrix",
  over: "one",
  words: [],
  special: true,
  merge: false,
  round: 0,
  layer: -1,
  beam: 5,
  penalty: 1,
  temperature: 1,
  topK: 0,
  topP: 1,
  seed: 1,
  written: [],
  // gates
  stack: "",
  level: 0,
  back: false,
  unit: -1,
  far: 50,
  beside: "",
  // what if
  edits: "",
  patched: "",
  lens: 0,
  lensAfter: false,
  tensor: "",
  // compare
  against: "text",
  withText: "",
  withModel: "",
  by: "",

  // tokens
  passage: FIRST_TEXT,
  left: ":cl100k",
  right: ":gpt2",
  at: -1,
  // vectors
  space: "",
  plane: "pca",
  drawn: 1000,
  word: "",
  plus: "",
  minus: "",
  also: "",
  zoom: 1,
  midX: 0.5,
  midY: 0.5,

  // training
  training: "film",
  film: "",
  probe: 0,
  frame: 0,
  look: "",
  pace: 4,
  runs: "",
  measure: "loss",
  along: "update",
  logarithmic: false,

  // learn
  chapter: "",
  fruit: "",
  pair: "",
});

const CHOICES: Partial<Record<keyof Place, readonly string[]>> = {
  view: VIEWS,
  lang: ["en", "zh"],
  as: ["matrix", "arcs"],
  over: ["one", "mean", "max"],
  // gates
  stack: ["encoder", "decoder"],
  // what if

  // compare
  against: ["text", "model", "checkpoint"],
  by: ["place", "token"],

  // tokens

  // vectors
  plane: ["pca", "tsne"],

  // training
  training: ["film", "curves"],
  along: ["update", "tokens", "seconds"],

  // learn

};

const RANGES: Partial<Record<keyof Place, readonly [number, number]>> = {
  temperature: [0, 5],
  topP: [0.01, 1],
  beam: [1, 10],
  penalty: [0, 3],
  more: [-1, 200],
  pace: [1, 30],
  far: [2, 100],
  // vectors
  zoom: [1, 200],
  midX: [0, 1],
  midY: [0, 1],
};

const fields = (address: string) => new URLSearchParams(address.replace(/^#/, ""));

function read(address: string): Place {
  const given = fields(address);
  const place: Record<string, unknown> = { ...DEFAULTS, off: [], words: [], written: [] };
  for (const [key, usual] of Object.entries(DEFAULTS) as [keyof Place, unknown][]) {
    const value = given.get(key);
    if (value === null) continue;
    if (key === "seed") place[key] = seedOf(value) ?? usual;
    else if (typeof usual === "number") place[key] = within(Number(value), usual, RANGES[key]);
    else if (typeof usual === "boolean") place[key] = value === "1";
    else if (key === "off") place[key] = value.split(",").filter((x) => /^[\w.]+:\d+$/.test(x));
    else if (Array.isArray(usual)) place[key] = value.split(",").map(Number).filter((x) => Number.isInteger(x) && x >= 0);
    else if (!CHOICES[key] || CHOICES[key].includes(value)) place[key] = value;
  }
  return place as unknown as Place;
}

function within(x: number, usual: number, range?: readonly [number, number]): number {
  if (!Number.isFinite(x)) return usual;
  if (!range) return Math.max(-1, Math.round(x));
  return Math.min(range[1], Math.max(range[0], x));
}

function write(place: Place): string {
  const out = new URLSearchParams();
  for (const [key, usual] of Object.entries(DEFAULTS) as [keyof Place, unknown][]) {
    const value = place[key];
    if (key === "lang" || key === "view" || key === "model" || key === "text") out.set(key, String(value));
    else if (Array.isArray(value)) {
      if (value.length) out.set(key, value.join(","));
    } else if (value !== usual) out.set(key, typeof value === "boolean" ? (value ? "1" : "0") : String(value));
  }
  return "#" + out.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
}

export const place: Place = $state(read(location.hash));

/** What was typed, or a link had, that cannot be: it is shown where it is mended. */
export const refused = $state({ seed: wrongSeed(location.hash) });

function wrongSeed(address: string): string | null {
  const given = fields(address).get("seed");
  return given === null || seedOf(given) !== null ? null : given;
}

const opened = fields(location.hash);

/** An export begins with its own text, unless the link has another. */
export function beginWith(passage: string): void {
  if (!opened.has("passage")) place.passage = passage;
  DEFAULTS.passage = passage;
}

/** Keeps the address in step with the place, and the place with the address when the person goes back or edits it. */
export function follow(): void {
  let turn = "";
  let timer: ReturnType<typeof setTimeout> | undefined;
  $effect.root(() => {
    $effect(() => {
      const address = write(place);
      const now = [place.view, place.model, place.text, place.step, place.attention].join("\n");
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (address === location.hash) return;
        if (turn && now !== turn) history.pushState(null, "", address);
        else history.replaceState(null, "", address);
        turn = now;
      }, 120); // a slider moves faster than an address should
    });
    $effect(() => remember("language", place.lang));
  });
  const back = () => {
    clearTimeout(timer);
    const there = read(location.hash);
    refused.seed = wrongSeed(location.hash);
    if (write(there) !== write(place)) Object.assign(place, there);
  };
  addEventListener("hashchange", back);
  addEventListener("popstate", back);
}

export function link(): string {
  return location.href.split("#")[0] + write(place);
}

// -- what this browser remembers: the language, the theme and which exercises were solved, nothing else

export function remembered(key: string): string | null {
  try {
    return localStorage.getItem(`glassformer.${key}`);
  } catch {
    return null; // storage may be forbidden; then nothing is remembered
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(`glassformer.${key}`, value);
  } catch {
    // see above
  }
}
