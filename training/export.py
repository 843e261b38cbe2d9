"""Put the trained checkpoints into the package: half precision, Hugging Face format.

python -m training.export --work DIR
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from training.reward import NAME as REWARD_MODEL
from training.train import SIZES

PACKAGE = Path(__file__).parent.parent / "src" / "divtok" / "tiny"
FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "training.json",
)
GENERATION = "generation_config.json"  # the reward model has none
# The base checkpoint ships for every generator, as the pair of a post-trained model.
GENERATORS = ("tiny-0.5m", "tiny-0.9m", "tiny-1.6m")


def export(work: Path, package: Path) -> None:
    models = work / "models"
    for name in SIZES:
        copy_checkpoint(models / f"{name}-confidence", package / name, (*FILES, GENERATION))
    for name in GENERATORS:
        copy_checkpoint(models / f"{name}-base", package / f"{name}-base", (*FILES, GENERATION))
    copy_checkpoint(models / REWARD_MODEL, package / REWARD_MODEL, FILES)


def copy_checkpoint(source: Path, target: Path, files: tuple[str, ...]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(source / file, target / file)
        (target / file).chmod(0o644)
    # The file holds half precision; training kept float32.
    rewrite(target / "config.json", {"dtype": "float16"})
    # How the tokenizer was once loaded says nothing about it.
    rewrite(target / "tokenizer_config.json", {}, leave_out=("is_local", "local_files_only"))


def rewrite(path: Path, changes: dict[str, str], *, leave_out: tuple[str, ...] = ()) -> None:
    """Change a JSON object in a file."""
    stored = json.loads(path.read_text()) | changes
    kept = {key: value for key, value in stored.items() if key not in leave_out}
    path.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--package", type=Path, default=PACKAGE)
    arguments = parser.parse_args()
    export(arguments.work, arguments.package)
