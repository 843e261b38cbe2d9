"""What is installed is what was tested: the lock files hold every pin, with hashes."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def test_every_pin_is_locked_with_the_hashes_of_its_files():
    locked: dict[str, str] = {}
    for file in ("demo", "test"):
        text = (ROOT / "requirements" / f"{file}.lock").read_text(encoding="utf-8")
        for entry in re.split(r"\n(?=[a-z0-9])", text.split("\n", 1)[1]):
            pin, *hashes = entry.replace("\\\n", "").split("--hash=sha256:")
            assert hashes, f"{pin} has no hash"
            assert all(re.fullmatch(r"[0-9a-f]{64}\s*", digest) for digest in hashes), pin
            name, version = pin.split(";")[0].split("==")
            assert name not in locked, f"{name} is locked twice"
            locked[name] = version.strip()
    pins = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert len(pins) > 80
    for name, version in pins:
        if name != "torch":  # its build is the machine's
            assert locked.get(canonicalize_name(name)) == version, f"run: make lock ({name})"
