"""What a checkpoint's files were when written: without it Orbax reads flipped bits as well."""

from concurrent import futures

from transformer_jax import files

NAME = "manifest.json"


def write(folder: files.Path) -> None:
    """Records the SHA-256 of every file of a checkpoint that is written."""
    files.write_json(folder / NAME, {"sha256": _digests(folder)})


def is_there(folder: files.Path) -> bool:
    """Whether a checkpoint has its manifest, which is written last and removed first."""
    return (folder / NAME).exists()


def remove(folder: files.Path) -> None:
    """Removes the record, before the files that it speaks of go."""
    (folder / NAME).unlink(missing_ok=True)


def fault(folder: files.Path) -> str:
    """Why a checkpoint cannot be trusted, in a few words; "" if it is as it was written.

    Raises:
      Exception: the bucket that it lies in does not answer.
    """
    try:
        expected = files.parse_json((folder / NAME).read_bytes(), {"sha256": dict})["sha256"]
        found = _digests(folder)
    except FileNotFoundError:
        return f"it has no {NAME}: its writing was cut short"
    except OSError as error:
        if files.met_in_a_bucket(error):
            raise  # which says nothing of the checkpoint
        return f"a file of it cannot be read: {error}"
    except ValueError:
        return f"its {NAME} is damaged"
    for name in sorted({*expected, *found}):
        if name not in found:
            return f"its file {name} is missing"
        if name not in expected:
            return f"its file {name} was not there when it was written"
        if found[name] != expected[name]:
            return f"its file {name} is not what was written"
    return ""


def _digests(folder: files.Path) -> dict[str, str]:
    """SHA-256 of each file but the manifest, by its path below the folder."""
    names = [name for name in files.below(folder) if name != NAME]
    with futures.ThreadPoolExecutor() as pool:
        digests = pool.map(files.sha256, (folder / name for name in names))
        return dict(zip(names, digests, strict=True))
