"""An encoder alone against Hugging Face's BERT, RoBERTa and DistilBERT: logits, loss, gradients.

Theirs read our embeddings times sqrt(d_model), and in place of their last matrix, with its bias, we
multiply by the shared embedding: our models have it so. Biases of attention's projections, which
ours lacks, are 0.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import parity
from transformer_jax import models, sequences
from transformer_jax.models import embedding
from transformer_jax.training import losses

torch, transformers = parity.torch, parity.transformers

BERT = {
    "model.architecture": "encoder",
    "model.position": "learned",
    "model.max_positions": 16,
    "model.embedding_norm": True,
    "model.feed_forward": "gelu",
    "model.d_k": 4,  # theirs is d_model / h
    "model.d_v": 4,
}
SIZES = {"vocab_size": parity.VOCABULARY, "pad_token_id": None}
EPSILON = 1e-6


def sizes(config):
    return {
        **SIZES,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.d_ff,
        "max_position_embeddings": config.max_positions,
        "layer_norm_eps": EPSILON,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }


class Encoder(torch.nn.Module):
    """One of theirs between our shared embedding and its transpose."""

    def __init__(self, config, theirs):
        super().__init__()
        self.d_model = config.d_model
        self.embedding = torch.nn.Parameter(torch.empty(parity.VOCABULARY, config.d_model))
        self.theirs = theirs

    def forward(self, tokens, segments, sentences):
        x = self.embedding[tokens] * math.sqrt(self.d_model)
        texts, words = self.features(x, (segments > 0).long(), sentences)
        return torch.cat([texts[:, None], words[:, 1:]], dim=1) @ self.embedding.T


class Bert(Encoder):
    def __init__(self, config):
        theirs = transformers.BertForPreTraining(transformers.BertConfig(**sizes(config)))
        theirs.cls.predictions.decoder = torch.nn.Identity()
        theirs.cls.seq_relationship = torch.nn.Identity()
        super().__init__(config, theirs)

    def features(self, x, mask, sentences):
        found = self.theirs(inputs_embeds=x, attention_mask=mask, token_type_ids=sentences)
        return found.seq_relationship_logits, found.prediction_logits

    @staticmethod
    def names(config):
        yield "head/words", "cls.predictions.transform.dense"
        yield "head/norm", "cls.predictions.transform.LayerNorm"
        yield "head/text", "bert.pooler.dense"
        yield from embedding_and_layers("bert", config)


class Roberta(Encoder):
    """Its texts are judged by the head that it has for classifying them."""

    def __init__(self, config):
        changed = {"max_position_embeddings": config.max_positions + 1, "pad_token_id": 0}
        theirs = transformers.RobertaForMaskedLM(
            transformers.RobertaConfig(**{**sizes(config), **changed, "type_vocab_size": 2})
        )
        theirs.lm_head.decoder = torch.nn.Identity()
        super().__init__(config, theirs)
        judge = transformers.RobertaForSequenceClassification(theirs.config).classifier
        judge.out_proj = torch.nn.Identity()
        theirs.judge = judge

    def features(self, x, mask, sentences):
        found = self.theirs(
            inputs_embeds=x,
            attention_mask=mask,
            token_type_ids=sentences,
            position_ids=1 + torch.arange(x.shape[1]).expand(x.shape[:2]),
            output_hidden_states=True,
        )
        return self.theirs.judge(found.hidden_states[-1]), found.logits

    @staticmethod
    def names(config):
        yield "head/words", "lm_head.dense"
        yield "head/norm", "lm_head.layer_norm"
        yield "head/text", "judge.dense"
        yield from embedding_and_layers("roberta", config)


class DistilBert(Encoder):
    """It has neither vectors of sentences nor a pooler: we add the ones, and do the other."""

    def __init__(self, config):
        theirs = transformers.DistilBertForMaskedLM(
            transformers.DistilBertConfig(
                **SIZES,
                dim=config.d_model,
                n_layers=config.num_layers,
                n_heads=config.num_heads,
                hidden_dim=config.d_ff,
                max_position_embeddings=config.max_positions,
                dropout=0.0,
                attention_dropout=0.0,
            )
        )
        for module in theirs.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.eps = EPSILON
        theirs.vocab_projector = torch.nn.Identity()
        theirs.sentences = torch.nn.Embedding(2, config.d_model)
        theirs.pooler = torch.nn.Linear(config.d_model, config.d_model)
        super().__init__(config, theirs)

    def features(self, x, mask, sentences):
        found = self.theirs(
            inputs_embeds=x + self.theirs.sentences(sentences),
            attention_mask=mask,
            output_hidden_states=True,
        )
        return torch.tanh(self.theirs.pooler(found.hidden_states[-1][:, 0])), found.logits

    @staticmethod
    def names(config):
        yield "head/words", "vocab_transform"
        yield "head/norm", "vocab_layer_norm"
        yield "head/text", "pooler"
        yield "sentences", "sentences"
        yield "position/table", "distilbert.embeddings.position_embeddings"
        yield "embedding_norm", "distilbert.embeddings.LayerNorm"
        for layer in range(config.num_layers):
            ours, theirs = f"encoder_{layer}", f"distilbert.transformer.layer.{layer}"
            for name, other in zip(
                ("query", "key", "value", "output"),
                ("q_lin", "k_lin", "v_lin", "out_lin"),
                strict=True,
            ):
                yield f"{ours}/attention/{name}", f"{theirs}.attention.{other}"
            yield f"{ours}/attention_residual/norm", f"{theirs}.sa_layer_norm"
            yield f"{ours}/feed_forward/inner", f"{theirs}.ffn.lin1"
            yield f"{ours}/feed_forward/outer", f"{theirs}.ffn.lin2"
            yield f"{ours}/feed_forward_residual/norm", f"{theirs}.output_layer_norm"


def embedding_and_layers(model, config):
    yield "sentences", f"{model}.embeddings.token_type_embeddings"
    yield "position/table", f"{model}.embeddings.position_embeddings"
    yield "embedding_norm", f"{model}.embeddings.LayerNorm"
    for layer in range(config.num_layers):
        ours, theirs = f"encoder_{layer}", f"{model}.encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            yield f"{ours}/attention/{name}", f"{theirs}.attention.self.{name}"
        yield f"{ours}/attention/output", f"{theirs}.attention.output.dense"
        yield f"{ours}/attention_residual/norm", f"{theirs}.attention.output.LayerNorm"
        yield f"{ours}/feed_forward/inner", f"{theirs}.intermediate.dense"
        yield f"{ours}/feed_forward/outer", f"{theirs}.output.dense"
        yield f"{ours}/feed_forward_residual/norm", f"{theirs}.output.LayerNorm"


def pairs(params, kind, config):
    """The parameters of modules that correspond; a RoBERTa's positions begin at 1."""
    ours = parity.named(params)
    found = [parity.Pair("embedding", "embedding")]
    for module, theirs in kind.names(config):
        for leaf, other in {"": "", "/kernel": "", "/scale": "", "/bias": ".bias"}.items():
            if module + leaf in ours:
                rows = (
                    slice(1, None) if (module, kind) == ("position/table", Roberta) else slice(None)
                )
                found.append(
                    parity.Pair(module + leaf, f"theirs.{theirs}{other or '.weight'}", rows)
                )
    return found


