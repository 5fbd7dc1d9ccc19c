/** How the next token is chosen from its logits, in order: temperature, top-k, softmax, top-p.
 *
 * The same as glassformer/decoding/sampling.py, over the whole vocabulary, fast enough to follow a slider.
 */

export interface Settings {
  temperature: number;
  topK: number; // 0: all
  topP: number; // 1: all
}

export interface Distribution {
  order: Uint32Array; // ids, largest logit first
  scaled: Float64Array; // logit ÷ temperature, by id
  afterK: Float64Array; // softmax over those that top-k kept, by id
  final: Float64Array; // over those that top-p kept as well, by id
  keptK: number; // how many top-k kept
  keptP: number; // how many of them top-p kept
  entropy: number; // of `final`, in nats
}

/** Ids by falling logit; of equal logits the smaller id first. */
export function ranking(logits: ArrayLike<number>): Uint32Array {
  return Uint32Array.from(logits, (_, i) => i).sort((a, b) => logits[b]! - logits[a]! || a - b);
}

export function distribution(logits: ArrayLike<number>, order: Uint32Array, settings: Settings): Distribution {
  const size = logits.length;
  const { temperature, topK, topP } = settings;
  const greedy = temperature === 0;
  const scaled = Float64Array.from(logits, (x) => (greedy ? x : x / temperature));
  const keptK = greedy ? 1 : topK > 0 ? Math.min(topK, size) : size;

  const afterK = new Float64Array(size);
  const largest = scaled[order[0]!]!;
  let total = 0;
  for (let rank = 0; rank < keptK; rank++) {
    const id = order[rank]!;
    total += afterK[id] = Math.exp(scaled[id]! - largest);
  }
  for (let rank = 0; rank < keptK; rank++) afterK[order[rank]!]! /= total;

  const final = new Float64Array(size);
  let before = 0; // what likelier tokens hold already
  let keptP = 0;
  for (let rank = 0; rank < keptK && (topP >= 1 || before < topP || rank === 0); rank++) {
    const id = order[rank]!;
    before += final[id] = afterK[id]!;
    keptP++;
  }
  let entropy = 0;
  for (let rank = 0; rank < keptP; rank++) {
    const id = order[rank]!;
    const p = (final[id]! /= before);
    if (p > 0) entropy -= p * Math.log(p);
  }
  return { order, scaled, afterK, final, keptK, keptP, entropy };
}

export function softmax(row: ArrayLike<number>): Float64Array {
  let largest = -Infinity;
  for (let i = 0; i < row.length; i++) largest = Math.max(largest, row[i]!);
  const out = Float64Array.from(row, (x) => Math.exp(x - largest));
  const total = out.reduce((sum, x) => sum + x, 0);
  return out.map((x) => x / total);
}
