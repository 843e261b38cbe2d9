"""The whole config of a command: what its run has from before, and what it leaves to its models.

How models of no family are sampled, and whose theta they take, is settled once, said and written
out, so that a resumed run keeps it whatever the models' files say later. Reads small files of
models only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from divtok.config.run import DEFAULT_SAMPLES, RunConfig, SamplingSection, resolve
from divtok.models.errors import need_transformers, reading
from divtok.models.files import fetch
from divtok.models.load import model_place, read_config
from divtok.progress import say
from divtok.records import Sampling
from divtok.stages.continued import continued
from divtok.store.run import Run
from divtok.strict_yaml import invalid

_FILE = "generation_config.json"
_TAKEN = ("temperature", "top_p", "top_k")
# What else may change the distribution that is drawn from, and its value where it changes nothing.
_NOT_APPLIED = {
    **{"min_p": 0.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0},
    **{"repetition_penalty": 1.0, "no_repeat_ngram_size": 0},
}


def settled(run: Run, config: RunConfig) -> RunConfig:
    """The config of the run as it goes on, with everything written out that its models say."""
    new = run.config_text() is None
    config = continued(run, config)
    if config.family is not None:  # it says it all itself
        return config
    own = config.own_sampling
    sampled = [] if config.engine.open is None else config.generators or []
    found = {model: _own_sampling(config, model) for model in sampled if model not in own}
    added = {model: section for model, (section, _) in found.items()}
    changed = {
        "own_sampling": {model: (own | added)[model] for model in sampled},
        "samples": config.samples or DEFAULT_SAMPLES,
    }
    config = config.model_copy(update=changed)
    for model, (_, source) in found.items():
        _say_sampling(config, model, source)
    if new:
        _say_theta(config)
    return resolve(config)


def _own_sampling(config: RunConfig, model: str) -> tuple[SamplingSection, str]:
    """How a generator is sampled where the config says nothing, and why so."""
    plain = Sampling()
    default: dict[str, Any] = {"temperature": plain.temperature, "top_p": plain.top_p}
    if not config.weights_here:
        section = SamplingSection.model_validate({**default, "max_length": plain.max_length})
        return section, "divtok's defaults"
    need_transformers()
    settings = _settings(config, model)
    asked = {name: settings[name] for name in _TAKEN if settings.get(name)}
    if settings.get("do_sample") is False or settings.get("temperature") == 0:
        source = f"divtok's defaults: its {_FILE} asks for the most likely token, each time"
        asked = default
    elif asked or settings.get("do_sample"):
        source = f"as its {_FILE} says"
        asked = {"temperature": 1.0, "top_p": 1.0, **asked}  # what it leaves out cuts nothing off
    else:
        source, asked = f"divtok's defaults: no {_FILE} says how it is sampled", default
    left = {n: settings[n] for n, off in _NOT_APPLIED.items() if settings.get(n) not in (None, off)}
    if left:
        source += "; not applied: " + ", ".join(f"{name} {value}" for name, value in left.items())
    length = min([plain.max_length, *_contexts(config, model)])
    try:
        return SamplingSection.model_validate({**asked, "max_length": length}), source
    except ValidationError as error:
        raise invalid(error, SamplingSection, source=f"the {_FILE} of '{model}'") from error


def _settings(config: RunConfig, model: str) -> dict[str, Any]:
    with reading(f"The {_FILE} of '{model}'", next_step="Correct that file, or remove it."):
        path = fetch(model_place(model), _FILE, config.revisions.get(model))
        return {} if path is None else dict(json.loads(path.read_bytes()))


def _contexts(config: RunConfig, model: str) -> Iterator[int]:
    """What the generator and the models that read it can take in, where their weights are here."""
    generator = config.preset.generator(model)
    for ref in {model, *(ref for pair in config.pairs_for(generator) for ref in pair)}:
        if ref not in config.servers:
            settings = read_config(model_place(ref), ref, config.revisions.get(ref))
            length = getattr(settings.get_text_config(), "max_position_embeddings", None)
            if length is not None:
                yield length


def _say_sampling(config: RunConfig, model: str, source: str) -> None:
    sampling = config.sampling_for(config.preset.generator(model, foreign=not config.weights_here))
    top_k = "" if sampling.top_k is None else f", top_k {sampling.top_k}"
    given = ", ".join(config.sampling.model_dump(exclude_none=True))
    say(
        f"sampling of {model}: temperature {sampling.temperature:g}, top_p {sampling.top_p:g}"
        f"{top_k} ({source}{f'; {given} as given' if given else ''}), {config.samples} per problem "
        f"of at most {sampling.max_length} tokens; change it with sampling.NAME=VALUE and --samples"
    )


def _say_theta(config: RunConfig) -> None:
    names = dict.fromkeys(f.name for f in config.pairing_families() if f is not None)
    if config.score.theta is None and config.fitted_theta is not None:
        say(f"theta {config.theta:g} is that of '{', '.join(names)}', which pairs these models")
