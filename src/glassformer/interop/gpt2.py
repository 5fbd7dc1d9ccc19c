"""GPT-2: learned positions, LayerNorm before each part, one matrix for queries, keys and values."""

from glassformer.interop.family import Family, Settings
from glassformer.interop.rules import TRANSPOSED, Rule
from glassformer.options import GPTOptions


def _flatten(settings: Settings) -> Settings:
    width = settings.get("n_embd", 768)
    if settings.get("n_inner") is None and isinstance(width, int):
        return {**settings, "n_inner": 4 * width}
    return settings


def _rules(options: GPTOptions, task: str) -> list[Rule]:
    block, theirs = "decoder.{i}", "transformer.h.{i}"
    return [
        Rule("decoder.embed.token", "transformer.wte"),
        Rule("decoder.embed.position", "transformer.wpe.weight"),
        Rule(f"{block}.norm1", f"{theirs}.ln_1"),
        Rule(f"{block}.self.q {block}.self.k {block}.self.v", f"{theirs}.attn.c_attn", TRANSPOSED),
        Rule(f"{block}.self.o", f"{theirs}.attn.c_proj", TRANSPOSED),
        Rule(f"{block}.norm3", f"{theirs}.ln_2"),
        Rule(f"{block}.ffn.w1", f"{theirs}.mlp.c_fc", TRANSPOSED),
        Rule(f"{block}.ffn.w2", f"{theirs}.mlp.c_proj", TRANSPOSED),
        Rule("decoder.norm", "transformer.ln_f"),
        Rule("output", "lm_head"),
    ]


GPT2 = Family(
    name="GPT-2",
    model_type="gpt2",
    kind="gpt",
    tasks={"GPT2LMHeadModel": "language"},
    keys={
        "width": ("n_embd",),
        "heads": ("n_head",),
        "layers": ("n_layer",),
        "inner": ("n_inner",),
        "max_length": ("n_positions",),
        "epsilon": ("layer_norm_epsilon",),
        "dropout": ("resid_pdrop",),
        "tie": ("tie_word_embeddings",),
    },
    defaults={
        "vocab_size": 50257,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.1,
        "tie_word_embeddings": True,
        "activation_function": "gelu_new",
    },
    fixed={"norm": "pre", "norm_kind": "layer", "positions": "learned", "scores": "dot"},
    zeros={"bias": True},
    required={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
        "quantization_config": (None,),
    },
    activation="activation_function",
    rules=_rules,
    flatten=_flatten,
    renamed=((r"(wte|wpe|h|ln_f)\.", r"transformer.\1."),),  # OpenAI's own files
    ignored=(r"transformer\.h\.\d+\.attn\.(masked_)?bias",),  # the causal mask
    copies={"lm_head.weight": "transformer.wte.weight"},
)
