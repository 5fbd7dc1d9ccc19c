"""The one table of named tensors: what each is, its shape, its equation, its label in English and Chinese.

Letters: B batch, T query length, S key length, D model width, H heads, K heads of keys and values, d_k, d_v widths of one
head, F inner width, U units of a recurrent layer (of one direction), V vocabulary, N features of a
text. Shapes are those of one sentence (no B). For a path such as `encoder.0.self.scores`,
`describe` finds the row.
"""

import re
from dataclasses import dataclass

from glassformer.errors import UserError


@dataclass(frozen=True)
class Notation:
    name: str
    shape: str
    equation: str
    english: str
    chinese: str


TABLE = {
    row.name: row
    for row in (
        Notation("embed.token", "T D", "√D · E[id]", "token embedding", "词嵌入"),
        Notation("embed.position", "T D", "sin(pos / 10000^(2i/D)), cos(…), or a learned row", "position encoding", "位置编码"),
        Notation("embed.type", "T D", "E_type[0 or 1]", "which of two texts", "句子类型嵌入"),
        Notation("embed.sum", "T D", "token + position, and type if there is one", "embedding with position", "嵌入与位置之和"),
        Notation("block.resid_pre", "T D", "x", "residual stream before the block", "进入本层的残差流"),
        Notation(
            "block.resid_mid",
            "T D",
            "x + Attention(x), normalised if post-norm",
            "residual stream after self-attention",
            "自注意力之后的残差流",
        ),
        Notation(
            "block.resid_cross",
            "T D",
            "x + Attention(x, memory), normalised if post-norm",
            "residual stream after cross-attention",
            "交叉注意力之后的残差流",
        ),
        Notation(
            "block.resid_post",
            "T D",
            "x + FFN(x), normalised if post-norm",
            "residual stream after the block",
            "离开本层的残差流",
        ),
        Notation("attention.q", "H T d_k", "Q = x W_Q + b_Q", "queries", "查询"),
        Notation("attention.k", "K S d_k", "K = m W_K + b_K", "keys", "键"),
        Notation("attention.v", "K S d_v", "V = m W_V + b_V", "values", "值"),
        Notation("attention.scores", "H T S", "Q Kᵀ, or wᵀ tanh(q + k)", "scores", "得分"),
        Notation("attention.scaled", "H T S", "Q Kᵀ / √d_k (additive scores are not divided)", "scaled scores", "缩放后的得分"),
        Notation("attention.masked", "H T S", "−∞ where it may not look", "masked scores", "掩码后的得分"),
        Notation("attention.pattern", "H T S", "softmax(masked)", "attention weights", "注意力权重"),
        Notation("attention.z", "H T d_v", "pattern · V", "weighted values of each head", "各头的加权值"),
        Notation("attention.out", "T D", "concat(z) W_O + b_O", "attention output", "注意力输出"),
        Notation("norm.in", "T D", "x", "input of the normalisation", "归一化的输入"),
        Notation("norm.mean", "T 1", "μ = mean(x)", "mean", "均值"),
        Notation("norm.deviation", "T 1", "σ = √(var(x) + ε)", "standard deviation", "标准差"),
        Notation("norm.rms", "T 1", "√(mean(x²) + ε)", "root mean square", "均方根"),
        Notation("norm.scaled", "T D", "(x − μ) / σ, or x / rms", "normalised", "标准化"),
        Notation("norm.out", "T D", "γ · scaled + β (RMSNorm has no β)", "output of the normalisation", "归一化的输出"),
        Notation("ffn.pre", "T F", "x W₁ + b₁", "inner layer before the activation", "激活前的内层"),
        Notation("ffn.gate", "T F", "x W₃ + b₃", "gate of SwiGLU", "SwiGLU 的门"),
        Notation(
            "ffn.act", "T F", "max(0, pre), GELU(pre), or silu(pre) ⊙ gate", "inner layer after the activation", "激活后的内层"
        ),
        Notation("ffn.out", "T D", "act W₂ + b₂", "feed-forward output", "前馈网络输出"),
        Notation("recurrent.start_h", "U", "h₀ = the encoder's last h", "hidden state to begin with", "初始隐藏状态"),
        Notation("recurrent.start_c", "U", "c₀ = the encoder's last c", "cell state to begin with", "初始单元状态"),
        Notation("recurrent.gate_f", "T U", "f = σ(W_x x + b_x + W_h h + b_h)", "forget gate", "遗忘门"),
        Notation("recurrent.gate_i", "T U", "i = σ(W_x x + b_x + W_h h + b_h)", "input gate", "输入门"),
        Notation("recurrent.gate_o", "T U", "o = σ(W_x x + b_x + W_h h + b_h)", "output gate", "输出门"),
        Notation("recurrent.gate_r", "T U", "r = σ(W_x x + b_x + W_h h + b_h)", "reset gate", "重置门"),
        Notation("recurrent.gate_z", "T U", "z = σ(W_x x + b_x + W_h h + b_h)", "update gate", "更新门"),
        Notation(
            "recurrent.candidate",
            "T U",
            "tanh(W_x x + b_x + W_h h + b_h); of a GRU r ⊙ (W_h h + b_h)",
            "what may be remembered",
            "候选记忆",
        ),
        Notation("recurrent.cell", "T U", "c = f ⊙ c₋₁ + i ⊙ candidate", "cell state", "单元状态"),
        Notation(
            "recurrent.hidden",
            "T U",
            "tanh(W_x x + b_x + W_h h + b_h), o ⊙ tanh(c), or (1 − z) ⊙ candidate + z ⊙ h₋₁",
            "hidden state",
            "隐藏状态",
        ),
        Notation("recurrent.joined", "T D", "[h→; h←]", "both directions side by side", "双向隐藏状态的拼接"),
        Notation(
            "combine.out", "T D", "tanh(W h + b + Attention(h, memory))", "state with what it looked at", "融合上下文的状态"
        ),
        Notation("conv.pre", "T F", "Σ_k W_k x_{t+k} + b", "answers of the filters", "卷积结果"),
        Notation("batchnorm.out", "T F", "γ · (x − μ) / √(σ² + ε) + β", "answers, normalised over the batch", "批归一化的输出"),
        Notation("conv.act", "T F", "max(0, x), or another activation", "answers after the activation", "激活后的卷积结果"),
        Notation(
            "encoder.features",
            "N",
            "which pieces occur, how often, or the mean of their vectors",
            "features of the text",
            "文本特征",
        ),
        Notation("head.in", "T D", "the encoder's last states", "what the head reads", "输出头的输入"),
        Notation("head.transformed", "T D", "LayerNorm(f(x W + b))", "transformed for the vocabulary", "为词表作的变换"),
        Notation("head.pooled", "D", "of the first token, or the mean of all", "one vector for the text", "整句向量"),
        Notation("head.dense", "D", "tanh(pooled W + b)", "pooled, transformed", "变换后的整句向量"),
        Notation("word", "T D", "x W_in, x one-hot", "word vector", "词向量"),
        Notation("hidden", "T D", "the word's vector; of CBOW the sum or mean of those around it", "hidden layer", "隐藏层"),
        Notation("logits", "T V", "x Wᵀ", "scores of every possible answer", "每个可能答案的得分"),
    )
}

