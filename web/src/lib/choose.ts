/** Another model, or another text: what was chosen of the one before means nothing any more. */

import { place } from "./place.svelte";
import { session } from "./session.svelte";

export function forget(): void {
  place.trace = "";
  place.off = [];
  place.words = [];
  place.written = [];
  place.round = 0;
  place.position = -1;
  place.row = -1;
  place.col = -1;
}

/** Opens a model with a text, or with its first example. */
export function choose(id: string, text?: string): void {
  place.model = id;
  place.to = "";
  place.step = "";
  place.attention = "";
  place.cell = "";
  place.text = text ?? session.model?.examples[0] ?? "";
  place.second = session.model?.seconds?.[0] ?? "";
  forget();
  void session.run();
}
