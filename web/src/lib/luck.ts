/** The draws that a seed means in Glassformer: those of PyTorch's generator on the processor, the Mersenne Twister. */

const [SIZE, MIDDLE] = [624, 397];

/** A number in [0, 1): the one after `before` others. */
export function luck(seed: number, before: number): number {
  const next = twister(seed % 2 ** 32);
  for (let i = 0; i < 2 * before; i++) next(); // each takes two
  const [high, low] = [next(), next()];
  return ((high % 2 ** 21) * 2 ** 32 + low) / 2 ** 53;
}

/** 32 bits at a time. */
function twister(seed: number): () => number {
  const state = new Uint32Array(SIZE);
  state[0] = seed;
  for (let i = 1; i < SIZE; i++) state[i] = Math.imul(1812433253, state[i - 1]! ^ (state[i - 1]! >>> 30)) + i;
  let at = SIZE;
  return () => {
    if (at === SIZE) {
      for (let i = 0; i < SIZE; i++) {
        const y = (state[i]! & 0x80000000) | (state[(i + 1) % SIZE]! & 0x7fffffff);
        state[i] = state[(i + MIDDLE) % SIZE]! ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      at = 0;
    }
    let y = state[at++]!;
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  };
}

/** The token that a number in [0, 1) falls on, if each takes as much room as its probability, in the order of their ids. */
export function draw(final: Float64Array, u: number): number {
  let total = 0;
  let last = 0;
  final.forEach((p, id) => {
    total += p;
    if (p > 0) last = id;
  });
  let sum = 0;
  const found = final.findIndex((p) => (sum += p) > u * total);
  return found < 0 ? last : Math.min(found, last);
}
