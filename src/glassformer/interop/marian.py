"""Marian: the paper's encoder–decoder. Its sinusoids are all sines, then all cosines, where ours alternate.

Nothing in a model depends on the order of the D numbers of the residual stream, so instead of another table of positions, every
weight is imported with its D axis in our order.
"""

import torch

from glassformer.interop.family import Family, Settings
from glassformer.interop.rules import ONE_ROW, Rule, reading, writing
from glassformer.options import TransformerOptions


def _unflatten(settings: Settings) -> Settings:
    return {**settings, "is_encoder_decoder": True, "decoder_vocab_size": settings.get("vocab_size")}


def _rules(options: TransformerOptions, task: str) -> list[Rule]:
    sines = (options.width + 1) // 2
    order = torch.arange(options.width)
    order = torch.where(order % 2 == 0, order // 2, sines + order // 2)  # 0, D/2, 1, D/2 + 1, …
    reads, writes = reading(order), writing(order)
    rules = [Rule("encoder.embed.token", "model.shared", reads), Rule("output.bias", "final_logits_bias", ONE_ROW)]
    for stack in ("encoder", "decoder"):
        block, theirs = stack + ".{i}", f"model.{stack}.layers." + "{i}"
        for part, attention in (("self", "self_attn"), ("cross", "encoder_attn")):
            rules += [Rule(f"{block}.{part}.{x}", f"{theirs}.{attention}.{x}_proj", reads) for x in "qkv"]
            rules.append(Rule(f"{block}.{part}.o", f"{theirs}.{attention}.out_proj", writes))
        rules += [
            Rule(f"{block}.norm1", f"{theirs}.self_attn_layer_norm", writes),
            Rule(f"{block}.norm2", f"{theirs}.encoder_attn_layer_norm", writes),
            Rule(f"{block}.ffn.w1", f"{theirs}.fc1", reads),
            Rule(f"{block}.ffn.w2", f"{theirs}.fc2", writes),
            Rule(f"{block}.norm3", f"{theirs}.final_layer_norm", writes),
        ]
    return rules


MARIAN = Family(
    name="Marian",
    model_type="marian",
    kind="transformer",
    tasks={"MarianMTModel": "translate"},
    keys={
        "width": ("d_model",),
        "heads": ("encoder_attention_heads", "decoder_attention_heads"),
        "inner": ("encoder_ffn_dim", "decoder_ffn_dim"),
        "encoder_layers": ("encoder_layers",),
        "decoder_layers": ("decoder_layers",),
        "max_length": ("max_position_embeddings",),
        "dropout": ("dropout",),
    },
    defaults={
        "vocab_size": 58101,
        "d_model": 1024,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
        "encoder_layers": 12,
        "decoder_layers": 12,
        "max_position_embeddings": 1024,
        "dropout": 0.1,
        "activation_function": "gelu",
        "scale_embedding": False,
    },
    fixed={
        "norm": "post",
        "norm_kind": "layer",
        "positions": "sinusoidal",
        "scores": "dot",
        "tie": "all",
        "epsilon": 1e-5,
    },
    zeros={"bias": True, "output_bias": True},
    required={
        "scale_embedding": (True,),
        "share_encoder_decoder_embeddings": (True,),
        "tie_word_embeddings": (True,),
        "static_position_embeddings": (True,),
        "normalize_before": (False,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (False,),
        "quantization_config": (None,),
    },
    activation="activation_function",
    rules=_rules,
    unflatten=_unflatten,
    ignored=(r"model\.(encoder|decoder)\.embed_positions\.weight",),
    copies={
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
        "lm_head.weight": "model.shared.weight",
    },
)
