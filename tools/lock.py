"""requirements/*.lock: every pinned package with the hashes of all its files, from the index.

    python tools/lock.py

The pins are those of constraints.txt. What `make demo` needs is in demo.lock, what the tests need
beyond it in test.lock. torch is in neither: which build a machine takes (CPU, CUDA, macOS) is its
owner's choice, so it is installed by its version alone.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
INDEX = "https://pypi.org/simple"
NOT_LOCKED = {"torch"}
# What divtok itself is built with: pip would fetch any version of these.
BUILD = {
    "hatchling": "1.33.0",
    "editables": "0.6",
    "pathspec": "1.1.1",
    "trove-classifiers": "2026.9.21.13",
    "packaging": "",
    "pluggy": "",
}
ONLY_ON = {"triton": "platform_system == 'Linux'"}
HEADER = "# Made by tools/lock.py from constraints.txt: hashes of the files for every system.\n"


def pins() -> dict[str, str]:
    """Name -> version, as constraints.txt has them, and what divtok is built with."""
    found = {name: version for name, version in BUILD.items() if version}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"([\w.-]+)==([\w.+!-]+)", line.split("#")[0].strip()):
            found[canonicalize_name(match[1])] = match[2]
    return {name: version for name, version in found.items() if name not in NOT_LOCKED}


def needed_by(name: str, extra: str, seen: set[str]) -> set[str]:
    """Every installed package that one of them needs here, itself left out."""
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        wanted = canonicalize_name(requirement.name)
        if wanted not in seen:
            seen.add(wanted)
            for other in ("", *requirement.extras):
                needed_by(wanted, other, seen)
    return seen


def hashes(name: str, version: str) -> list[str]:
    """The sha256 of every file of one version, sorted."""
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        page = answer.read().decode()
    written = name.replace("-", "[-_.]+")
    file_of_it = rf"{written}-{re.escape(version)}(-.+\.whl|\.tar\.gz|\.zip)"
    found = {
        digest
        for file, digest in re.findall(r"/([^/\"#]+)#sha256=([0-9a-f]{64})", page)
        if re.fullmatch(file_of_it, file, re.IGNORECASE)
    }
    if not found:
        sys.exit(f"The index has no file of {name} {version}. Correct its pin in constraints.txt.")
    return sorted(found)


def lock(pinned: dict[str, str]) -> str:
    """The text of a lock file."""
    entries = [HEADER]
    for name, version in sorted(pinned.items()):
        where = f" ; {ONLY_ON[name]}" if name in ONLY_ON else ""
        lines = [f"{name}=={version}{where}"]
        lines += [f"    --hash=sha256:{digest}" for digest in hashes(name, version)]
        entries.append(" \\\n".join(lines) + "\n")
    return "".join(entries)


def main() -> None:
    pinned = pins()
    demo = needed_by("divtok", "models", set()) | BUILD.keys()
    for file, chosen in (("demo", pinned.keys() & demo), ("test", pinned.keys() - demo)):
        text = lock({name: pinned[name] for name in chosen})
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{file}.lock").write_text(text, encoding="utf-8")
        print(f"requirements/{file}.lock: {len(chosen)} packages")


if __name__ == "__main__":
    main()
