"""Wordings in a config: the words that its protocols ask in where those are not their own.

A file that stands where a protocol's name may stand is read once. From then on the config has its
words, so that a stored run needs no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from divtok.errors import ConfigError, did_you_mean
from divtok.protocols.given import accepted, is_wording_file, read_wording
from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.wording import Wording, is_reference
from divtok.section import Section
from divtok.strict_yaml import AS_SAID


class WordingSection(Section):
    """What a wording file says, but for its name, which is the key it stands below."""

    kind: str
    user: str
    system: str | None = None
    follow_up: str | None = None
    source: str | None = None

    def named(self, name: str) -> Wording:
        return Wording(name, **self.model_dump())


def of_files(tree: Any) -> Any:
    """The tree of a config with the words of files in it, and their names as the protocols."""
    if not isinstance(tree, Mapping):
        return tree
    config = dict(cast("Mapping[str, Any]", tree))
    read: dict[str, Wording] = {}

    def name_of(protocol: Any) -> Any:
        if not is_wording_file(protocol):
            return protocol
        wording = read_wording(protocol)
        before = read.setdefault(wording.name, wording)
        if before.hash != wording.hash:
            raise ConfigError(
                f"Two wording files give other words by one name, '{wording.name}'.",
                next_step="Give one of them another name: name: NAME, in the file.",
            )
        return wording.name

    if "protocol" in config:
        config["protocol"] = name_of(config["protocol"])
    each = config.get("benchmark_protocols")
    if isinstance(each, Mapping):
        named = cast("Mapping[str, Any]", each)
        config["benchmark_protocols"] = {name: name_of(p) for name, p in named.items()}
    if read:
        config["wordings"] = {**(config.get("wordings") or {}), **as_section(*read.values())}
    return config


def as_section(*wordings: Wording) -> dict[str, dict[str, Any]]:
    """`wordings` of a config."""
    found: dict[str, dict[str, Any]] = {}
    for wording in wordings:
        words = asdict(wording)
        found[words.pop("name")] = words
    return found


def whole(wordings: Mapping[str, WordingSection]) -> dict[str, WordingSection]:
    """With the question after the answer where it was left out; an error names what is wrong."""
    found: dict[str, WordingSection] = {}
    for name, section in wordings.items():
        try:
            wording = accepted(section.named(name))
        except ValueError as error:
            why = {"why": f"wordings.{name}: {error}."}
            raise PydanticCustomError(AS_SAID, "{why}", why) from error
        found[name] = WordingSection.model_validate(as_section(wording)[name])
    return found


def known_protocol(name: str, info: ValidationInfo) -> str:
    """A protocol's name, or one of the config's wordings."""
    if "wordings" not in info.data:  # wrong themselves, which is said already
        return name
    wordings: Mapping[str, WordingSection] = info.data["wordings"]
    if name in wordings or (name in PROTOCOLS and not is_reference(name)):
        return name
    hint = did_you_mean(name, [*PROTOCOLS.names(), *wordings])
    why = {"hint": f"{hint} Other words for one of them are given as a file, FILE.yaml."}
    raise PydanticCustomError("unknown_name", "unknown protocol. {hint}", why)
