"""Words that a user gives to a protocol: a YAML file, or a part of a config.

The kind that a wording names is what reads the answers; only what is asked is the user's.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from divtok.errors import ConfigError, did_you_mean
from divtok.protocols.prompts import CONFIDENCE_QUESTION
from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.wording import Wording, made_known, reference
from divtok.strict_yaml import read_file


def is_wording_file(protocol: object) -> bool:
    """Whether it is a file where the name of a protocol may stand; no name ends so."""
    return isinstance(protocol, os.PathLike) or (
        isinstance(protocol, str) and protocol.endswith((".yaml", ".yml"))
    )


def read_wording(path: Path | str) -> Wording:
    """The words of a user's file."""
    path = Path(path)
    wording = read_file(Wording, path, noun="wording file")
    try:
        return accepted(wording)
    except ValueError as error:
        raise ConfigError(f"Config error in the wording file {path}: {error}.") from error


def accepted(wording: Wording) -> Wording:
    """A wording of a user's, whole and known from now on; a ValueError where it fits no kind."""
    if wording.kind not in PROTOCOLS.names():
        raise ValueError(
            f"kind: unknown protocol '{wording.kind}'. "
            f"{did_you_mean(wording.kind, PROTOCOLS.names())}"
        )
    if wording.name in PROTOCOLS.names():
        raise ValueError(
            f"name: '{wording.name}' is the name of a protocol already. Give the wording a name of "
            "its own"
        )
    kind = PROTOCOLS.get(wording.kind)
    if kind.states_confidence and wording.follow_up is not None:
        raise ValueError(
            f"follow_up: a response to '{wording.kind}' states its confidence, so nothing is asked "
            "after it. Leave it out"
        )
    if not kind.states_confidence and wording.follow_up is None:
        own = None if kind.wording is None else kind.wording.follow_up
        wording = replace(wording, follow_up=own or CONFIDENCE_QUESTION)
    return made_known(wording)


def protocol_in(wording: Wording) -> str:
    """What the protocol is called in rows; by its kind alone where the words are the kind's own."""
    own = PROTOCOLS.get(wording.kind).wording
    same = own is not None and own.hash == wording.hash
    return wording.kind if same else reference(wording.kind, wording.hash)


def protocol_named(protocol: str | os.PathLike[str]) -> str:
    """The protocol of a name or of a wording file, as rows have it."""
    if is_wording_file(protocol):
        return protocol_in(read_wording(Path(protocol)))
    return str(protocol)
