"""How responses were read, counted from traces, and put into words only where it may matter."""

from __future__ import annotations

import math

from report_samples import evaluation

from divtok.evaluate.how_read import HowRead, ReadRow, how_read
from divtok.report.reading_notes import reading_note


def row(retokenized: bool = False, exact: bool = True, p: float = 0.0, q: float = 0.0) -> ReadRow:
    return ReadRow("gen", "large", "small", retokenized, exact, p, q)


def test_responses_are_counted_by_generator_and_pair() -> None:
    other = ReadRow("other", "large", "small", True, True, 0.5, math.nan)
    rows = [row(p=3e-5), row(retokenized=True, q=0.002), row(exact=False, q=0.004), other]
    assert how_read(rows) == [
        HowRead("gen", "large", "small", 3, 1, 1, 3e-5, 0.004, 0, 2),
        HowRead("other", "large", "small", 1, 1, 0, 0.5, None, 1, 0),
    ]


def test_what_is_as_expected_is_in_the_json_alone() -> None:
    makers = {
        "traces": [
            {"models": "large small", "device": "cpu", "dtype": "float32", "torch": "2"},
            {"models": "large small", "device": "cpu", "dtype": "float32", "torch": "3"},
            {"models": "large other", "device": "cuda", "dtype": "float32"},
        ]
    }
    for rows in ([row(p=3e-5), row(q=1e-3)], [row(retokenized=True)] * 2, [row(exact=False)] * 2):
        note = reading_note(how_read(rows), makers)
        assert note.lines == ()
        value = note.value(evaluation("dtc_lin", generator="gen"))
        assert value["responses"] == 2
        assert value["made_on"] == [{"device": "cpu", "dtype": "float32"}]
    assert reading_note(how_read([row()]), {}).value(evaluation("dtc_lin", generator="x")) is None


def test_what_is_not_as_expected_is_said() -> None:
    rows = [row(p=0.0123), row(q=0.5, retokenized=True), row(exact=False), row()]
    assert reading_note(how_read(rows), {}).lines == (
        "up to 0.012 of large's probability lies beyond the shared vocabulary (in 1 of 4 responses "
        "of gen above 0.001); divergences leave it out.",
        "up to 0.5 of small's probability lies beyond the shared vocabulary (in 1 of 4 responses "
        "of gen above 0.001); divergences leave it out.",
        "1 of 4 responses of gen were tokenised anew from their text; of the others the ids were "
        "those of large.",
        "of 1 of 4 responses of gen there are bounds alone, of the others exact divergences.",
    )
