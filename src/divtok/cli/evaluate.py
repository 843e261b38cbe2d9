"""The verb evaluate: how good each estimator is."""

from __future__ import annotations

import dataclasses
import json

from divtok.cli.options import JsonOption, RunArgument, open_run
from divtok.cli.printing import print_results


def evaluate(run: RunArgument, as_json: JsonOption = False) -> None:
    """ECE, AUROC and the rest for every benchmark, generator and estimator of a run."""
    from divtok.stages.evaluate import results_of
    from divtok.stages.stored import stored_config

    store = open_run(run)
    config = stored_config(store)
    found = results_of(store, config)
    if not as_json:
        print_results(found, config)
        return
    rows = [
        dataclasses.asdict(evaluation) | {note.key: note.value(evaluation) for note in found.notes}
        for evaluation in found.evaluations
    ]
    print(json.dumps(rows, indent=2, allow_nan=False))
