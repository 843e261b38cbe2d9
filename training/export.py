"""Put the trained checkpoints into the package: half precision, Hugging Face format.

python -m training.export --work DIR
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from training.train import SIZES

PACKAGE = Path(__file__).parent.parent / "src" / "divtok" / "tiny"
FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "training.json",
)
# The base checkpoint ships for one generator, as the pair of a post-trained model.
WITH_BASE = "tiny-0.9m"


def export(work: Path, package: Path) -> None:
    for name in SIZES:
        copy_checkpoint(work / "models" / f"{name}-chat", package / name)
    copy_checkpoint(work / "models" / f"{WITH_BASE}-base", package / f"{WITH_BASE}-base")


def copy_checkpoint(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        shutil.copyfile(source / file, target / file)
    config = json.loads((target / "config.json").read_text())
    config["dtype"] = "float16"  # what the file holds; training kept float32
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--package", type=Path, default=PACKAGE)
    arguments = parser.parse_args()
    export(arguments.work, arguments.package)
