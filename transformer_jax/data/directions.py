"""Several directions of translation in one model, which a tag at the source's start tells apart.

A tag is a token after the vocabulary's own and says the target language (Johnson et al. 2017). Each
direction is a data configuration of its own, with its languages and, of your own text, the path
prefixes of its pair of languages: PATH/train:en-fr reads PATH/train.en and PATH/train.fr, both for
en-fr and for fr-en. A prefix that names no languages is of the main direction's.
"""

import dataclasses
import re
from typing import final

from transformer_jax import config as config_lib
from transformer_jax import errors

_PAIR = "([^:/-]+)-([^:/-]+)"  # of languages, as in en-de


@final
@dataclasses.dataclass(frozen=True)
class _Prefix:
    """A path prefix, without the languages that it names, and these."""

    path: str
    languages: frozenset[str]
    written: str


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
    sets = {
        field: [_prefix(part, config) for part in getattr(config, field).split(",") if part.strip()]
        for field in ("train", "dev", "test")
    }
    known = {frozenset(pair) for pair in pairs}
    for field, prefixes in sets.items():
        for prefix in prefixes:
            if prefix.languages not in known:
                raise errors.UserError(
                    f"data.{field}: {prefix.written} is of languages between which "
                    f"data.directions={config.directions} has no direction: add it, or leave out "
                    "the prefix"
                )
    return [_of_pair(config, pair, sets) for pair in pairs]


def tags(config: config_lib.DataConfig) -> dict[str, int]:
    """The tag of each target language; none where the model has one direction.

    Raises:
      UserError: as `of`, of data.directions itself.
    """
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
                "as en-de,de-en"
            )
        found.append(pair.groups())
    if main not in found:
        raise errors.UserError(
            f"data.directions={config.directions} lacks the main direction, {name(config)}, which "
            "data.source_language and data.target_language say"
        )
    return sorted(found, key=lambda pair: pair != main)


def _prefix(written: str, config: config_lib.DataConfig) -> _Prefix:
    named = re.fullmatch(f"(.+):{_PAIR}", written.strip())
    if not named:
        main = frozenset((config.source_language, config.target_language))
        return _Prefix(written.strip(), main, written.strip())
    return _Prefix(named[1], frozenset(named.groups()[1:]), written.strip())


def _of_pair(
    config: config_lib.DataConfig, pair: tuple[str, str], sets: dict[str, list[_Prefix]]
) -> config_lib.DataConfig:
    source, target = pair
    paths = {
        field: ",".join(prefix.path for prefix in prefixes if prefix.languages == {*pair})
        for field, prefixes in sets.items()
    }
    for field in ("train", "dev"):
        if sets[field] and not paths[field]:
            raise errors.UserError(
                f"data.{field} has no path prefix for the direction {source}-{target}: add "
                f"PATH:{source}-{target}, which reads PATH.{source} and PATH.{target}"
            )
    return dataclasses.replace(
        config, directions="", source_language=source, target_language=target, **paths
    )
