"""The verb evaluate: how good each estimator is."""

from __future__ import annotations

import dataclasses

from divtok.cli.options import JsonOption, RunArgument, open_with_config
from divtok.cli.printing import print_json, print_results


def evaluate(run: RunArgument, as_json: JsonOption = False) -> None:
    """ECE, AUROC and the rest for every benchmark, generator and estimator of a run."""
    from divtok.stages.evaluate import results_of

    store, config = open_with_config(run)
    found = results_of(store, config)
    if not as_json:
        print_results(found, config)
        return
    print_json(
        [
            dataclasses.asdict(evaluation) | {n.key: n.value(evaluation) for n in found.notes}
            for evaluation in found.evaluations
        ]
    )
