/** What the page has got from the server: the models, the notation, and the trace of the text as it stands. */

import { api, exported, Refusal, type Edit, type Model, type NotationRow, type Trace, type WordVectors } from "./api";
import { beginWith, place } from "./place.svelte";

const GO_ON = 12; // tokens a language model writes unless the person says otherwise

class Session {
  models: Model[] = $state.raw([]);
  vectors: WordVectors[] = $state.raw([]);
  notation: Record<string, NotationRow> = $state.raw({});
  base: Trace | null = $state.raw(null);
  edited: Trace | null = $state.raw(null);
  begun = $state(false); // the server has said which models there are
  busy = $state(false);
  problem: Refusal | null = $state.raw(null);
  unreadable: Record<string, string> = $state.raw({}); // folders of models that cannot be read, and why
  private gone = $state(""); // the model whose folder is no longer there
  private turn = 0;
  private renewed = 0; // when a trace that was dropped was made again
  private renewing = false;
  private ran = ""; // what was traced last, and with which heads off
  private switched = "";

  /** The trace that is drawn: the edited one while heads are off. */
  get trace(): Trace | null {
    return this.edited ?? this.base;
  }

  get model(): Model | null {
    return this.models.find((model) => model.id === place.model) ?? null;
  }

  /** The edits of what is drawn. */
  get edits(): Edit[] {
    return this.edited?.edits ?? [];
  }

  /** Whether what is drawn is what the person asked for: not while it is computed, nor after it was refused. */
  get current(): boolean {
    if (!this.trace) return false;
    const { text, second, to } = this.trace;
    return text === place.text && (second === null || second === place.second) && (!place.to || place.to === to);
  }

  async begin(): Promise<void> {
    try {
      const [{ models, vectors, default: first, problems }, { rows }] = await Promise.all([api.models(), api.notation()]);
      this.begun = true;
      this.models = models;
      this.vectors = vectors;
      if (!models.length && vectors.length) place.view = "vectors";
      this.unreadable = problems;
      this.notation = rows;
      if (!models.some((model) => model.id === place.model)) {
        if (place.model) this.problem = new Refusal("unknown-model", place.model, { model: place.model });
        place.model = first || (models[0]?.id ?? "");
      }
      if (!place.text) place.text = this.model?.examples[0] ?? "";
      if (!place.second) place.second = this.model?.seconds?.[0] ?? "";
      if (exported) {
        place.off = []; // there is no model to switch them off in
        beginWith(this.model?.examples[0] ?? "");
      }
      const missing = this.problem;
      await this.run();
      if (missing && (exported || !this.problem)) this.problem = missing;
      this.follow();
    } catch (error) {
      this.report(error);
    }
  }

  private get asked(): string {
    return JSON.stringify([place.model, place.text, place.second, place.to, place.more, place.trace]);
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
    if (!model) {
      if (place.model) this.problem = new Refusal("unknown-model", place.model, { model: place.model });
      return;
    }
    const turn = ++this.turn;
    this.busy = true;
    this.problem = null;
    try {
      const ask = { model: model.id, text: place.text, to: place.to || null, second: model.task === "compare" ? place.second : null };
      const more = model.task === "language" ? { max_tokens: place.more < 0 ? GO_ON : place.more } : {};
      const trace = (await this.kept(model, turn)) ?? (await api.trace(ask, more));
      if (turn !== this.turn) return;
      const edits = asEdits(place.off).filter((edit) => edit.kind === "head-off" && `${edit.path}.pattern` in trace.tensors);
      const edited = edits.length ? await api.edit(trace.id, edits) : null;
      if (turn !== this.turn) return;
      this.gone = "";
      this.base = trace;
      this.edited = edited;
    } catch (error) {
      if (turn !== this.turn) return;
      if (error instanceof Refusal && error.code === "model-gone") this.gone = model.id;
      this.report(error);
    } finally {
      if (turn === this.turn) this.busy = false;
    }
  }

  /** The pass that the link names, if there is one and it is of this model and text. */
  private async kept(model: Model, turn: number): Promise<Trace | null> {
    if (!place.trace) return null;
    const leave = () => {
      if (turn !== this.turn) return;
      place.trace = "";
      this.ran = this.asked;
    };
    try {
      const found = await api.kept(place.trace);
      if (found.model === model.id && found.text === place.text) return found;
      leave();
      return null;
    } catch (error) {
      leave(); // who tries again gets a new pass
      throw error instanceof Refusal && ["expired", "unknown-trace"].includes(error.code) ? new Refusal("notebook-gone", error.message) : error;
    }
  }

  /** Switches heads off and on again. */
  async switchHeads(off: string[]): Promise<void> {
    const base = this.base;
    const before = place.off;
    this.switched = off.join();
    if (!base) return;
    const turn = ++this.turn;
    place.off = off;
    this.busy = true;
    this.problem = null;
    try {
      const edited = off.length ? await api.edit(base.id, asEdits(off)) : null;
      if (turn === this.turn) this.edited = edited;
    } catch (error) {
      if (turn !== this.turn) return;
      this.report(error);
      if (!this.renewing) this.stay(before);
    } finally {
      if (turn === this.turn) this.busy = false;
    }
  }

  /** The heads are as they were. */
  private stay(off: string[]): void {
    this.switched = off.join();
    place.off = off;
  }

  /** Shows what went wrong, unless it is being mended. */
  report(error: unknown): void {
    if (error instanceof DOMException && error.name === "AbortError") return;
    const problem = this.refusal(error);
    if (problem.code !== "expired" || !this.renew(problem.details["id"])) this.problem = problem;
  }

  /** What went wrong. A recording whose model has gone cannot be made again. */
  refusal(error: unknown): Refusal {
    if (!(error instanceof Refusal)) return new Refusal("page", String(error));
    return error.code === "expired" && this.gone && this.gone === place.model ? new Refusal("model-expired", error.message) : error;
  }

  /** A trace that the server has dropped is made again, once in a while. Who asked for an earlier one need not know. */
  private renew(id: unknown): boolean {
    if (this.renewing || (id !== this.base?.id && id !== this.edited?.id)) return true;
    if (Date.now() - this.renewed < 10_000) return false;
    this.renewed = Date.now();
    this.renewing = true;
    void this.run().finally(() => (this.renewing = false));
    return true;
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

const AT_ONCE = 1000; // ids that the server spells in one answer
const texts = $state<Record<string, string>>({});
const asked = new Map<string, Promise<void>>(); // what has been asked for, and when it will be here

/** The text of an id of the vocabulary the model writes in; `#id` until the server has said it. */
export function wordOf(id: number): string {
  return texts[`${place.model} ${id}`] ?? `#${id}`;
}

/** Asks for the texts of those ids that are not known yet; done when all are here. */
export async function learnWords(ids: Iterable<number>): Promise<void> {
  const model = place.model;
  const wanted = [...new Set(ids)];
  const fresh = wanted.filter((id) => !asked.has(`${model} ${id}`));
  for (let i = 0; i < fresh.length; i += AT_ONCE) askFor(model, fresh.slice(i, i + AT_ONCE));
  await Promise.all(new Set(wanted.map((id) => asked.get(`${model} ${id}`))));
}

function askFor(model: string, ids: number[]): void {
  const keys = ids.map((id) => `${model} ${id}`);
  const coming = api.words(model, ids).then(
    ({ words }) => words.forEach(({ id, text }) => (texts[`${model} ${id}`] = text)),
    (error) => {
      keys.forEach((key) => asked.delete(key));
      session.report(error);
    },
  );
  keys.forEach((key) => asked.set(key, coming));
}
