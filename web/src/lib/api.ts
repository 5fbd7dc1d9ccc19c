/** The server's answers as types, and the calls that fetch them. Nothing else in the page talks to the network: a view that brings its
 * own calls makes them with get, post, send and numbers. */

export interface MapStep {
  id: string;
  kind: string;
  layer?: number;
  tensors: string[];
}

export interface Stack {
  name: string;
  steps: MapStep[];
}

export interface Model {
  id: string;
  task: string;
  kind: string;
  title: string;
  parameters: number;
  megabytes: number;
  options: Record<string, unknown>;
  vocabulary: number;
  target_vocabulary?: number; // if what it writes has another one
  eos: number | null; // the token that ends what it writes
  max_length: number;
  languages?: string[];
  both_ways?: boolean;
  labels?: string[];
  examples: string[];
  seconds?: string[];
  map: Stack[];
  checkpoints: { update: number; average: boolean }[]; // weights that its run has kept, perhaps of the moving average
}

/** Words and vectors alone, through which no text passes. */
export type WordVectors = Pick<Model, "id" | "task" | "kind" | "title" | "parameters" | "megabytes" | "options" | "vocabulary">;

export interface Token {
  text: string;
  id: number;
  start: number | null;
  end: number | null;
  special: boolean;
  unknown: boolean; // the vocabulary has no such word
  log_prob?: number | null;
}

export interface TensorInfo {
  shape: number[];
  axes: string[];
  min: number;
  max: number;
  mean: number;
  row: string;
}

export interface Candidate {
  text: string;
  id: number;
  p: number;
}

export interface Answer {
  text?: string | null;
  ids?: number[] | null;
  label?: string | null;
  labels?: Record<string, number> | null;
  score?: number | null;
  probability?: number | null;
  words?: { text: string; label: string; probability: number }[] | null;
  candidates?: Candidate[][] | null;
}

export interface Change {
  position: number;
  token: string;
  before: number;
  after: number;
  top_before: Candidate[];
  top_after: Candidate[];
}

export type Edit =
  | { kind: "head-off"; path: string; head: number }
  | { kind: "no-scale"; path: string }
  | { kind: "no-mask"; path: string }
  | { kind: "force-token"; position: number; token: number }
  | { kind: "no-positions"; path: string }
  | { kind: "patch"; name: string; other: string; head: number | null; position: number | null; other_position: number | null };

export interface Trace {
  id: string;
  model: string;
  task: string;
  text: string;
  second: string | null;
  to: string | null;
  seconds: number | null; // null if the server did not make it
  source: Token[];
  target: Token[];
  answer: Answer;
  tensors: Record<string, TensorInfo>;
  base?: string;
  edits?: Edit[];
  changes?: Change[];
  same?: boolean;
}

export interface NotationRow {
  shape: string;
  equation: string;
  english: string;
  chinese: string;
}

export interface Operand {
  name: string;
  index: (number | null)[];
  values?: (number | null)[]; // a whole axis
  value?: number | null; // or one number
}

export interface Cell {
  value: number | null;
  equation: string;
  terms: Record<string, unknown> & { kind: string };
  result: number | null;
  difference: number | null;
  steps: string[];
}

export interface NextToken {
  id: number;
  text: string;
  logit: number;
  scaled: number | null;
  kept_k: boolean;
  p: number;
  kept_p: boolean;
  final: number;
}

export interface Next {
  vocabulary: number;
  top: NextToken[];
  entropy: number;
  drawn: { id: number; text: string };
  tail: { count: number; p: number };
}

export interface BeamNode {
  node: number;
  parent: number | null;
  token: string;
  id: number;
  log_prob: number;
  total: number;
  score: number;
  fate: "kept" | "pruned" | "finished";
  why: string;
  rank: number; // among the continuations of its round, from 1
}

export interface Beam {
  rounds: BeamNode[][];
  answers: { text: string; score: number; nodes: number[] }[];
  source: Token[];
}

export interface Ask {
  model: string;
  text: string;
  to: string | null;
  second: string | null;
}

/** What went wrong, with the code that the dictionaries translate. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly details: Record<string, unknown> = {},
  ) {
    super(message);
  }
}

export interface Tensor {
  data: Float32Array;
  shape: number[];
}

/** Whether this page is a folder with one pass and no server: then lib/archive.ts answers. */
export const exported = document.querySelector('meta[name="glassformer-export"]') !== null;
const archive = exported ? import("./archive") : null;

