/** A seed: a whole number that the server takes, and that the page can hold exactly. */

export const MOST = 2 ** 53;

/** The seed that is written there, or null. */
export function seedOf(text: string): number | null {
  return /^\d{1,16}$/.test(text) && BigInt(text) <= BigInt(MOST) ? Number(text) : null;
}
