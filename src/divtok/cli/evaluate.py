"""The verb evaluate: how good each estimator is."""

from __future__ import annotations

import dataclasses

from divtok.cli.options import JsonOption, RunArgument, open_with_config
from divtok.cli.printing import leave_if_unanswered, print_json, print_results


def evaluate(run: RunArgument, as_json: JsonOption = False) -> None:
    """ECE, AUROC and the rest for every benchmark, generator and estimator of a run."""
    from divtok.stages.evaluate import results_of

    store, config = open_with_config(run)
    found = results_of(store, config)
    if as_json:
        said = [(note.key, note.value) for note in found.notes]
        print_json(
            [
                dataclasses.asdict(evaluation) | {key: value(evaluation) for key, value in said}
                for evaluation in found.evaluations
            ]
        )
    else:
        print_results(found, config)
    leave_if_unanswered(found)
