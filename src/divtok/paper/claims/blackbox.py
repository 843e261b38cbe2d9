"""What the paper says of generators that are read by two others, and of stated confidences."""

from __future__ import annotations

from divtok.paper.claims.said import LITTLE, Said
from divtok.paper.claims.table_claims import Accuracy, Claim, Level, Number, Record

DEEPSEEK = "deepseek-ai/DeepSeek-V3.2"
_THREE = ("deepseek", "qwen3-4b", "qwen3-30b")
_TABLES = tuple(f"table-blackbox-{name}" for name in _THREE)
_FIRST = _TABLES[:1]
_WITH = tuple(f"table-verbalized-{name}" for name in _THREE)

BLACKBOX: tuple[Record, ...] = (
    Accuracy(
        Said(
            "5.2",
            "Asking for a confidence sometimes reduces accuracy.",
            _TABLES,
            share="some",
        )
    ),
    Accuracy(
        Said(
            "5.2",
            "All three ways of asking for a confidence reduce the mean accuracy of DeepSeek-V3.2.",
            _FIRST,
        )
    ),
    Number(
        Said("5.2", "Mean accuracy of DeepSeek-V3.2 by default: 57.5.", _FIRST),
        "accuracy",
        ("",),
        0.575,
        0.575,
        "blackbox",
        stated=False,
        generator=DEEPSEEK,
    ),
    Number(
        Said(
            "5.2",
            "Mean accuracy of DeepSeek-V3.2 where it is asked for a confidence: 44.9 to 51.5.",
            _FIRST,
        ),
        "accuracy",
        ("",),
        0.449,
        0.515,
        "blackbox",
        each="protocol",
        stated=True,
        generator=DEEPSEEK,
    ),
    Level(
        Said("5.2", "Stated confidences are overconfident.", _TABLES),
        "gap",
        ("verbalized",),
        bound=0.0,
        each="protocol",
    ),
    Number(
        Said("5.2", "Mean ECE of DeepSeek-V3.2's stated confidences: 32.1 to 40.2.", _FIRST),
        "ece",
        ("verbalized",),
        0.321,
        0.402,
        "blackbox",
        each="protocol",
        stated=True,
        generator=DEEPSEEK,
    ),
    Number(
        Said(
            "5.2",
            "DTC lin has a low ECE on default trajectories: 11.5 to 12.7 on average for each of "
            "three generators.",
            _TABLES,
        ),
        "ece",
        ("dtc_lin",),
        0.115,
        0.127,
        "blackbox",
        stated=False,
    ),
    Claim(
        Said(
            "5.2",
            "DTC lin has a lower ECE than the stated confidence on every benchmark.",
            _TABLES,
        ),
        "ece",
        ours=("dtc_lin",),
        theirs=("verbalized",),
        each="cell",
    ),
    Number(
        Said(
            "5.2",
            "Mean ECE of DTC lin on DeepSeek-V3.2's trajectories with a stated confidence: 13.7 "
            "to 16.3.",
            _FIRST,
        ),
        "ece",
        ("dtc_lin",),
        0.137,
        0.163,
        "blackbox",
        each="protocol",
        stated=True,
        generator=DEEPSEEK,
    ),
    Claim(
        Said("5.2", "DTC prod ranks better than DTC lin.", _TABLES),
        "auroc",
        ours=("dtc_prod",),
        theirs=("dtc_lin",),
    ),
    Claim(
        Said("5.2", "DTC prod has a higher mean ECE than DTC lin.", _TABLES),
        "ece",
        ours=("dtc_lin",),
        theirs=("dtc_prod",),
    ),
    Claim(
        Said(
            "5.2",
            "Stated confidences often rank better than either DTC score.",
            _TABLES,
            share="often",
        ),
        "auroc",
        ours=("verbalized",),
        theirs=("dtc_lin", "dtc_prod"),
        each="cell",
    ),
    Claim(
        Said(
            "7",
            "Both DTC scores are better calibrated than stated confidences where logits are not "
            "available.",
            _TABLES,
        ),
        "ece",
        ours=("dtc_lin", "dtc_prod"),
        theirs=("verbalized",),
    ),
)
VERBALIZED: tuple[Record, ...] = (
    Claim(
        Said("6", "DTC lowers the ECE of the stated confidence in every case.", _WITH),
        "ece",
        ours=("verbalized_dtc",),
        theirs=("verbalized",),
        each="cell",
    ),
    Claim(
        Said("6", "DTC changes the AUROC of the stated confidence little.", _WITH),
        "auroc",
        ours=("verbalized_dtc",),
        theirs=("verbalized",),
        each="cell",
        near=LITTLE,
    ),
    Claim(
        Said(
            "6",
            "DTC sometimes improves the AUROC of the stated confidence.",
            _WITH,
            share="some",
        ),
        "auroc",
        ours=("verbalized_dtc",),
        theirs=("verbalized",),
        each="cell",
    ),
    Claim(
        Said(
            "6",
            "DTC often lowers the ECE of the stated confidence by more than 20 points.",
            _WITH,
            share="often",
        ),
        "ece",
        ours=("verbalized_dtc",),
        theirs=("verbalized",),
        each="cell",
        by=0.20,
    ),
    Number(
        Said(
            "6",
            "DTC lowers the ECE of DeepSeek-V3.2's stated confidence by 12.3 to 35.9 points.",
            _WITH[:1],
        ),
        "ece",
        ("verbalized_dtc",),
        -0.359,
        -0.123,
        "verbalized_with_dtc",
        each="cell",
        less="verbalized",
        stated=True,
        generator=DEEPSEEK,
    ),
    Number(
        Said(
            "6",
            "DTC changes the AUROC of DeepSeek-V3.2's stated confidence by -0.4 to +2.0 points.",
            _WITH[:1],
        ),
        "auroc",
        ("verbalized_dtc",),
        -0.004,
        0.020,
        "verbalized_with_dtc",
        each="cell",
        less="verbalized",
        stated=True,
        generator=DEEPSEEK,
    ),
    Claim(
        Said(
            "6",
            "DTC gives the stated confidence a better tradeoff between ECE and AUROC.",
            _WITH,
        ),
        "tradeoff",
        ours=("verbalized_dtc",),
        theirs=("verbalized",),
    ),
    Claim(
        Said("7", "DTC reduces the overconfidence of stated confidences.", _WITH),
        "gap",
        ours=("verbalized_dtc",),
        theirs=("verbalized",),
    ),
)
