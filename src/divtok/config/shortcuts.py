"""Short names for several keys of a config at once: options of the verbs, keywords in Python."""

from __future__ import annotations

from collections.abc import Mapping

# The keys that each stands for; what they are set to, where that is not the value given.
SHORTCUTS: Mapping[str, Mapping[str, object]] = {
    "dtype": {"generate.dtype": ..., "trace.dtype": ...},
    "device_map": {"generate.device_map": ..., "trace.device_map": ...},
    "base_url": {"generate.engine": "api", "generate.api.base_url": ...},
}


def spelled_out(named: Mapping[str, object]) -> dict[str, object]:
    """The keys of a config for these names, of which some may be short."""
    found: dict[str, object] = {}
    for name, value in named.items():
        if name not in SHORTCUTS:
            found[name] = value
        elif value is not None:
            keys = SHORTCUTS[name].items()
            found |= {key: value if fixed is ... else fixed for key, fixed in keys}
    return found
