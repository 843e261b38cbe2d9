"""What the paper says of n and k, of the theta in use, and of theta from family to family."""

from __future__ import annotations

from collections.abc import Sequence

from divtok.paper.claims.said import NEAR, Said
from divtok.paper.exhibit import Compared, Finding
from divtok.paper.judging import below, judged
from divtok.paper.run_tables import short
from divtok.paper.swept import Swept

_N, _N_DUAL, _K = ("figure-saturation",), ("figure-saturation-dual",), ("figure-offset",)

DISAGREE = Said("3.4", "Models of different families disagree to different degrees.", _N)
MOVES_WITH_FAMILY = Said(
    "C.5", "The theta with the lowest ECE of DTC lin moves with the family.", _N
)
LOW_IN_USE = Said("C.5", "ECE of DTC lin is low at each family's theta in use.", _N)
# By recipe: what is said of the value in use.
NEAR_MINIMUM = {
    "figure-saturation": Said("C.5", "n = 10 is near the minimum of ECE at the theta in use.", _N),
    "figure-saturation-dual": Said(
        "C.6",
        "n = 10 is near the minimum of ECE at the theta in use with two auxiliaries.",
        _N_DUAL,
    ),
    "figure-offset": Said("C.7", "k = 4 is near the minimum of ECE at the theta in use.", _K),
}
U_SHAPED_PROD = Said("C.7", "ECE of DTC prod against theta is U-shaped for every k.", _K)
MOVES_WITH_K = Said("C.7", "The theta with the lowest ECE of DTC prod moves with k.", _K)
PROD_MOVES_WITH_FAMILY = Said(
    "C.7", "The theta with the lowest ECE of DTC prod moves with the family.", _K
)
VALUES = (
    DISAGREE, MOVES_WITH_FAMILY, LOW_IN_USE, NEAR_MINIMUM["figure-saturation"],
    NEAR_MINIMUM["figure-saturation-dual"], U_SHAPED_PROD, MOVES_WITH_K, PROD_MOVES_WITH_FAMILY,
    NEAR_MINIMUM["figure-offset"],
)  # fmt: skip


def near_minimum(said: Said, swept: Sequence[Swept], value: int) -> Finding:
    """Whether no other value is better by more than NEAR, for each generator."""
    parameter = swept[0].parameter if swept else "n"
    compared: list[Compared] = []
    for one in swept:
        if one.reason is not None:
            compared.append(Compared(short(one.generator), 0.0, reason=one.reason))
            continue
        here = one.figures[value]
        compared += [
            below(
                f"{short(one.generator)}, {parameter} = {value} less {parameter} = {other}",
                here.less(there),
                NEAR,
            )
            for other, there in one.figures.items()
            if other != value
        ]
    return judged(
        said.text,
        f"mean ECE above that of no other {parameter} by more than {100 * NEAR:g} points, for "
        f"every generator: 95 % interval of each difference below {100 * NEAR:g}",
        compared,
        nothing="no generator was swept",
    )
