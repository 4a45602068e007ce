"""A grid that shows whether the best label smoothing depends on the number of warm-up steps."""

GRID = {"train.warmup_steps": [125, 500], "train.label_smoothing": [0.0, 0.1, 0.2]}
