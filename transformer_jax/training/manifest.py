"""Manifests of checkpoints: SHA-256 digests of all files, by which damage is detected.

Orbax itself does not notice damage.
"""

from concurrent import futures

from transformer_jax import files

NAME = "manifest.json"


def write(folder: files.Path) -> None:
    """Writes the manifest of a complete checkpoint."""
    files.write_json(folder / NAME, {"sha256": _digests(folder)})


def exists(folder: files.Path) -> bool:
    """Returns whether a checkpoint has a manifest, and is therefore complete."""
    return (folder / NAME).exists()


def remove(folder: files.Path) -> None:
    """Removes a checkpoint's manifest; call it before the checkpoint's files are removed."""
    (folder / NAME).unlink(missing_ok=True)


def fault(folder: files.Path) -> str:
    """Returns the reason why a checkpoint is damaged, or "" if it matches its manifest.

    Raises:
      Exception: the checkpoint is in a bucket, and reading the bucket failed.
    """
    try:
        expected = files.parse_json((folder / NAME).read_bytes(), {"sha256": dict})["sha256"]
        actual = _digests(folder)
    except FileNotFoundError:
        return f"it has no {NAME}: its writing was cut short"
    except OSError as error:
        if files.met_in_a_bucket(error):
            raise  # the checkpoint itself may be intact
        return f"one of its files cannot be read: {error}"
    except ValueError:
        return f"its {NAME} is damaged"
    for name in sorted({*expected, *actual}):
        if name not in actual:
            return f"its file {name} is missing"
        if name not in expected:
            return f"its file {name} is not listed in its {NAME}"
        if actual[name] != expected[name]:
            return f"its file {name} has changed since it was written"
    return ""


def _digests(folder: files.Path) -> dict[str, str]:
    """Returns the SHA-256 of each file except the manifest, by the file's path in the folder."""
    names = [name for name in files.below(folder) if name != NAME]
    with futures.ThreadPoolExecutor() as pool:
        digests = pool.map(files.sha256, (folder / name for name in names))
        return dict(zip(names, digests, strict=True))
