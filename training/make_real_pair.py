"""A real instruct model and a distilled half of it, on word problems that it is asked few-shot.

    python -m training.make_real_pair MODEL --work WORK

MODEL is a folder or a GGUF file. Its own responses to training problems are what the half learns
from; WORK/run is a divtok run of two benchmarks and a fitting set, read by both. The words of the
few-shot prompt are in few_shot.yaml. Call it again after an interruption: what is there is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import divtok
from training.word_problems import LEVELS, Split, word_problems

PROMPT = Path(__file__).with_name("few_shot.yaml")
SAMPLING = {"temperature": 0.6, "top_p": 0.95, "max_length": 420}
HALF = "half"
# name -> (split, level, seed, problems)
BENCHMARKS: dict[str, tuple[Split, str, int, int]] = {
    **{f"words-{level}": ("test", level, 11, 60) for level in LEVELS},
    "words-fit": ("fit", "hard", 12, 40),
}
LEARNING: dict[str, tuple[Split, str, int, int]] = {
    f"words-train-{level}": ("train", level, 13, 600) for level in LEVELS
}
SAMPLES = 8


def write_benchmarks(
    folder: Path, wanted: dict[str, tuple[Split, str, int, int]]
) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for name, (split, level, seed, count) in wanted.items():
        problems = word_problems(name, seed=seed, split=split, level=level, count=count)
        rows = [{"id": p.id, "problem": p.question, "answer": p.answer} for p in problems]
        files[name] = str(folder / f"{name}.jsonl")
        Path(files[name]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return files


def write_responses(model: str, out: Path, files: dict[str, str]) -> None:
    """The model's own responses, read by nobody: the verb `generate`, which needs no auxiliary."""
    settings = {
        "benchmarks": f"[{', '.join(files)}]",
        **{f"benchmark_files.{name}": file for name, file in files.items()},
        "protocol": str(PROMPT.absolute()),
        "samples": SAMPLES,
        **{f"sampling.{name}": value for name, value in SAMPLING.items()},
        "generate.batch_size": 512,
        "generate.dtype": "float32",
    }
    words = [f"{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "divtok", "generate", *words, "--generator", model]
    subprocess.run([*command, "--out", str(out)], check=True)


def make_pair(model: str, work: Path, *, layers: int) -> None:
    work.mkdir(parents=True, exist_ok=True)
    prompt = PROMPT.absolute()
    os.chdir(work)  # so that the run holds no machine's paths
    write_responses(model, Path("learning"), write_benchmarks(Path("benchmarks"), LEARNING))
    if not Path(HALF).exists():
        made = divtok.distil(
            model,
            layers=layers,
            text=Path("learning"),
            out=HALF,
            tokens=2_000_000,
            epochs=3,
            batch_tokens=8192,
            dtype="float32",
        )
        print(made, flush=True)
    files = write_benchmarks(Path("benchmarks"), BENCHMARKS)
    divtok.run(
        family=None,
        generators=[model],
        benchmarks=list(files),
        benchmark_files=files,
        protocol=str(prompt),
        samples=SAMPLES,
        sampling=SAMPLING,
        generate={"batch_size": 512, "dtype": "float32"},
        trace={"auxiliary": HALF, "dtype": "float32"},
        out="run",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=15, help="how many of them the half keeps")
    given = parser.parse_args()
    make_pair(given.model, given.work, layers=given.layers)


if __name__ == "__main__":
    main()
