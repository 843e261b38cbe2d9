"""Make the whole embedded family with one command on a GPU.

    python -m training.make_family --work DIR

Trains the sizes beside each other, then exports them into the package. Call it again after an
interruption: whatever is in DIR is used.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from training.data import build_examples, corpus_sample
from training.export import PACKAGE, export
from training.tokenizer import train_tokenizer
from training.train import EXAMPLES, SIZES


def make_family(work: Path, package: Path, *, device: str) -> None:
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "tokenizer").exists():
        train_tokenizer(corpus_sample(), work / "tokenizer")
    build_examples(work / "tokenizer", EXAMPLES, work / "examples.npz")
    command = [sys.executable, "-m", "training.train", "--work", str(work), "--device", device]
    trainings = [subprocess.Popen([*command, name]) for name in SIZES]
    failed = [name for name, training in zip(SIZES, trainings, strict=True) if training.wait()]
    if failed:
        sys.exit(f"training failed for {', '.join(failed)}; see the output above")
    export(work, package)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--package", type=Path, default=PACKAGE)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    make_family(arguments.work, arguments.package, device=arguments.device)
