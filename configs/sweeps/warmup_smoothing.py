"""A grid of warm-up steps and label smoothing, to see if the best of one depends on the other."""

GRID = {"train.warmup_steps": [125, 500], "train.label_smoothing": [0.0, 0.1, 0.2]}
