"""The engine "imported": responses come from files of other tools; nothing is generated."""

from __future__ import annotations

from divtok.generate.engine import Engine, register

register(
    Engine(
        name="imported",
        summary="Nothing is generated: responses were brought by 'divtok import'.",
        weights_here=False,
    )
)
