"""The paper's base model and recipe (Vaswani et al. 2017, Table 3, first row).

Every field's default stands here, once; the other configs say only what differs.
Any field can be set on the command line: --config.model.d_k=16.

  python -m transformer_jax.prepare --config=configs/base.py --cache_dir=cache
  python -m transformer_jax.train --config=configs/base.py --workdir=runs/base --cache_dir=cache
  python -m experiments.table3 --config=configs/base.py --workdir=runs/table3 --cache_dir=cache

fetches WMT14 English–German, trains one run, and all of Table 3. Add
--config.data.vocab_size=40960 for the paper's numbers of parameters. For your own text, give its
path prefixes:

  python -m transformer_jax.train --config=configs/base.py --workdir=runs/base \
      --config.data.corpus=text --config.data.train=PATH/train \
      --config.data.dev=PATH/newstest2013 --config.data.test=PATH/newstest2014
"""

import ml_collections
from ml_collections import config_dict

_DEFAULTS = config_dict.create(
    model=config_dict.create(
        architecture="transformer",  # decoder, encoder, elmo, or older: rnn, lstm, gru, conv
        num_layers=6,  # N, in the encoder and again in the decoder
        d_model=512,  # width of embeddings and of every sub-layer's output
        d_ff=2048,  # inner width of the feed-forward
        num_heads=8,  # h
        num_kv_heads=0,  # key–value heads, a divisor of h; 0: as many as h
        d_k=64,  # width of one head's queries and keys
        d_v=64,  # width of one head's values
        dropout_rate=0.1,  # P_drop: on sub-layer outputs and on embeddings + positions
        attention_dropout_rate=0.0,  # on attention weights; the paper has none
        feed_forward_dropout_rate=0.0,  # after the feed-forward's activation; the paper has none
        position="sinusoidal",  # none, sinusoidal, learned, t5, alibi, rotary or relative
        max_positions=1024,  # vectors of a learned position table
        norm="layer_norm",  # layer_norm or rms_norm
        norm_placement="post",  # post: norm(x + f(x)); pre: x + f(norm(x))
        embedding_norm=False,  # a norm of embeddings + positions, as in BERT; the paper has none
        feed_forward="relu",  # relu, gelu or swiglu, which has three matrices instead of two
        attention_pattern="window",  # window or interleaved, with layers that have none between
        window=0,  # self-attention reaches so many positions to each side; 0: all
        global_every=3,  # interleaved: every so many layers one without window
        recurrent_attention="none",  # rnn, lstm, gru: none, dot (Luong) or additive (Bahdanau)
        kernel_size=3,  # conv: positions that one convolution sees
        compute_dtype="float32",  # float32 or bfloat16; parameters stay float32
        attention_kernel="plain",  # plain, or fused: cuDNN's on GPUs, where it takes the shapes
        rematerialise=False,  # on accelerators: computes layers again for their gradients
        share_stacks=False,  # transformer: the decoder's layers are the encoder's, and attend to it
        source_attention="causal",  # decoder: what the source sees of itself, causal or full
    ),
    train=config_dict.create(
        num_steps=100_000,  # optimiser steps
        warmup_steps=4000,  # steps of linear warm-up before the inverse square root
        learning_rate_scale=1.0,  # factor on the paper's schedule
        label_smoothing=0.1,  # eps_ls, spread evenly over the whole vocabulary
        adam_beta2=0.98,  # decay of Adam's second moment
        batch_tokens=24_576,  # target positions of the global batch
        accumulation_steps=1,  # parts in which a batch is computed, one after another
        seed=0,  # of the initial weights, the shuffle and dropout
        objective="none",  # trained on first: one of `data/objectives.py`, such as prefix
        start_from="",  # a finished run's folder: its weights start this one; from its own folder
        teacher_layers=0,  # of the run in start_from, which then teaches this one; 0: it does not
        objective_steps=0,  # trained on for so many of the steps, before translation
    ),
    data=config_dict.create(
        corpus="tfds",  # tfds: WMT; text, trees: your own files; toy, toy_parsing: the grammar
        train="",  # text: path prefixes of the training set, separated by commas; trees: paths
        dev="",  # text: likewise of the development set
        test="",  # text: likewise of the test set; may be none
        source_language="en",  # translated from; text: the source files' ending; "": no source
        target_language="de",  # translated into; text: the target files' ending
        directions="",  # learnt by one model, such as en-de,de-en; empty: only the one above
        tfds_name="wmt_t2t_translate/de-en",  # tfds: the paper's sets, either direction
        tfds_dir="",  # tfds: where its datasets are kept; empty: where TFDS keeps them
        toy_pairs=0,  # toy, toy_parsing: number of training pairs
        toy_held_out_pairs=0,  # likewise: pairs in the development set, and as many in the test set
        toy_seed=0,  # likewise: seed of the grammar's sentences
        vocabulary="bpe",  # bpe, or bytes: those of UTF-8, which nothing is trained for
        vocab_size=37_000,  # bpe: tokens of the model that all languages share; bytes: always 260
        tokenizer_pairs=2_000_000,  # training pairs it learns from at most, evenly spread
        source_length=256,  # source positions in a packed row
        target_length=256,  # target positions in a packed row
        packing_window=16_384,  # pairs that are packed together, of a shuffled epoch
        parsed="",  # trees, toy_parsing: further training trees, which a model wrote; paths
        tree_terminals="xx",  # trees, toy_parsing: xx, one symbol for all words, or pos, their tags
        train_max_tokens=0,  # training pairs with a longer side are left out; 0: none is
    ),
    decode=config_dict.create(
        beam_size=4,  # hypotheses kept open for each sentence
        alpha=0.6,  # exponent of the length penalty
        penalty="gnmt",  # gnmt: ((5 + length) / 6)^alpha; length: length^alpha
        extra_tokens=50,  # a translation has at most this many tokens more than its source
        batch_sentences=64,  # sentences decoded together
    ),
    evaluation=config_dict.create(
        average_checkpoints=1,  # newest ones, whose mean is evaluated; Table 2: 5 and 20
        score_test=False,  # whether the test set is translated and scored too
    ),
    mesh=config_dict.create(
        data=-1,  # devices that shard the batch; -1, here or below: all that are left
        fsdp=1,  # devices that shard the batch, parameters and optimiser state
        tensor=1,  # devices that shard heads, d_ff and the vocabulary
    ),
    checkpoint=config_dict.create(
        every=1000,  # steps between checkpoints
        keep=2,  # newest checkpoints kept
    ),
    log=config_dict.create(
        every=100,  # steps between lines of metrics.jsonl
        dev_every=5000,  # steps between measurements of development perplexity; 0: never
        bucket_tokens=20,  # BLEU by length is taken over buckets of so many source tokens
    ),
)


def get_config() -> ml_collections.ConfigDict:
    """Returns the paper's base configuration, of one's own to change."""
    return _DEFAULTS.copy_and_resolve_references()
