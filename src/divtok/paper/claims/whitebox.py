"""What the paper says of the generators whose own probabilities are read."""

from __future__ import annotations

from divtok.paper.claims.said import NEAR, SIMILAR, Said
from divtok.paper.claims.table_claims import Claim, Level, Number, Record, Worse

# Full-sequence scores, and what refines them.
STANDARD = ("nsl", "mean_prob", "entropy")
REFINED = ("basecal", "uqac_attn", "uqac_mean")
BASELINES = (*STANDARD, *REFINED, "verbalized")
DTC = ("dtc_lin", "dtc_prod")
_TABLE = ("table-whitebox",)
_CURVES = ("figure-calibration",)

WHITEBOX: tuple[Record, ...] = (
    Level(
        Said("5.1", "Full-sequence scores retain ranking information.", _TABLE),
        "auroc",
        STANDARD,
        bound=0.5,
    ),
    Number(
        Said("5.1", "Average AUROC of the full-sequence scores: 72.7 to 73.8.", _TABLE),
        "auroc",
        STANDARD,
        0.727,
        0.738,
        "whitebox",
    ),
    Level(
        Said("5.1", "Full-sequence scores are overconfident.", _TABLE),
        "gap",
        STANDARD,
        bound=0.0,
    ),
    Number(
        Said("5.1", "Average ECE of the full-sequence scores: 32.7 to 42.4.", _TABLE),
        "ece",
        STANDARD,
        0.327,
        0.424,
        "whitebox",
    ),
    Claim(
        Said("5.1", "BaseCal is calibrated little better than the mean probability.", _TABLE),
        "ece",
        ours=("basecal",),
        theirs=("mean_prob",),
        near=SIMILAR,
    ),
    Claim(
        Said("5.1", "Both UQAC scores reduce ECE more than BaseCal does.", _TABLE),
        "ece",
        ours=("uqac_attn", "uqac_mean"),
        theirs=("basecal",),
    ),
    Claim(
        Said(
            "5.1",
            "UQAC with the trajectory's mean probability has a lower average ECE than UQAC, and "
            "the lowest of the refinements.",
            _TABLE,
        ),
        "ece",
        ours=("uqac_mean",),
        theirs=("uqac_attn", "basecal"),
    ),
    Claim(
        Said(
            "5.1",
            "UQAC with the trajectory's mean probability has the highest average AUROC of the "
            "refinements.",
            _TABLE,
        ),
        "auroc",
        ours=("uqac_mean",),
        theirs=("uqac_attn", "basecal"),
    ),
    Number(
        Said("5.1", "Average ECE of UQAC with the trajectory's mean: 23.6.", _TABLE),
        "ece",
        ("uqac_mean",),
        0.236,
        0.236,
        "whitebox",
    ),
    Number(
        Said("5.1", "Average AUROC of UQAC with the trajectory's mean: 66.7.", _TABLE),
        "auroc",
        ("uqac_mean",),
        0.667,
        0.667,
        "whitebox",
    ),
    Claim(
        Said("5.1", "The refinements rank worse than the full-sequence scores.", _TABLE),
        "auroc",
        ours=STANDARD,
        theirs=REFINED,
    ),
    Claim(
        Said("5.1", "DTC is better calibrated on average than every baseline.", _TABLE),
        "ece",
        ours=DTC,
        theirs=BASELINES,
    ),
    Number(
        Said("5.1", "Average ECE of DTC lin: 13.0.", _TABLE),
        "ece",
        ("dtc_lin",),
        0.130,
        0.130,
        "whitebox",
    ),
    Number(
        Said("5.1", "Average ECE of DTC prod: 13.2.", _TABLE),
        "ece",
        ("dtc_prod",),
        0.132,
        0.132,
        "whitebox",
    ),
    Claim(
        Said("5.1", "DTC lin has a better average ranking than every baseline.", _TABLE),
        "auroc",
        ours=("dtc_lin",),
        theirs=(*BASELINES, "length"),
    ),
    Claim(
        Said("5.1", "DTC prod has the best average ranking.", _TABLE),
        "auroc",
        ours=("dtc_prod",),
        theirs=(*BASELINES, "length"),
    ),
    Number(
        Said("5.1", "Average AUROC of DTC lin: 75.3.", _TABLE),
        "auroc",
        ("dtc_lin",),
        0.753,
        0.753,
        "whitebox",
    ),
    Number(
        Said("5.1", "Average AUROC of DTC prod: 80.8.", _TABLE),
        "auroc",
        ("dtc_prod",),
        0.808,
        0.808,
        "whitebox",
    ),
    Claim(
        Said(
            "5.1",
            "The trajectory's mean probability further improves the ranking: DTC prod "
            "ranks better than DTC lin.",
            _TABLE,
        ),
        "auroc",
        ours=("dtc_prod",),
        theirs=("dtc_lin",),
    ),
    Claim(
        Said("5.1", "DTC prod and DTC lin have a similar average ECE.", _TABLE),
        "ece",
        ours=("dtc_prod",),
        theirs=("dtc_lin",),
        near=NEAR,
    ),
    Number(
        Said(
            "5.1",
            "DTC prod lowers the average ECE of UQAC with the trajectory's mean by 10.4 points.",
            _TABLE,
        ),
        "ece",
        ("dtc_prod",),
        -0.104,
        -0.104,
        "whitebox",
        less="uqac_mean",
    ),
    Worse(Said("5.1", "The reward model has a higher ECE on harder benchmarks.", _TABLE), "prm"),
    Claim(
        Said("5.1", "DTC is better calibrated than the reward model on harder benchmarks.", _TABLE),
        "ece",
        ours=DTC,
        theirs=("prm",),
        hard=True,
    ),
    Level(
        Said(
            "5.1",
            "Calibration curves of full-sequence scores lie below the diagonal.",
            _CURVES,
        ),
        "gap",
        STANDARD,
        bound=0.0,
        each="cell",
    ),
    Level(
        Said("5.1", "Full-sequence scores are concentrated near high confidence.", _CURVES),
        "high",
        STANDARD,
        bound=0.5,
        each="cell",
    ),
    Claim(
        Said(
            "5.1",
            "DTC's calibration curves are closer to the diagonal than those of full-sequence "
            "scores.",
            _CURVES,
        ),
        "ece",
        ours=DTC,
        theirs=STANDARD,
        each="cell",
    ),
)
