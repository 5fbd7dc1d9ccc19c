"""Every figure that the lessons state, computed once more and in another way: numpy, from the inputs and the server's tensors."""

import math
from typing import Any

import numpy as np
from chromium import Server

CHAPTERS = {
    "lookup": ["equal", "apple"],
    "tokens": ["zeros", "distance"],
    "embedding": ["size", "nearest"],
    "position": ["sine", "length"],
    "qkv": ["weights", "product"],
    "scores": ["weight", "scaled"],
    "mask": ["row", "share", "open"],
    "heads": ["width", "sharpest"],
    "residual": ["norm", "changed"],
    "ffn": ["relu", "weights"],
    "rounds": ["rounds", "product", "keys"],
    "sampling": ["temperature", "nucleus"],
}
TABLE = np.array(
    [
        [1, 0, 0, 0, 0, 0],
        [0.5, 0.5, 0, 0, 0, 0],
        [0.25, 0.25, 0.5, 0, 0, 0],
        [0.1, 0.2, 0.3, 0.4, 0, 0],
        [0.05, 0.1, 0.25, 0.27, 0.33, 0],
        [0.05, 0.05, 0.1, 0.2, 0.3, 0.5],
    ]
)
KEYS = np.array([[1, 0, 0, 0.8, 0.2], [1, 1, 0, 1, 0], [0, 1, 0, 0.5, 0.5], [1, 0, 1, 0.2, 0.8]])
PRICES = np.array([3, 2, 5, 6])
X, Y, W_Q, W_K = np.array([1, 2]), np.array([0, 1]), np.array([[1, 0], [1, -1]]), np.array([[0, 1], [2, 1]])
W_1, W_2 = np.array([[1, 0], [1, -1]]), np.array([[0.5, 1], [4, 2]])
LOGITS = np.array([3.0, 2.0, 1.0, 0.0])


class Noise(float):
    """A number that is rounding only: at most so large."""


def softmax(x: Any) -> np.ndarray:
    e = np.exp(np.asarray(x, dtype=np.float64) - np.max(x))
    return e / e.sum()


