/** Texts in pieces: by the server for its models' vocabularies, here for those of GPT-2 and GPT-4, which are loaded when wanted. */

import { post, type Model } from "./api";
import { Bpe, type Ranks } from "./bpe";

export interface Piece {
  id: number;
  start: number; // characters of the text, not of JavaScript's strings
  end: number;
  bytes: string; // in hex
  unknown: boolean;
}

/** Pieces that share characters: the bytes of one, or a single piece. */
export interface Group {
  text: string;
  start: number;
  end: number;
  pieces: Piece[];
}

export interface Split {
  vocabulary: number;
  characters: number;
  bytes: number; // of the text in UTF-8
  pieces: Piece[];
  groups: Group[];
}

export interface Tokenizer {
  key: string;
  model?: string;
  side?: "source" | "target";
}

const LOADERS: Record<string, () => Promise<{ default: Ranks }>> = {
  ":cl100k": () => import("js-tiktoken/ranks/cl100k_base"),
  ":gpt2": () => import("js-tiktoken/ranks/gpt2"),
};
const loaded = new Map<string, Promise<Bpe>>();

export function tokenizers(models: Model[]): Tokenizer[] {
  const own = models.flatMap((model): Tokenizer[] =>
    model.target_vocabulary === undefined
      ? [{ key: model.id, model: model.id, side: "source" }]
      : [
          { key: model.id, model: model.id, side: "source" },
          { key: `:target:${model.id}`, model: model.id, side: "target" },
        ],
  );
  return [...Object.keys(LOADERS).map((key) => ({ key })), ...own];
}

export async function split(tokenizer: Tokenizer, text: string, signal: AbortSignal): Promise<Split> {
  const characters = [...text];
  const { vocabulary, pieces } = tokenizer.model ? await asked(tokenizer, text, signal) : await here(tokenizer.key, text, characters);
  return {
    vocabulary,
    pieces,
    characters: characters.length,
    bytes: new TextEncoder().encode(text).length,
    groups: grouped(pieces, characters),
  };
}

interface Columns {
  vocabulary: number;
  unknown: number;
  ids: number[];
  starts: number[];
  ends: number[];
  bytes: Record<string, string>;
}

async function asked({ model, side }: Tokenizer, text: string, signal: AbortSignal): Promise<{ vocabulary: number; pieces: Piece[] }> {
  const { vocabulary, unknown, ids, starts, ends, bytes } = await post<Columns>("api/tokenize", { model, text, side }, signal);
  const pieces = ids.map((id, i) => ({ id, start: starts[i]!, end: ends[i]!, bytes: bytes[id] ?? "", unknown: id === unknown }));
  return { vocabulary, pieces };
}

async function here(key: string, text: string, characters: string[]): Promise<{ vocabulary: number; pieces: Piece[] }> {
  let coming = loaded.get(key);
  if (!coming) {
    coming = LOADERS[key]!().then(({ default: ranks }) => new Bpe(ranks));
    coming.catch(() => loaded.delete(key));
    loaded.set(key, coming);
  }
  const bpe = await coming;
  const owner: number[] = []; // the character that each byte belongs to
  characters.forEach((character, i) => {
    for (let n = sizeOf(character); n > 0; n--) owner.push(i);
  });
  let at = 0;
  const pieces = bpe.encode(text).map(({ id, bytes }) => {
    const start = owner[at]!;
    at += bytes.length;
    return { id, start, end: owner[at - 1]! + 1, bytes: hex(bytes), unknown: false };
  });
  return { vocabulary: bpe.size, pieces };
}

/** Bytes of a character in UTF-8; half a surrogate pair becomes U+FFFD, which has three. */
function sizeOf(character: string): number {
  const code = character.codePointAt(0)!;
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

function hex(bytes: string): string {
  let out = "";
  for (let i = 0; i < bytes.length; i++) out += bytes.charCodeAt(i).toString(16).padStart(2, "0");
  return out;
}

function grouped(pieces: Piece[], characters: string[]): Group[] {
  const groups: Group[] = [];
  for (const piece of pieces) {
    const last = groups.at(-1);
    if (last && piece.start < last.end) {
      last.pieces.push(piece);
      last.end = Math.max(last.end, piece.end);
    } else groups.push({ text: "", start: piece.start, end: piece.end, pieces: [piece] });
  }
  for (const group of groups) group.text = characters.slice(group.start, group.end).join("");
  return groups;
}

/** Bytes as they are usually written: E6 88. */
export function spaced(bytes: string): string {
  return bytes.toUpperCase().replace(/(..)(?=.)/g, "$1 ");
}
