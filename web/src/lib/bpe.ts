/** Byte-level BPE as GPT-2 and GPT-4 have it: the text is cut by a pattern, then neighbouring bytes are joined, lowest rank first.
 *
 * The vocabularies are those of the package js-tiktoken. Its own loop takes minutes for 10,000 characters without a space, and its
 * patterns mean another white space than the reference has, so both are done here. */

export interface Ranks {
  pat_str: string;
  special_tokens: Record<string, number>;
  bpe_ranks: string; // lines of: ! rank-of-the-first piece piece …, in base64
}

/** A string with one character for each byte: `Map` finds it without a copy. */
type Bytes = string;

export interface Cut {
  id: number;
  bytes: Bytes;
}

export class Bpe {
  readonly size: number;
  private readonly ranks = new Map<Bytes, number>();
  private readonly pattern: RegExp;

  constructor(ranks: Ranks) {
    for (const line of ranks.bpe_ranks.split("\n")) {
      const [, first, ...pieces] = line.split(" ");
      pieces.forEach((piece, i) => this.ranks.set(atob(piece), Number(first) + i));
    }
    this.size = this.ranks.size + Object.keys(ranks.special_tokens).length;
    this.pattern = new RegExp(unicode(ranks.pat_str), "gu");
  }

  /** The pieces of a text. What looks like a special token is text. */
  encode(text: string): Cut[] {
    const out: Cut[] = [];
    for (const [word] of text.matchAll(this.pattern)) this.join(bytesOf(word), out);
    return out;
  }

  private join(word: Bytes, out: Cut[]): void {
    const whole = this.ranks.get(word);
    if (whole !== undefined) {
      out.push({ id: whole, bytes: word });
      return;
    }
    const length = word.length;
    const next = Int32Array.from({ length: length + 1 }, (_, i) => i + 1); // where the part that begins here ends
    const before = Int32Array.from({ length: length + 1 }, (_, i) => i - 1);
    const heap = new Heap();
    const rank = (i: number): number => (next[i]! >= length ? -1 : (this.ranks.get(word.slice(i, next[next[i]!]!)) ?? -1));
    const offer = (i: number): void => {
      const found = i < 0 ? -1 : rank(i);
      if (found >= 0) heap.push(found * PLACES + i);
    };
    for (let i = 0; i < length - 1; i++) offer(i);
    for (let best = heap.pop(); best !== undefined; best = heap.pop()) {
      const i = best % PLACES;
      if (next[i] === GONE || rank(i) !== Math.floor(best / PLACES)) continue; // joined otherwise meanwhile
      const gone = next[i]!;
      next[i] = next[gone]!;
      if (next[i]! <= length) before[next[i]!] = i;
      next[gone] = GONE;
      offer(i);
      offer(before[i]!);
    }
    for (let i = 0; i < length; i = next[i]!) {
      const bytes = word.slice(i, next[i]!);
      out.push({ id: this.ranks.get(bytes)!, bytes });
    }
  }
}

const PLACES = 2 ** 20; // more than the bytes of any text here
const GONE = 2 ** 30;

/** White space as Unicode has it, which JavaScript's \s is not: U+0085 is, U+FEFF is not. ſ is a small s. */
function unicode(pattern: string): string {
  return pattern
    .replaceAll("\\s", "\\p{White_Space}")
    .replaceAll("\\S", "\\P{White_Space}")
    .replace("'s|'S|", "'s|'S|'ſ|");
}

function bytesOf(text: string): Bytes {
  let out = "";
  for (const byte of new TextEncoder().encode(text)) out += String.fromCharCode(byte);
  return out;
}

/** The smallest number first. */
class Heap {
  private readonly all: number[] = [];

  push(x: number): void {
    const all = this.all;
    let i = all.push(x) - 1;
    while (i > 0 && all[(i - 1) >> 1]! > x) {
      all[i] = all[(i - 1) >> 1]!;
      i = (i - 1) >> 1;
    }
    all[i] = x;
  }

  pop(): number | undefined {
    const all = this.all;
    const top = all[0];
    const x = all.pop();
    if (x === undefined || all.length === 0) return top;
    let i = 0;
    for (let child = 1; child < all.length; child = 2 * i + 1) {
      if (child + 1 < all.length && all[child + 1]! < all[child]!) child++;
      if (all[child]! >= x) break;
      all[i] = all[child]!;
      i = child;
    }
    all[i] = x;
    return top;
  }
}
