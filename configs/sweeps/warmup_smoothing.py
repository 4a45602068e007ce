"""Does label smoothing want another warm-up?"""

GRID = {"train.warmup_steps": [125, 500], "train.label_smoothing": [0.0, 0.1, 0.2]}
