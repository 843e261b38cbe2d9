"""Make the whole embedded family with one command on a GPU.

    python -m training.make_family --work DIR

Trains the sizes beside each other, teaches them to state confidences, trains the reward model, then
exports all into the package. Call it again after an interruption: whatever is in DIR is used.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from training import confidences, reward
from training.data import BLOCK, build_examples, corpus_sample
from training.export import PACKAGE, export
from training.tokenizer import train_tokenizer
from training.train import EXAMPLES, SIZES


def make_family(work: Path, package: Path, *, device: str) -> None:
    work.mkdir(parents=True, exist_ok=True)
    tokenizer = work / "tokenizer"
    if not tokenizer.exists():
        train_tokenizer(corpus_sample(), tokenizer)
    build_examples(tokenizer, EXAMPLES // BLOCK, work / "examples.npz")
    confidences.build_confidences(tokenizer, confidences.EXAMPLES, work / "confidences.npz")
    reward.build_rewards(tokenizer, reward.EXAMPLES, work / "rewards.npz")
    shared = ["--work", str(work), "--device", device]
    run_beside([["training.train", name, *shared] for name in SIZES])
    run_beside(
        [
            *(["training.confidence_stage", name, *shared] for name in SIZES),
            ["training.reward", *shared],
        ]
    )
    export(work, package)


def run_beside(modules: list[list[str]]) -> None:
    """Run modules with their arguments at the same time; stop where one fails."""
    running = [subprocess.Popen([sys.executable, "-m", *module]) for module in modules]
    failed = [
        " ".join(module[:2])
        for module, process in zip(modules, running, strict=True)
        if process.wait()
    ]
    if failed:
        sys.exit(f"training failed: {', '.join(failed)}; see the output above")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--package", type=Path, default=PACKAGE)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    make_family(arguments.work, arguments.package, device=arguments.device)
