/** What the page has got from the server: the models, the notation, and the trace of the text as it stands. */

import { api, Refusal, type Edit, type Model, type NotationRow, type Trace } from "./api";
import { place } from "./place.svelte";

const GO_ON = 12; // tokens a language model writes unless the person says otherwise

class Session {
  models: Model[] = $state.raw([]);
  notation: Record<string, NotationRow> = $state.raw({});
  base: Trace | null = $state.raw(null);
  edited: Trace | null = $state.raw(null);
  busy = $state(false);
  problem: Refusal | null = $state.raw(null);
  spells = false; // whether the server spells any token of a vocabulary
  private turn = 0;
  private renewed = 0;
  private ran = ""; // what was traced last, and with which heads off
  private switched = "";

  /** The trace that is drawn: the edited one while heads are off. */
  get trace(): Trace | null {
    return this.edited ?? this.base;
  }

  get model(): Model | null {
    return this.models.find((model) => model.id === place.model) ?? null;
  }

  async begin(): Promise<void> {
    try {
      const [{ models, default: first, words }, { rows }] = await Promise.all([api.models(), api.notation()]);
      this.spells = words ?? false;
      this.models = models;
      this.notation = rows;
      if (!models.some((model) => model.id === place.model)) {
        if (place.model) this.problem = new Refusal("unknown-model", place.model, { model: place.model });
        place.model = first || (models[0]?.id ?? "");
        place.text = "";
      }
      if (!place.text) place.text = this.model?.examples[0] ?? "";
      const missing = this.problem;
      await this.run();
      this.problem ??= missing;
      this.follow();
    } catch (error) {
      this.report(error);
    }
  }

  private get asked(): string {
    return JSON.stringify([place.model, place.text, place.second, place.to, place.more]);
  }

  /** When the person goes back, or changes the address, what is shown follows. */
  private follow(): void {
    $effect.root(() => {
      $effect(() => {
        const [asked, off] = [this.asked, place.off.join()];
        if (asked !== this.ran) void this.run();
        else if (off !== this.switched) void this.switchHeads([...place.off]);
      });
    });
  }

  /** Traces the text of this place, and edits the trace if heads are off. */
  async run(): Promise<void> {
    this.ran = this.asked;
    this.switched = place.off.join();
    const model = this.model;
    if (!model) return;
    const turn = ++this.turn;
    this.busy = true;
    this.problem = null;
    try {
      const ask = { model: model.id, text: place.text, to: place.to || null, second: model.task === "compare" ? place.second : null };
      const more = model.task === "language" ? { max_tokens: place.more < 0 ? GO_ON : place.more } : {};
      const trace = await api.trace(ask, more);
      if (turn !== this.turn) return;
      const edits = asEdits(place.off).filter((edit) => edit.kind === "head-off" && `${edit.path}.pattern` in trace.tensors);
      const edited = edits.length ? await api.edit(trace.id, edits) : null;
      if (turn !== this.turn) return;
      this.base = trace;
      this.edited = edited;
      learn(model.id, [...trace.target, ...(model.task === "fill" ? trace.source : [])].filter((one) => one.text !== ""));
      learn(model.id, trace.answer.candidates?.flat() ?? []);
    } catch (error) {
      if (turn === this.turn) this.report(error);
    } finally {
      if (turn === this.turn) this.busy = false;
    }
  }

  /** Switches heads off and on again. */
  async switchHeads(off: string[]): Promise<void> {
    const base = this.base;
    this.switched = off.join();
    if (!base) return;
    const turn = ++this.turn;
    this.busy = true;
    this.problem = null;
    try {
      const edited = off.length ? await api.edit(base.id, asEdits(off)) : null;
      if (turn !== this.turn) return;
      place.off = off;
      this.edited = edited;
    } catch (error) {
      if (turn === this.turn) this.report(error);
    } finally {
      if (turn === this.turn) this.busy = false;
    }
  }

  /** Shows what went wrong. A trace that the server has dropped is made again, once in a while. */
  report(error: unknown): void {
    if (error instanceof DOMException && error.name === "AbortError") return;
    const problem = error instanceof Refusal ? error : new Refusal("page", String(error));
    if (problem.code === "expired" && Date.now() - this.renewed > 10_000) {
      this.renewed = Date.now();
      void this.run();
      return;
    }
    this.problem = problem;
  }
}

function asEdits(off: string[]): Edit[] {
  return off.map((one) => {
    const [path, head] = one.split(":");
    return { kind: "head-off", path: path!, head: Number(head) };
  });
}

export const session = new Session();

// -- texts of vocabulary ids

const texts = $state<Record<string, string>>({});
const asked = new Set<string>();

/** The text of an id of the vocabulary the model writes in; `#id` until the server has said it. */
export function wordOf(id: number): string {
  return texts[`${place.model} ${id}`] ?? `#${id}`;
}

export function learn(model: string, words: { id: number; text: string }[]): void {
  for (const { id, text } of words) {
    const key = `${model} ${id}`;
    asked.add(key);
    if (texts[key] !== text) texts[key] = text;
  }
}

/** The texts of the likeliest tokens after those that the decoder has read up to a position. */
export async function learnAt(trace: Trace, position: number): Promise<void> {
  if (session.spells || !trace.target.length) return;
  const key = `${trace.model} ${trace.text} ${trace.to} ${position}`;
  if (asked.has(key)) return;
  asked.add(key);
  const written = trace.target.slice(1, position + 1).map((one) => one.id);
  if (written.length + 3 > (session.model?.max_length ?? 0)) return; // no room for one more
  const ask = { model: trace.model, text: trace.task === "translate" ? trace.text : "", to: trace.to, written };
  try {
    learn(trace.model, (await api.next({ ...ask, temperature: 1, top_k: 0, top_p: 1, seed: 0 })).top);
  } catch (error) {
    session.report(error);
  }
}

export async function learnWords(ids: Iterable<number>): Promise<void> {
  if (!session.spells) return;
  const model = place.model;
  const fresh = [...new Set(ids)].filter((id) => !asked.has(`${model} ${id}`)).slice(0, 1000);
  if (!fresh.length) return;
  fresh.forEach((id) => asked.add(`${model} ${id}`));
  try {
    learn(model, (await api.words(model, fresh)).words);
  } catch (error) {
    fresh.forEach((id) => asked.delete(`${model} ${id}`));
    session.report(error);
  }
}
