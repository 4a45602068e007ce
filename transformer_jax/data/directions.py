"""Translation in several directions with one model (Johnson et al. 2017).

Each source begins with a tag that stands for the target language. The ids of tags come after the
tokenizer's ids. Each direction has a separate data config. For text files, a path prefix may name a
pair of languages: PATH/train:en-fr stands for PATH/train.en and PATH/train.fr, and is used for both
en-fr and fr-en. A prefix without languages belongs to the languages of the main direction.
"""

import dataclasses
import re

from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.data import corpus

_PAIR = "([^:/-]+)-([^:/-]+)"  # two languages, such as en-de


def name(config: config_lib.DataConfig) -> str:
    """Returns the name of a config's main direction, such as en-de."""
    return f"{config.source_language}-{config.target_language}"


def of(config: config_lib.DataConfig) -> list[config_lib.DataConfig]:
    """Returns a config for each direction, the main direction's first.

    Without data.directions, the list contains `config` alone.

    Raises:
      UserError: data.directions is malformed or lacks the main direction, a direction has no
        training or development set, or a path prefix belongs to no direction.
    """
    if not config.directions:
        return [config]
    pairs = _listed(config)
    main = (config.source_language, config.target_language)
    paths_of = {frozenset(pair): dict.fromkeys(corpus.SETS, "") for pair in pairs}
    for field in corpus.SETS:
        for part in filter(None, map(str.strip, getattr(config, field).split(","))):
            named = re.fullmatch(f"(.+):{_PAIR}", part)
            path, *languages = named.groups() if named else (part, *main)
            if frozenset(languages) not in paths_of:
                raise errors.UserError(
                    f"data.{field}: data.directions={config.directions} has no direction between "
                    f"the languages of {part}: add it, or leave out the prefix"
                )
            paths = paths_of[frozenset(languages)]
            paths[field] = f"{paths[field]},{path}".lstrip(",")
    configs = []
    for source, target in pairs:
        paths = paths_of[frozenset((source, target))]
        for field in ("train", "dev"):
            if not paths[field] and any(other[field] for other in paths_of.values()):
                raise errors.UserError(
                    f"data.{field} has no path prefix for the direction {source}-{target}: add "
                    f"PATH:{source}-{target}, which reads PATH.{source} and PATH.{target}"
                )
        languages = {"source_language": source, "target_language": target}
        configs.append(dataclasses.replace(config, directions="", **languages, **paths))
    return configs


def tags(config: config_lib.DataConfig) -> dict[str, int]:
    """Returns the id of each target language's tag, or {} if data.directions is empty.

    Raises:
      UserError: data.directions is malformed or lacks the main direction.
    """
    if not config.directions:
        return {}
    languages = sorted({target for _, target in _listed(config)})
    return {language: config.vocab_size + number for number, language in enumerate(languages)}


def _listed(config: config_lib.DataConfig) -> list[tuple[str, str]]:
    """Returns the source and target language of each direction, the main one first."""
    main = (config.source_language, config.target_language)
    listed = []
    for part in config.directions.split(","):
        pair = re.fullmatch(_PAIR, part.strip())
        if not pair or pair[1] == pair[2] or pair.groups() in listed:
            raise errors.UserError(
                f"data.directions={config.directions!r} should list directions, each once, such "
                "as en-de,de-en: write a hyphen within a language as _, as in en-pt_BR"
            )
        listed.append(pair.groups())
    if main not in listed:
        raise errors.UserError(
            f"data.directions={config.directions} lacks the main direction, {name(config)}, of "
            "data.source_language and data.target_language: add it"
        )
    return sorted(listed, key=lambda pair: pair != main)
