"""Confidence and grade in, calibration and ranking figures out.

Numpy and the standard library only: no model, no file, no plotting. The modules are `metrics`
(ECE, AUROC, Brier, AURC), `bootstrap` (intervals), `group` (the scored responses of one generator
on one benchmark), `protocol` (the paper's balanced draws), `curves` (the values behind the
figures), `equal_length` (what the count knows that length does not) and `fit` (theta).
"""
