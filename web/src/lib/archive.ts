/** An export: what the server would answer about one pass, from the files of a folder. What needs the model is refused. */

import { file, floats, Refusal, type Cell, type Operand, type Trace } from "./api";
import { draw, luck } from "./luck";
import { distribution, ranking } from "./sampling";
import { cut, parse, pooled } from "./slices";

interface Manifest {
  id: string;
  ask: { model: string; text: string; second: string | null; to: string | null; max_tokens: number };
  part: number; // numbers in a file
  cells: number; // cells in a file
  arrays: Record<string, { file: string; shape: number[] }>;
}

type Body = Record<string, any>; // as the page's own calls make it
type Line = [equation: string, terms: Cell["terms"], result: number | null, steps: string[]];

function none(what: string): Refusal {
  return new Refusal("export-only", `An export of one pass has no answer to ${what}.`);
}

// -- files, each read once; the latest stay

const KEPT = 96;
const read = new Map<string, Promise<unknown>>();

function once<T>(path: string, bring: (path: string) => Promise<T>): Promise<T> {
  const found = (read.get(path) as Promise<T> | undefined) ?? bring(`export/${path}`);
  read.delete(path);
  read.set(path, found); // last used, last dropped
  found.catch(() => read.delete(path));
  for (const old of read.keys()) {
    if (read.size <= KEPT) break;
    read.delete(old);
  }
  return found;
}

const json = <T>(path: string) => once<T>(path, async (path) => (await file(path)).json());
const reply = <T = unknown>(name: string) => json<T>(`replies/${name}.json`);
const manifest = json<Manifest>("manifest.json");