_ROLES = {
    "self": "attention",
    "cross": "attention",
    "norm1": "norm",
    "norm2": "norm",
    "norm3": "norm",
    "ahead": "recurrent",
    "back": "recurrent",
}
_CONVOLUTION = re.compile(r"conv\d+")


def describe(path: str) -> Notation:
    """The row of a traced tensor: `decoder.1.cross.pattern` → `attention.pattern`."""
    *parents, name = path.split(".")
    if not parents:
        key = name
    elif parents[-1].isdigit():
        key = f"block.{name}" if f"block.{name}" in TABLE else f"recurrent.{name}"
    elif _CONVOLUTION.fullmatch(parents[-1]):
        key = f"conv.{name}"
    elif len(parents) > 1 and _CONVOLUTION.fullmatch(parents[-2]):
        key = f"batchnorm.{name}"
    else:
        key = f"{_ROLES.get(parents[-1], parents[-1])}.{name}"
    if key not in TABLE:
        raise UserError(f"notation.py has no row for {path!r} (looked for {key!r}).")
    return TABLE[key]


def rows() -> dict[str, dict[str, str]]:
    """The table, ready for JSON."""
    return {
        name: {"shape": row.shape, "equation": row.equation, "english": row.english, "chinese": row.chinese}
        for name, row in TABLE.items()
    }
