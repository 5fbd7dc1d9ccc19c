"""Llama: rotary positions, RMSNorm, SwiGLU, fewer key/value heads. GGUF and llama2.c hold the same model under other names."""

from glassformer.interop.family import Family, Settings
from glassformer.interop.rules import SAME, Layout, Rule, interleaved
from glassformer.options import GPTOptions


def _flatten(settings: Settings) -> Settings:
    """Rotary settings stand apart (`rope_scaling`, since version 5 `rope_parameters`), and a window may hold all there is."""
    flat = dict(settings)
    for key in ("rope_scaling", "rope_parameters"):
        rope = settings.get(key) or {}
        if not isinstance(rope, dict):
            rope = {"rope_type": rope}
        kind = rope.get("rope_type") or rope.get("type") or "default"
        flat["rope_type"] = flat.get("rope_type", kind) if kind == "default" else kind
        flat |= {part: rope[part] for part in ("rope_theta", "partial_rotary_factor") if part in rope}
    window, room = settings.get("sliding_window"), settings.get("max_position_embeddings", 2048)
    if isinstance(window, int) and isinstance(room, int) and window >= room:
        flat["sliding_window"] = None
    return flat


def _unflatten(settings: Settings) -> Settings:
    rope = {"rope_type": "default", "rope_theta": settings["rope_theta"]}
    return {**{key: value for key, value in settings.items() if key != "rope_type"}, "rope_parameters": rope}


def _rules(options: GPTOptions, task: str) -> list[Rule]:
    return llama_rules(
        {
            "embed": "model.embed_tokens",
            "norm1": "model.layers.{i}.input_layernorm",
            "q": "model.layers.{i}.self_attn.q_proj",
            "k": "model.layers.{i}.self_attn.k_proj",
            "v": "model.layers.{i}.self_attn.v_proj",
            "o": "model.layers.{i}.self_attn.o_proj",
            "norm3": "model.layers.{i}.post_attention_layernorm",
            "w1": "model.layers.{i}.mlp.gate_proj",
            "w2": "model.layers.{i}.mlp.down_proj",
            "w3": "model.layers.{i}.mlp.up_proj",
            "norm": "model.norm",
            "output": "lm_head",
        }
    )


def llama_rules(names: dict[str, str], q: Layout = SAME, k: Layout = SAME) -> list[Rule]:
    """The rules of one of the three formats, in the order of `names`."""
    ours = {
        "embed": "decoder.embed.token",
        "norm": "decoder.norm",
        "output": "output",
        **{part: f"decoder.{{i}}.self.{part}" for part in "qkvo"},
        **{part: f"decoder.{{i}}.ffn.{part}" for part in ("w1", "w2", "w3")},
        **{part: f"decoder.{{i}}.{part}" for part in ("norm1", "norm3")},
    }
    return [Rule(ours[part], theirs, {"q": q, "k": k}.get(part, SAME)) for part, theirs in names.items()]


def paired(options: GPTOptions) -> tuple[Layout, Layout]:
    """The layouts of queries and keys in formats that turn neighbouring numbers."""
    return interleaved(options.heads), interleaved(options.kv_heads or options.heads)


LLAMA = Family(
    name="Llama",
    model_type="llama",
    kind="gpt",
    tasks={"LlamaForCausalLM": "language"},
    keys={
        "width": ("hidden_size",),
        "heads": ("num_attention_heads",),
        "kv_heads": ("num_key_value_heads",),
        "key_width": ("head_dim",),
        "value_width": ("head_dim",),
        "layers": ("num_hidden_layers",),
        "inner": ("intermediate_size",),
        "max_length": ("max_position_embeddings",),
        "epsilon": ("rms_norm_eps",),
        "rotary_base": ("rope_theta",),
        "bias": ("attention_bias", "mlp_bias"),
        "tie": ("tie_word_embeddings",),
        "dropout": ("attention_dropout",),
    },
    defaults={
        "vocab_size": 32000,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "intermediate_size": 11008,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "rope_type": "default",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
    },
    fixed={"norm": "pre", "norm_kind": "rms", "positions": "rotary", "scores": "dot"},
    zeros={},
    required={
        "rope_type": ("default",),
        "partial_rotary_factor": (1.0,),
        "sliding_window": (None,),
        "layer_types": (None,),
        "pretraining_tp": (1,),
        "quantization_config": (None,),
    },
    activation="hidden_act",
    activations={"silu": "swiglu", "swish": "swiglu"},
    rules=_rules,
    flatten=_flatten,
    unflatten=_unflatten,
    ignored=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
    copies={"lm_head.weight": "model.embed_tokens.weight"},
)