const AT_ONCE = 4; // the server takes eight; two tabs may be open
let running = 0;
const waiting: (() => void)[] = [];

async function polite(path: string, init?: RequestInit): Promise<Response> {
  if (archive) return (await archive).answer(path, init);
  if (running >= AT_ONCE) await new Promise<void>((go) => waiting.push(go));
  running++;
  try {
    return await attempt(path, init);
  } finally {
    running--;
    waiting.shift()?.();
  }
}

async function attempt(path: string, init?: RequestInit): Promise<Response> {
  for (let tries = 0; ; tries++) {
    let response: Response;
    try {
      response = await fetch(path, init);
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      throw new Refusal(exported ? "export-file" : "unreachable", String(error));
    }
    if (response.ok) return response;
    if (response.status === 429 && tries < 5) {
      await new Promise((go) => setTimeout(go, 200 * 2 ** tries));
      continue;
    }
    throw await refusal(response);
  }
}

/** A file of an export. */
export const file = (path: string): Promise<Response> => attempt(path);

async function refusal(response: Response): Promise<Refusal> {
  try {
    const body = await response.json();
    if (typeof body.error === "string") return new Refusal(String(body.code ?? ""), body.error, body.details ?? {});
  } catch {
    // not JSON: the status is all there is to say
  }
  return new Refusal(exported ? "export-file" : "status", `${response.status} ${response.statusText}`, { status: response.status });
}

export async function get<T>(path: string): Promise<T> {
  return (await polite(path)).json();
}

export async function bytes(path: string): Promise<Uint8Array> {
  return new Uint8Array(await (await polite(path)).arrayBuffer());
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await send(path, body, signal)).json();
}

export function send(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  return polite(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
}

export async function raw(path: string): Promise<Tensor> {
  return numbers(await polite(path));
}

export async function numbers(response: Response): Promise<Tensor> {
  const data = floats(await response.arrayBuffer());
  const header = response.headers.get("X-Shape") ?? "";
  const shape = header === "" ? [] : header.split(",").map(Number);
  return { data, shape };
}

/** Little-endian float32, whatever this machine's own order is. */
export function floats(buffer: ArrayBuffer): Float32Array {
  if (new Uint8Array(new Uint16Array([1]).buffer)[0] === 1) return new Float32Array(buffer);
  const view = new DataView(buffer);
  return Float32Array.from({ length: buffer.byteLength / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

export const part = encodeURIComponent;

interface Models {
  models: Model[];
  vectors: WordVectors[];
  default: string | null;
  problems: Record<string, string>;
}

export const api = {
  models: () => get<Models>("api/models"),
  notation: () => get<{ rows: Record<string, NotationRow> }>("api/notation"),
  trace: (ask: Ask, more: { target?: number[]; max_tokens?: number } = {}) => post<Trace>("api/trace", { ...ask, ...more }),
  kept: (id: string) => get<Trace>(`api/trace/${part(id)}`),
  edit: (id: string, edits: Edit[]) => post<Trace>(`api/trace/${part(id)}/edit`, { edits }),
  cell: (id: string, name: string, index: number[], signal?: AbortSignal) =>
    post<Cell>(`api/trace/${part(id)}/cell`, { name, index }, signal),
  tensor: (id: string, name: string, query: string) => raw(`api/trace/${part(id)}/tensor/${part(name)}?${query}`),
  next: (body: NextAsk) => post<Next>("api/next", body),
  logits: async (body: NextAsk) => (await numbers(await send("api/next", { ...body, full: true }))).data,
  beam: (body: BeamAsk) => post<Beam>("api/beam", body),
  words: (model: string, ids: number[]) =>
    post<{ words: { id: number; text: string; special: boolean }[] }>("api/words", { model, ids }),
};

export interface NextAsk {
  model: string;
  text: string;
  to: string | null;
  written: number[];
  temperature: number;
  top_k: number;
  top_p: number;
  seed: number;
  edits: Edit[];
}

export interface BeamAsk {
  model: string;
  text: string;
  to: string | null;
  beam: number;
  length_penalty: number;
  edits: Edit[];
}