def texts():
    """Two sentences in some, labels of some words, and of a text as a whole."""
    rng = np.random.default_rng(0)
    for first, second in ((5, 4), (3, 0), (1, 6), (7, 0)):
        words = rng.integers(4, parity.VOCABULARY, first + second).tolist()
        tokens = [1, *words[:first], *([2, *words[first:]] if second else [])]
        labels = np.where(rng.random(len(tokens)) < 0.4, rng.integers(4, 28, len(tokens)), 0)
        labels[0] = rng.integers(28, 30)
        yield tokens, labels.tolist()


def arrays(rows, length):
    """Tokens, segments, positions, sentences and labels."""
    found = np.zeros((5, len(rows), length), np.int32)
    for row, several in enumerate(rows):
        columns = [
            (token, segment, place, int(2 in tokens[:place]), label)
            for segment, (tokens, labels) in enumerate(several, start=1)
            for place, (token, label) in enumerate(zip(tokens, labels, strict=True))
        ]
        found[:, row, : len(columns)] = np.array(columns).T
    return found


@pytest.mark.parametrize("kind", [Bert, Roberta, DistilBert])
def test_is_hugging_faces(make_config, kind):
    config = make_config(BERT).model
    model = models.build(config, parity.VOCABULARY)
    params = parity.model_parameters(model)
    theirs = kind(config)
    corresponding = pairs(params, kind, config)
    names = [name for name, _ in theirs.named_parameters()]
    lacking = set(names) - {pair.theirs for pair in corresponding}
    parity.copy(params, theirs, corresponding, dict.fromkeys(lacking, 0.0))
    assert all(
        "bias" in name or "word_embeddings" in name or "out_proj" in name for name in lacking
    )

    several = list(texts())
    packed, padded = (
        arrays([several[:2], several[2:]], 20),
        arrays([[each] for each in several], 12),
    )
    source = sequences.Sequences(*[jnp.zeros((2, 1), jnp.int32)] * 3)
    batch = sequences.Batch(source, sequences.Sequences(*packed[:3]), packed[4])

    def loss(params, batch):
        outputs, matrix = models.outputs(model, params, batch), embedding.of(params)
        counted = jnp.where(batch.labels > 0, batch.target.segments, 0)
        total = losses.cross_entropy(outputs, matrix, batch.labels, counted, parity.SMOOTHING)
        return total.smoothed, embedding.logits(matrix, outputs)

    compare = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (found, logits), found_gradients = compare(params, batch)
    tokens, segments, _, sentences, labels = (torch.tensor(x, dtype=torch.long) for x in padded)
    expected_logits = theirs(tokens, segments, sentences)
    expected = torch.nn.functional.cross_entropy(
        expected_logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=0,
        reduction="sum",
        label_smoothing=parity.SMOOTHING,
    )
    expected.backward()
    real = np.asarray(logits)[packed[1] > 0]
    parity.assert_close(real, expected_logits.detach().numpy()[padded[1] > 0], "logits")
    parity.assert_close(found, expected.item(), "loss")
    parity.assert_gradients_close(found_gradients, theirs, corresponding)
