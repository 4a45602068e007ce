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


def get_config() -> ml_collections.ConfigDict:
    """Returns the paper's base configuration."""
    config = ml_collections.ConfigDict()

    config.model = model = ml_collections.ConfigDict()
    model.architecture = "transformer"  # or what it replaced: rnn, lstm, gru, conv
    model.num_layers = 6  # N, in the encoder and again in the decoder
    model.d_model = 512  # width of embeddings and of every sub-layer's output
    model.d_ff = 2048  # inner width of the feed-forward
    model.num_heads = 8  # h
    model.num_kv_heads = 0  # key–value heads, a divisor of h; 0: as many as h
    model.d_k = 64  # width of one head's queries and keys
    model.d_v = 64  # width of one head's values
    model.dropout_rate = 0.1  # P_drop: on sub-layer outputs and on embeddings + positions
    model.attention_dropout_rate = 0.0  # on attention weights; the paper has none
    model.feed_forward_dropout_rate = 0.0  # after the feed-forward's activation; the paper has none
    model.position = "sinusoidal"  # none, sinusoidal, learned, t5, alibi or rotary
    model.max_positions = 1024  # rows of a learned position table
    model.norm = "layer_norm"  # layer_norm or rms_norm
    model.norm_placement = "post"  # post: norm(x + f(x)); pre: x + f(norm(x))
    model.feed_forward = "relu"  # relu, gelu or swiglu, which has three matrices instead of two
    model.attention_pattern = "window"  # window or interleaved, with layers that have none between
    model.window = 0  # self-attention reaches so many positions to each side; 0: all
    model.global_every = 3  # interleaved: every so many layers one without window
    model.recurrent_attention = "none"  # rnn, lstm, gru: none, dot (Luong) or additive (Bahdanau)
    model.kernel_size = 3  # conv: positions that one convolution sees
    model.compute_dtype = "float32"  # float32 or bfloat16; parameters stay float32
    model.attention_kernel = "plain"  # plain, or fused: cuDNN's on GPUs, where it takes the shapes
    model.rematerialise = False  # on accelerators: computes layers again for their gradients

    config.train = train = ml_collections.ConfigDict()
    train.num_steps = 100_000  # optimiser steps
    train.warmup_steps = 4000  # steps of linear warm-up before the inverse square root
    train.learning_rate_scale = 1.0  # factor on the paper's schedule
    train.label_smoothing = 0.1  # eps_ls, spread evenly over the whole vocabulary
    train.adam_beta2 = 0.98  # decay of Adam's second moment
    train.scheduled_sampling = 0.0  # rnn, lstm, gru: chance of reading an own word, in the end
    train.batch_tokens = 24_576  # target positions of the global batch
    train.accumulation_steps = 1  # parts in which a batch is computed, one after another
    train.seed = 0  # of the initial weights, the shuffle and dropout

    config.data = data = ml_collections.ConfigDict()
    data.corpus = "tfds"  # tfds: WMT; text: your own files; toy: the embedded grammar
    data.train = ""  # text: path prefixes of the training set, separated by commas
    data.dev = ""  # text: likewise of the development set
    data.test = ""  # text: likewise of the test set; may be none
    data.source_language = "en"  # translated from; text: the source files' ending
    data.target_language = "de"  # translated into; text: the target files' ending
    data.tfds_name = "wmt_t2t_translate/de-en"  # tfds: the paper's sets, either direction
    data.tfds_dir = ""  # tfds: where its datasets are kept; empty: where TFDS keeps them
    data.toy_pairs = 0  # toy: number of training pairs
    data.toy_held_out_pairs = 0  # toy: pairs in the development set, and as many in the test set
    data.toy_seed = 0  # toy: seed of the grammar's sentences
    data.vocab_size = 37_000  # pieces of the BPE model that both languages share
    data.tokenizer_pairs = 2_000_000  # training pairs it learns from at most, evenly spread
    data.source_length = 256  # source positions in a packed row
    data.target_length = 256  # target positions in a packed row
    data.packing_window = 16_384  # pairs that are packed together, of a shuffled epoch
    data.train_max_tokens = 0  # training pairs with a longer side are left out; 0: none is

    config.decode = decode = ml_collections.ConfigDict()
    decode.beam_size = 4  # hypotheses kept open for each sentence
    decode.alpha = 0.6  # exponent of the length penalty
    decode.penalty = "gnmt"  # gnmt: ((5 + length) / 6)^alpha; length: length^alpha
    decode.extra_tokens = 50  # a translation has at most this many tokens more than its source
    decode.batch_sentences = 64  # sentences decoded together

    config.evaluation = evaluation = ml_collections.ConfigDict()
    evaluation.average_checkpoints = 1  # newest ones, whose mean is evaluated; Table 2: 5 and 20
    evaluation.score_test = False  # whether the test set is translated and scored too

    config.mesh = mesh = ml_collections.ConfigDict()
    mesh.data = -1  # devices that share out the batch; -1, here or below: all that are left
    mesh.fsdp = 1  # devices that share out the batch, parameters and optimiser state
    mesh.tensor = 1  # devices that share out heads, d_ff and the vocabulary

    config.checkpoint = checkpoint = ml_collections.ConfigDict()
    checkpoint.every = 1000  # steps between checkpoints
    checkpoint.keep = 2  # newest checkpoints kept

    config.log = log = ml_collections.ConfigDict()
    log.every = 100  # steps between lines of metrics.jsonl
    log.dev_every = 5000  # steps between measurements of development perplexity; 0: never
    log.bucket_tokens = 20  # BLEU by length is taken over buckets of so many source tokens
    return config
