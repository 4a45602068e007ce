"""Several directions of translation in one model, which a tag at the source's start tells apart.

A tag is a token after the vocabulary's own and says the target language (Johnson et al. 2017). Each
direction is a data configuration of its own, with its languages and, of your own text, the path
prefixes of its pair of languages: PATH/train:en-fr reads PATH/train.en and PATH/train.fr, both for
en-fr and for fr-en. A prefix that names no languages is of the main direction's.
"""

import dataclasses
import re

from transformer_jax import config as config_lib
from transformer_jax import errors
from transformer_jax.data import corpus

_PAIR = "([^:/-]+)-([^:/-]+)"  # of languages, as in en-de


def name(config: config_lib.DataConfig) -> str:
    """What a configuration's own direction is called: en-de."""
    return f"{config.source_language}-{config.target_language}"


def of(config: config_lib.DataConfig) -> list[config_lib.DataConfig]:
    """The configuration of each direction, the main one first; without data.directions, itself.

    Raises:
      UserError: data.directions is no such list or lacks the main direction, a direction has no
        training or development set, or a path prefix serves none.
    """
    if not config.directions:
        return [config]
    pairs = _listed(config)
    of_main = (config.source_language, config.target_language)
    known = {frozenset(pair): dict.fromkeys(corpus.SETS, "") for pair in pairs}
    for field in corpus.SETS:
        for part in filter(None, map(str.strip, getattr(config, field).split(","))):
            named = re.fullmatch(f"(.+):{_PAIR}", part)
            path, *languages = named.groups() if named else (part, *of_main)
            if frozenset(languages) not in known:
                raise errors.UserError(
                    f"data.{field}: {part} is of languages between which "
                    f"data.directions={config.directions} has no direction: add it, or leave out "
                    "the prefix"
                )
            paths = known[frozenset(languages)]
            paths[field] = f"{paths[field]},{path}".lstrip(",")
    found = []
    for source, target in pairs:
        paths = known[frozenset((source, target))]
        for field in ("train", "dev"):
            if not paths[field] and any(others[field] for others in known.values()):
                raise errors.UserError(
                    f"data.{field} has no path prefix for the direction {source}-{target}: add "
                    f"PATH:{source}-{target}, which reads PATH.{source} and PATH.{target}"
                )
        languages = {"source_language": source, "target_language": target}
        found.append(dataclasses.replace(config, directions="", **languages, **paths))
    return found


def tags(config: config_lib.DataConfig) -> dict[str, int]:
    """The tag of each target language, none in a model of one direction; UserError as `of`."""
    if not config.directions:
        return {}
    languages = sorted({target for _, target in _listed(config)})
    return {language: config.vocab_size + number for number, language in enumerate(languages)}


def _listed(config: config_lib.DataConfig) -> list[tuple[str, str]]:
    """Source and target language of each direction, the main one first."""
    main = (config.source_language, config.target_language)
    found = []
    for part in config.directions.split(","):
        pair = re.fullmatch(_PAIR, part.strip())
        if not pair or pair[1] == pair[2] or pair.groups() in found:
            raise errors.UserError(
                f"data.directions={config.directions!r} should list directions, each once, such "
                "as en-de,de-en; a language's own hyphen is written otherwise, as in en-pt_BR"
            )
        found.append(pair.groups())
    if main not in found:
        raise errors.UserError(
            f"data.directions={config.directions} lacks the main direction, {name(config)}, which "
            "data.source_language and data.target_language say"
        )
    return sorted(found, key=lambda pair: pair != main)
