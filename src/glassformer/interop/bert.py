"""BERT: learned positions and token types, LayerNorm after each part, and a head for each task."""

from glassformer.interop.family import Family
from glassformer.interop.rules import Rule
from glassformer.options import BertOptions

EMBEDDINGS, LAYER = "bert.embeddings", "bert.encoder.layer.{i}"

HEADS = {
    "fill": [
        Rule("head.dense", "cls.predictions.transform.dense"),
        Rule("head.norm", "cls.predictions.transform.LayerNorm"),
        Rule("head.output", "cls.predictions"),  # its bias alone: the weight is the embedding's
    ],
    "classify": [Rule("head.dense", "bert.pooler.dense"), Rule("head.output", "classifier")],
    "tag": [Rule("head.output", "classifier")],
}


def _rules(options: BertOptions, task: str) -> list[Rule]:
    return [
        Rule("encoder.embed.token", f"{EMBEDDINGS}.word_embeddings"),
        Rule("encoder.embed.position", f"{EMBEDDINGS}.position_embeddings.weight"),
        Rule("encoder.embed.types", f"{EMBEDDINGS}.token_type_embeddings"),
        Rule("encoder.embed.norm", f"{EMBEDDINGS}.LayerNorm"),
        Rule("encoder.{i}.self.q", f"{LAYER}.attention.self.query"),
        Rule("encoder.{i}.self.k", f"{LAYER}.attention.self.key"),
        Rule("encoder.{i}.self.v", f"{LAYER}.attention.self.value"),
        Rule("encoder.{i}.self.o", f"{LAYER}.attention.output.dense"),
        Rule("encoder.{i}.norm1", f"{LAYER}.attention.output.LayerNorm"),
        Rule("encoder.{i}.ffn.w1", f"{LAYER}.intermediate.dense"),
        Rule("encoder.{i}.ffn.w2", f"{LAYER}.output.dense"),
        Rule("encoder.{i}.norm3", f"{LAYER}.output.LayerNorm"),
        *HEADS["classify" if task == "compare" else task],
    ]


BERT = Family(
    name="BERT",
    model_type="bert",
    kind="bert",
    tasks={
        "BertForMaskedLM": "fill",
        "BertForPreTraining": "fill",
        "BertForSequenceClassification": "classify",
        "BertForTokenClassification": "tag",
    },
    keys={
        "width": ("hidden_size",),
        "heads": ("num_attention_heads",),
        "layers": ("num_hidden_layers",),
        "inner": ("intermediate_size",),
        "max_length": ("max_position_embeddings",),
        "types": ("type_vocab_size",),
        "epsilon": ("layer_norm_eps",),
        "dropout": ("hidden_dropout_prob",),
    },
    defaults={
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "hidden_act": "gelu",
    },
    fixed={"norm": "post", "norm_kind": "layer", "positions": "learned", "scores": "dot", "pooling": "first"},
    zeros={"bias": True, "types": 1},
    required={
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "tie_word_embeddings": (True,),
        "quantization_config": (None,),
    },
    activation="hidden_act",
    rules=_rules,
    renamed=((r"(.*)\.LayerNorm\.gamma", r"\1.LayerNorm.weight"), (r"(.*)\.LayerNorm\.beta", r"\1.LayerNorm.bias")),
    ignored=(r"bert\.embeddings\.position_ids", r"bert\.pooler\..*", r"cls\.seq_relationship\..*"),
    copies={
        "cls.predictions.decoder.weight": f"{EMBEDDINGS}.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
