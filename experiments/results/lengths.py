"""Tables of scores by the length of sentences."""

import pandas as pd

from experiments.results import comparison, documents, frames, tables


def section(compared: comparison.Comparison) -> documents.Section:
    """Returns a section with a table of mean BLEU by length of the source, in tokens.

    For rows that set data.train_max_tokens, the table also has BLEU of the sentences that are
    longer than all training sentences.
    """
    sweep = compared.sweep
    title = "BLEU by length of the source (sentences)"
    table = by_length(sweep, "tokens", "{bucket} tokens ({sentences})", title)
    if table is None:
        return documents.Section([])
    beyond = sweep.lengths[sweep.lengths["beyond_training"].astype(bool)]
    trained_on_short = [
        row
        for row, overrides in sweep.description.rows.items()
        if "data.train_max_tokens" in overrides
    ]
    means = _means(beyond[beyond["row"].isin(trained_on_short)], "beyond")
    columns = [*table.columns]
    frame = table.frame
    if len(means):
        buckets = beyond.drop_duplicates("row").set_index("row")
        means["bucket"] = buckets["bucket"] + " (" + buckets["sentences"].astype(str) + ")"
        frame = frame.merge(means.rename_axis("row").reset_index(), on="row", how="left")
        group = "beyond training"
        columns.append(tables.Column("BLEU", "beyond", ".2f", "beyond_sd", group))
        columns.append(tables.Column("tokens (sentences)", "bucket", group=group))
    return documents.Section([tables.Table(frame, columns, title)])


def by_length(sweep: frames.Sweep, unit: str, head: str, title: str) -> tables.Table | None:
    """Returns a table of the rows' mean scores by length; None if no row has scores by length.

    A row whose buckets of lengths differ from those of the first row is left out, such as a row
    with another vocabulary.

    Args:
      sweep: the results.
      unit: "tokens" or "words".
      head: the format of a column's title, with the fields {bucket} and {sentences}.
      title: the title.
    """
    lengths = sweep.lengths
    lengths = lengths[(lengths["unit"] == unit) & ~lengths["beyond_training"].astype(bool)]
    buckets: dict[str, list[tuple[str, int]]] = {}
    for row in sweep.description.rows:
        own = lengths[lengths["row"] == row].drop_duplicates("bucket")
        if len(own):
            buckets[row] = list(zip(own["bucket"], own["sentences"], strict=True))
    if not buckets:
        return None
    first = next(iter(buckets.values()))
    rows = [row for row, own in buckets.items() if own == first]
    lengths = lengths[lengths["row"].isin(rows)]
    frame = pd.DataFrame({"row": rows})
    columns = [tables.Column("row")]
    for place, (bucket, sentences) in enumerate(first):
        means = _means(lengths[lengths["bucket"] == bucket], f"bucket_{place}")
        frame = frame.join(means, on="row")
        text = head.format(bucket=bucket, sentences=sentences)
        columns.append(tables.Column(text, f"bucket_{place}", ".2f", f"bucket_{place}_sd"))
    return tables.Table(frame, columns, title)


def _means(lengths: pd.DataFrame, name: str) -> pd.DataFrame:
    """Returns the mean and standard deviation of each row's scores over runs, indexed by row."""
    grouped = {
        row: comparison.mean_and_deviation(name, scores.tolist())
        for row, scores in lengths.groupby("row", sort=False)["score"]
    }
    return pd.DataFrame.from_dict(grouped, orient="index", columns=[name, f"{name}_sd"])