async function unpacked(path: string): Promise<ArrayBuffer> {
  const packed = await file(path);
  return new Response(packed.body!.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

// -- numbers

async function shapeOf(name: string): Promise<number[]> {
  const found = (await manifest).arrays[name];
  if (!found) throw new Refusal("unknown-tensor", `This export has no ${name}.`, { name });
  return found.shape;
}

/** The numbers [from, to) of an array, row by row. */
async function range(name: string, from: number, to: number): Promise<Float32Array> {
  const { part, arrays } = await manifest;
  const out = new Float32Array(to - from);
  const first = Math.floor(from / part);
  const parts = Array.from({ length: Math.floor((to - 1) / part) - first + 1 }, (_, i) =>
    once(`arrays/${arrays[name]!.file}.${first + i}.bin`, async (path) => floats(await unpacked(path))),
  );
  (await Promise.all(parts)).forEach((data, i) => {
    const start = (first + i) * part;
    const [a, b] = [Math.max(from, start), Math.min(to, start + part)];
    out.set(data.subarray(a - start, b - start), a - from);
  });
  return out;
}

/** A part of an array: an index, which drops the axis, or a range of each axis. */
async function slice(name: string, entries: (number | readonly [number, number])[]): Promise<{ data: Float32Array; shape: number[] }> {
  const shape = await shapeOf(name);
  return cut((from, to) => range(name, from, to), shape, entries);
}

async function tensor(name: string, query: URLSearchParams): Promise<Response> {
  const { data, shape } = await slice(`tensor/${name}`, parse(query.get("slice") ?? "", await shapeOf(`tensor/${name}`)));
  const most = Number(query.get("pool") ?? 0);
  if (!most || !shape.length) return raw(data, shape);
  const overview = pooled(data, shape, most, query.get("pooling") === "max");
  return raw(overview.data, overview.shape);
}

function raw(data: Float32Array, shape: number[]): Response {
  return new Response(data as Float32Array<ArrayBuffer>, { headers: { "X-Shape": shape.join() } });
}

// -- cells

async function cell({ name, index }: Body): Promise<Response> {
  const { cells } = await manifest;
  const shape = await shapeOf(`tensor/${name}`);
  const flat = (index as number[]).reduce((at, i, axis) => at * shape[axis]! + i, 0);
  const lines = await once(`cells/${name}.${Math.floor(flat / cells)}.bin`, async (path): Promise<Line[]> => JSON.parse(new TextDecoder().decode(await unpacked(path))));
  const [equation, terms, result, steps] = lines[flat % cells]!;
  const value = (await range(`tensor/${name}`, flat, flat + 1))[0]!;
  const difference = result === null ? (Number.isFinite(value) ? null : 0) : Math.abs(result - value);
  return Response.json({ name, index, value, equation, terms: await filled(terms), result, steps, difference });
}

/** The terms with the values of their operands. */
async function filled<T>(term: T): Promise<T> {
  if (Array.isArray(term)) return (await Promise.all(term.map(filled))) as T;
  if (typeof term !== "object" || term === null) return term;
  if (!("name" in term && "index" in term)) {
    const entries = Object.entries(term).map(async ([key, each]) => [key, await filled(each)] as const);
    return Object.fromEntries(await Promise.all(entries)) as T;
  }
  const { name, index, weight } = term as unknown as Operand & { weight: boolean };
  const from = `${weight ? "weight" : "tensor"}/${name}`;
  const shape = await shapeOf(from);
  const { data } = await slice(from, index.map((i, axis) => i ?? ([0, shape[axis]!] as const)));
  return { ...term, ...(index.includes(null) ? { values: Array.from(data) } : { value: data[0] }) };
}

// -- writing

async function ours(body: Body): Promise<Manifest["ask"]> {
  const { ask } = await manifest;
  if (body["model"] !== ask.model || body["text"] !== ask.text || (body["to"] && body["to"] !== ask.to)) throw none("another text");
  if (body["edits"]?.length) throw none("a change");
  return ask;
}

async function trace(body: Body): Promise<Response> {
  const ask = await ours(body);
  if ((body["second"] ?? null) !== ask.second || (body["max_tokens"] ?? 0) !== ask.max_tokens || body["target"]) throw none("another text");
  return Response.json(await reply("trace"));
}

async function next(body: Body): Promise<Response> {
  await ours(body);
  const written: number[] = body["written"];
  const ids = (await reply<Trace>("trace")).answer.ids ?? [];
  const [rounds, size] = (await shapeOf("next")) as [number, number];
  if (written.length >= rounds || written.some((id, i) => id !== ids[i])) throw none("other tokens than those of the answer");
  const logits = await range("next", written.length * size, (written.length + 1) * size);
  if (body["full"]) return raw(logits, [size]);
  const settings = { temperature: body["temperature"], topK: body["top_k"], topP: body["top_p"] };
  const { final } = distribution(logits, ranking(logits), settings);
  const id = draw(final, luck(body["seed"], written.length));
  return Response.json({ drawn: { id, text: (await spelled("target"))[id]![0] } });
}

async function beam(body: Body): Promise<Response> {
  await ours(body);
  if (body["length_penalty"] !== 1) throw none("another length penalty");
  return Response.json(await reply(`beam-${Number(body["beam"])}`));
}

// -- words

type Spelled = [text: string, special: boolean][];

async function spelled(side: string): Promise<Spelled> {
  const sides = await reply<Record<string, Spelled>>("words");
  return sides[side] ?? sides["source"]!;
}

async function words(body: Body): Promise<Response> {
  const known = await spelled(body["side"] ?? "target");
  return Response.json({ words: (body["ids"] as number[]).map((id) => ({ id, text: known[id]?.[0] ?? `#${id}`, special: known[id]?.[1] ?? false })) });
}

async function tokenize(body: Body): Promise<Response> {
  const cuts = await reply<{ text: string; side: string; told: unknown }[]>("tokenize");
  const found = cuts.find((one) => one.text === body["text"] && one.side === body["side"]);
  if (!found) throw none("another text");
  return Response.json(found.told);
}

async function distance(body: Body): Promise<Response> {
  const { asked, told } = await reply<{ asked: number; told: unknown }>("distance");
  if (body["length"] !== asked) throw none("another length");
  return Response.json(told);
}

async function patterns(query: URLSearchParams): Promise<Response> {
  const [probe, first, count] = ["probe", "first", "count"].map((key) => Number(query.get(key))) as [number, number, number];
  const { frames } = await reply<{ frames: unknown[] }>("film");
  const all = await once(`arrays/film-${probe}.bin`, unpacked);
  const size = all.byteLength / frames.length;
  return new Response(all.slice(first * size, (first + count) * size));
}

// -- which is which

const PLAIN: Record<string, (body: Body, query: URLSearchParams) => Promise<Response>> = {
  ...Object.fromEntries(
    ["models", "notation", "runs", "runs/log", "runs/film"].map((name) => [`api/${name}`, async () => Response.json(await reply(name.split("/").at(-1)!))]),
  ),
  "api/trace": trace,
  "api/next": next,
  "api/beam": beam,
  "api/words": words,
  "api/tokenize": tokenize,
  "api/distance": distance,
  "api/runs/film/patterns": (_, query) => patterns(query),
};

export async function answer(address: string, init?: RequestInit): Promise<Response> {
  const [path, search] = address.split("?") as [string, string?];
  const query = new URLSearchParams(search ?? "");
  const body: Body = init?.body ? JSON.parse(String(init.body)) : {};
  const of = /^api\/trace\/[^/]+\/(tensor|cell|lens)(?:\/([^/]+))?$/.exec(path);
  const known = PLAIN[path];
  let found: Response;
  if (known) found = await known(body, query);
  else if (of?.[1] === "tensor") found = await tensor(decodeURIComponent(of[2] ?? ""), query);
  else if (of?.[1] === "cell") found = await cell(body);
  else if (of?.[1] === "lens") found = Response.json(await reply(`lens-${Number(body["place"])}`));
  else throw none(path);
  init?.signal?.throwIfAborted();
  return found;
}