def entropy(p: np.ndarray) -> float:
    p = p[p > 0].astype(np.float64)
    return float(-(p * np.log(p)).sum())


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def wave(places: int, width: int) -> np.ndarray:
    """Sine and cosine positions as e^{iωp}: another way than the page's."""
    omega = 10000.0 ** (-2 * np.arange(width // 2) / width)
    turn = np.exp(1j * np.outer(np.arange(places), omega))
    return np.stack([turn.imag, turn.real], axis=-1).reshape(places, width)


def shown(token: str) -> str:
    """A token as the page writes it: spaces around it are drawn."""
    inner = token.strip(" ")
    left = len(token) - len(token.lstrip(" "))
    return ("·" * left + inner + "·" * (len(token) - left - len(inner))).replace("\n", "↵") or "∅"


class Lesson:
    """The figures of one model and one text."""

    def __init__(self, server: Server, model: dict[str, Any], trace: dict[str, Any]) -> None:
        self.server, self.model, self.trace = server, model, trace
        self.names = trace["tensors"]
        self.stack = "encoder" if trace["source"] else "decoder"
        self.tokens = trace["source"] or trace["target"]
        self.path = f"{self.stack}.0.self"
        self.row = min(1, len(self.tokens) - 1)
        self.text = [shown(one["text"]) for one in self.tokens]

    def get(self, name: str, part: str = "") -> np.ndarray:
        return self.server.tensor(self.trace["id"], name, part).astype(np.float64)

    def figures(self, chapter: str) -> dict[str, Any]:
        return getattr(self, chapter)()

    # -- what is true of any model

    def lookup(self) -> dict[str, Any]:
        def ask(*query: float) -> tuple[np.ndarray, np.ndarray]:
            return KEYS @ np.array(query), softmax(KEYS @ np.array(query))

        scores, weights = ask(1, 0, 0, 0, 0)
        away = ask(1, -1, -1, 0, 0)
        out: dict[str, Any] = {
            "scores": scores, "exponentials": np.exp(scores), "sum": np.exp(scores).sum(), "weights": weights, "whole": 1,
            "result": weights @ PRICES, "tie": scores[0], "apple": weights[0], "away": [1, -1, -1, 0, 0],
            "awayScore": away[0][0],
            "awayApple": away[1][0], "firmApple": ask(3, -3, -3, 0, 0)[1][0], "goal": 0.9, "weight": weights[0],
        }  # fmt: skip
        if f"{self.path}.pattern" in self.names:
            pattern, masked = self.get(f"{self.path}.pattern")[0, self.row], self.get(f"{self.path}.masked")[0, self.row]
            best = int(pattern.argmax())
            out |= {
                "token": self.text[self.row],
                "count": len(self.tokens),
                "best": masked[best],
                "found": self.text[best],
                "share": pattern[best],
            }
        return out

    def tokens_(self) -> dict[str, Any]:
        here, after = self.tokens[self.row], self.tokens[(self.row + 1) % len(self.tokens)]
        size, count = self.model["vocabulary"], len(self.tokens)
        return {
            "distance": math.sqrt(2), "product": 0, "count": count, "vocabulary": size, "numbers": size * count,
            "zeros": size * count - count, "token": self.text[self.row], "id": here["id"], "one": 1, "nought": 0, "same": 1,
            "other": shown(after["text"]), "apart": int(here["id"] == after["id"]),
        }  # fmt: skip

    def embedding(self) -> dict[str, Any]:
        banana = np.array([0, 1, 0, 0])
        name = f"{self.stack}.embed.token"
        vectors = self.get(name)
        nearest = self.nearest(vectors)
        a, b = vectors[self.row], vectors[nearest]
        return {
            "onehot": banana, "products": "0·1 + 1·1 + 0·0 + 0·1", "first": (banana @ KEYS)[0], "picked": banana @ KEYS,
            "row": KEYS[1],
            "vocabulary": self.model["vocabulary"], "width": vectors.shape[1], "root": math.sqrt(vectors.shape[1]),
            "parameters": self.model["parameters"], "name": name, "token": self.text[self.row], "nearest": self.text[nearest],
            "length": np.linalg.norm(a), "otherLength": np.linalg.norm(b), "product": a @ b, "cosine": cosine(a, b),
        }  # fmt: skip

    def nearest(self, vectors: np.ndarray) -> int:
        other = [i for i, one in enumerate(self.tokens) if one["id"] != self.tokens[self.row]["id"]]
        return max(other, key=lambda i: (round(cosine(vectors[self.row], vectors[i]), 9), -i))

    def position(self) -> dict[str, Any]:
        width = self.model["options"]["width"]
        table = wave(64, width)
        apart = np.linalg.norm(table[:, None] - table[None], axis=-1) + np.eye(64) * 1e9
        products = table @ table[0]
        lengths = np.linalg.norm(table, axis=1)
        out: dict[str, Any] = {
            "count": 64, "width": width, "low": table.min(), "high": table.max(), "nearest": apart.min(),
            "neighbours": cosine(table[0], table[1]), "shortest": lengths.min(), "longest": lengths.max(), "by": 5,
            "missed": Noise(1e-10), "spread": Noise(1e-10), "rises": 1 + int((np.diff(products) > 0).argmax()),
            "p": 3, "q": 8, "sine": math.sin(3), "cosine": math.cos(3), "turned": math.sin(8), "direct": math.sin(8), "at": 2,
        }  # fmt: skip
        if self.model["options"].get("positions") == "sinusoidal":
            own = self.get(f"{self.stack}.embed.position")
            before = np.diagonal(self.get(f"{self.path}.scaled")[0], -1)
            out |= {"difference": Noise(1e-6), "path": self.path, "head": 1, "lowest": before.min(), "highest": before.max()}
            assert np.abs(own - wave(*own.shape)).max() < 1e-5
        return out

    def qkv(self) -> dict[str, Any]:
        q, k = X @ W_Q, X @ W_K
        out: dict[str, Any] = {"x": X, "y": Y, "q": q, "k": k, "key2": Y @ W_K, "score": q @ k}
        q, k, v = (self.get(f"{self.path}.{name}") for name in "qkv")
        scores, pattern = self.get(f"{self.path}.scores")[0], self.get(f"{self.path}.pattern")[0]
        best, other = int(pattern[self.row].argmax()), (self.row + 1) % len(self.tokens)
        mine, found = q[0, self.row], k[0, best]
        live = {
            "width": self.model["options"]["width"], "heads": len(q), "keyWidth": q.shape[2], "valueWidth": v.shape[2],
            "head": 1,
            "token": self.text[self.row], "found": self.text[best], "query": mine[:3], "key": found[:3],
            "products": (mine * found)[:3], "own": scores[self.row, best], "cosine": cosine(mine, k[0, self.row]),
            "there": scores[self.row, other], "back": scores[other, self.row], "other": self.text[other],
        }  # fmt: skip
        return {**out, **live, "score": {out["score"], mine @ found}}

    def scores(self) -> dict[str, Any]:
        pair, asked = np.array([112.0, 96.0]), np.array([40.0, 36.0])
        signs = {
            n: sum(math.comb(n, m) / 2**n * (n - 2 * m) ** 2 for m in range(n + 1)) for n in (4, 16, 64)
        }  # every product there is
        out: dict[str, Any] = {
            "dk": 64, "key1": 112 / 64, "key2": 96 / 64, "score1": 112, "score2": 96, "root": 8, "scaled1": 14, "scaled2": 12,
            "weight1": softmax(pair / 8)[0], "weight2": softmax(pair / 8)[1], "plain1": softmax(pair)[0],
            "plain2": softmax(pair)[1],
            **{f"size{n}": n for n in signs}, **{f"variance{n}": x for n, x in signs.items()},
            "a": 40, "b": 36, "size": 16, "aScaled": asked[0] / 4, "bScaled": asked[1] / 4,
        }  # fmt: skip
        scores, scaled, masked, pattern = (
            self.get(f"{self.path}.{name}")[0] for name in ("scores", "scaled", "masked", "pattern")
        )
        row, best = self.row, int(pattern[self.row].argmax())
        width = self.names[f"{self.path}.q"]["shape"][2]
        pick = (best + 1) % len(self.tokens)
        return out | {
            "keyWidth": width, "keyRoot": math.sqrt(width), "head": 1, "token": self.text[row], "found": self.text[best],
            "most": scores[row, best], "mostScaled": scores[row, best] / math.sqrt(width), "share": pattern[row, best],
            "plainShare": softmax(np.where(np.isinf(masked[row]), -np.inf, scores[row]))[best], "before": scores.std(),
            "after": scaled.std(),
            "picked": self.text[pick], "pickScore": scores[row, pick], "path": self.path,
        }  # fmt: skip

    def mask(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "own": 0.5,
            "each": 0.25,
            "hidden": int((np.triu(np.ones((6, 6)), 1)).sum()),
            "wrongSum": TABLE.sum(1).max(),
        }
        if "decoder.0.self.masked" not in self.names:
            return out
        scaled, masked, pattern = (self.get(f"decoder.0.self.{name}")[0] for name in ("scaled", "masked", "pattern"))
        count, row = len(masked), min(1, len(masked) - 1)
        closed = int(np.isinf(masked).sum())
        return out | {
            "count": count, "all": count**2, "closed": closed, "open": count**2 - closed, "place": row + 1, "may": row + 1,
            "shown": 8,
            "token": shown(self.trace["target"][row]["text"]), "rowSum": pattern[row].sum(), "scores": scaled[row][:8],
            "masked": masked[row][:8], "weights": pattern[row][:8],
        }  # fmt: skip

    def heads(self) -> dict[str, Any]:
        pattern = self.get(f"{self.path}.pattern")
        spread = np.array([entropy(one[self.row]) for one in pattern])
        sharp = int(spread.argmin())
        size = self.names[f"{self.path}.z"]["shape"][2]
        reach = self.row + 1 if self.stack == "decoder" else len(self.tokens)
        return {
            "paperWidth": 512, "paperHeads": 8, "paperSize": 64, "heads": len(pattern), "valueWidth": size,
            "joined": size * len(pattern),
            "token": self.text[self.row], "hard": self.text[-1], "path": self.path, "sharpest": sharp + 1,
            "widest": int(spread.argmax()) + 1,
            "sharpestEntropy": spread.min(), "widestEntropy": spread.max(), "evenEntropy": math.log(reach),
            "sharpestWeight": pattern[sharp, self.row].max(),
            "sharpestToken": self.text[int(pattern[sharp, self.row].argmax())],
            "least": min(entropy(one[-1]) for one in pattern),
        }  # fmt: skip

    def residual(self) -> dict[str, Any]:
        x, asked = np.array([2.0, 4, 4, 6]), np.array([1.0, 3, 5, 7])
        block, row = f"{self.stack}.0", self.row
        before, after = self.get(f"{block}.norm1.in")[row], self.get(f"{block}.norm1.scaled")[row]
        into, change = self.get(f"{block}.resid_pre"), self.get(f"{block}.self.out")
        return {
            "x": x, "mean": x.mean(), "centred": x - x.mean(), "variance": x.var(), "deviation": x.std(),
            "out": (x - x.mean()) / x.std(),
            "asked": asked, "askedMean": asked.mean(), "askedDeviation": asked.std(), "token": self.text[row],
            "difference": Noise(1e-5),
            "before": into[row][:4], "change": change[row][:4], "after": (into + change)[row][:4],
            "meanBefore": before.mean(), "spreadBefore": before.std(), "meanAfter": Noise(1e-5), "spreadAfter": after.std(),
            "rmsBefore": math.sqrt((before**2).mean()), "rmsAfter": math.sqrt((after**2).mean()),
            "most": (np.linalg.norm(change, axis=1) / np.linalg.norm(into, axis=1)).max(),
        }  # fmt: skip

    def ffn(self) -> dict[str, Any]:
        def layer(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            pre = x @ W_1
            return pre, np.maximum(pre, 0), np.maximum(pre, 0) @ W_2

        pre, act, out = layer(X)
        path = f"{self.stack}.0.ffn"
        inner, gated = self.get(f"{path}.pre"), f"{path}.gate" in self.names
        bent = self.get(f"{path}.act")[self.row]
        best = int(bent.argmax())
        return {
            "x": X, "pre": pre, "act": act, "out": out, "sum": X + out, "asked": [1, 3], "askedAct": layer(np.array([1, 3]))[1],
            "askedOut": layer(np.array([1, 3]))[2], "width": self.model["options"]["width"], "inner": inner.shape[1],
            "matrices": 3 if gated else 2, "negative": (inner < 0).mean(), "token": self.text[self.row], "place": best,
            "before": inner[self.row, best], "after": bent[best], "again": bent[best],
            **({"gate": self.get(f"{path}.gate")[self.row, best]} if gated else {}),
        }  # fmt: skip

    def chances(self) -> tuple[int, list[float], np.ndarray]:
        """Where the answer begins, how likely each of its tokens was, and the probabilities of the first round."""
        ids = [one["id"] for one in self.trace["target"]]
        begin = len(ids) - len(self.trace["answer"]["ids"])
        rows = [softmax(row) for row in self.get("logits")]
        return begin, [float(rows[at - 1][ids[at]]) for at in range(begin, len(ids))], rows[begin - 1]

    def rounds(self) -> dict[str, Any]:
        if not self.trace["target"]:
            return {}
        begin, each, first = self.chances()
        words = self.spell(first)
        out: dict[str, Any] = {
            "round": 1, "rounds": len(each) + 1, "read": begin, "length": len(each), "product": each[0], "p1": each[0],
            "p2": each[1],
            "taken": shown(self.trace["target"][begin]["text"]), "takenP": each[0], "likeliest": words,
            "likeliestP": first.max(),
        }  # fmt: skip
        if self.trace["source"]:
            targets, sources = len(self.trace["target"]), len(self.trace["source"])
            layers = self.model["options"].get("decoder_layers", 1)
            out |= {
                "path": f"decoder.{layers - 1}.cross",
                "queries": targets,
                "keys": sources,
                "targets": targets,
                "sources": sources,
            }
        return out

    def spell(self, probabilities: np.ndarray) -> str:
        answer = self.server.ask("/api/words", {"model": self.model["id"], "ids": [int(probabilities.argmax())]})
        return shown(answer["words"][0]["text"])

    def sampling(self) -> dict[str, Any]:
        kept = softmax(LOGITS[:3])  # k = 3
        out: dict[str, Any] = {
            "logits": LOGITS, "temperature": 1, "scaled": LOGITS, "k": 3, "keptK": 3, "probabilities": [*kept, 0], "p": 0.9,
            "keptP": 2,
            "held": kept[:2].sum(), "final": [*kept[:2] / kept[:2].sum(), 0, 0], "low": 0.5, "lowScaled": LOGITS / 0.5,
        }  # fmt: skip
        if not self.trace["target"]:
            return out
        begin, _, first = self.chances()
        top = self.get("logits")[begin - 1].max()
        falling = np.sort(first)[::-1]
        need = int((falling.cumsum() < 0.5).sum()) + 1
        return out | {
            "vocabulary": self.model["vocabulary"], "token": shown(self.trace["target"][begin - 1]["text"]), "liveT": 1,
            "top": top,
            "topScaled": top, "liveK": self.model["vocabulary"], "liveP": self.model["vocabulary"],
            "likeliest": self.spell(first),
            "likeliestP": first.max(), "unit": 1, "plainP": first.max(), "askedP": 0.5, "askedHeld": falling[:need].sum(),
        }  # fmt: skip

    # -- what the exercises ask for: the answer, and mistakes that deserve a hint of their own

    def answers(self) -> dict[str, tuple[Any, list[Any]]]:
        t = len(self.tokens)
        width, vocabulary = self.model["options"]["width"], self.model["vocabulary"]
        vectors = self.get(f"{self.stack}.embed.token")
        key, value = (self.names[f"{self.path}.{name}"]["shape"][2] for name in "qv")
        pattern = self.get(f"{self.path}.pattern")
        scores = self.get(f"{self.path}.scores")[0, self.row]
        pick = scores[(int(pattern[0, self.row].argmax()) + 1) % t]
        into, change = self.get(f"{self.stack}.0.resid_pre"), self.get(f"{self.stack}.0.self.out")
        inner = self.names[f"{self.stack}.0.ffn.pre"]["shape"][1]
        _, each, first = self.chances()
        target = len(self.trace["target"])
        share = width * vocabulary / self.model["parameters"]
        spread = [entropy(one[-1]) for one in pattern]
        lengths = np.linalg.norm(change, axis=1) / np.linalg.norm(into, axis=1)
        need = int((np.sort(first)[::-1].cumsum() < 0.5).sum()) + 1
        layer = np.maximum(np.array([1, 3]) @ W_1, 0) @ W_2
        return {
            "lookup.equal": (PRICES.mean(), [0, PRICES.sum()]),
            "tokens.zeros": (vocabulary - 1, [vocabulary, t]),
            "tokens.distance": (math.sqrt(3), [math.sqrt(2), 3]),
            "embedding.size": (share, [width * vocabulary, 1 / share]),
            "embedding.nearest": (self.text[self.nearest(vectors)], []),
            "position.sine": (math.sin(2), [math.sin(math.radians(2)), math.cos(2)]),
            "position.length": (width / 2, [width, math.sqrt(width / 2)]),
            "qkv.weights": (width * key, [width * key * len(pattern), width]),
            "qkv.product": ((X @ W_Q) @ (Y @ W_K), [(Y @ W_Q) @ (X @ W_K), (X @ W_Q) @ (X @ W_K)]),
            "scores.weight": (softmax([10, 9])[0], [softmax([40, 36])[0], softmax([2.5, 2.25])[0], softmax([10, 9])[1]]),
            "scores.scaled": (pick / math.sqrt(key), [pick / key, pick * math.sqrt(key)]),
            "mask.row": ("6", []),
            "mask.share": (0.5 / TABLE[5].sum(), [0.5]),
            "mask.open": (target * (target + 1) // 2, [target**2, target * (target - 1) // 2]),
            "heads.width": (len(pattern) * value, [value]),
            "heads.sharpest": (str(1 + int(np.argmin(spread))), []),
            "residual.norm": (3 / math.sqrt(5), [3 / math.sqrt(20 / 3), 3 / 5, 3]),
            "residual.changed": (f"{1 + int(lengths.argmax())}. ", []),
            "ffn.relu": (1 + layer[0], [layer[0], (np.array([1, 3]) @ W_1 @ W_2)[0]]),
            "ffn.weights": (2 * width * inner, [width * inner]),
            "rounds.rounds": (len(each) + 1, [len(each), len(each) + 2]),
            "rounds.product": (each[0] * each[1], [each[0] + each[1], (each[0] + each[1]) / 2]),
            "rounds.keys": (target * t, [target * target] if target != t else []),
            "sampling.temperature": (softmax(LOGITS / 0.5)[0], [softmax(LOGITS * 0.5)[0], softmax(LOGITS)[0]]),
            "sampling.nucleus": (need, [need - 1, need + 1]),
        }
