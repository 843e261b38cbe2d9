"""Shows divtok's own modules another system: what it lacks is missing, and it has its own name.

Python imports this by itself when its folder stands in PYTHONPATH, in the grading workers as well.
Other libraries see the real system: what their builds for it need says nothing about the others.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

SYSTEM = os.environ["DIVTOK_TEST_SYSTEM"]
MISSING = json.loads(Path(__file__).with_name("missing.json").read_text("utf-8"))[SYSTEM]


class Shown(ModuleType):
    """A module without the names that are missing there, and with others in place of its own."""

    def __init__(self, real: ModuleType, **changed: str) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(changed)
        self._real, self._missing = real, frozenset(MISSING.get(real.__name__, ()))

    def __getattr__(self, name: str) -> Any:
        if name in self._missing:
            raise AttributeError(f"{SYSTEM} has no {self.__name__}.{name}")
        return getattr(self._real, name)


SHOWN = {
    "os": Shown(os, name="nt" if SYSTEM == "win32" else "posix"),
    "signal": Shown(signal),
    "sys": Shown(sys, platform=SYSTEM),
}
import_here = builtins.__import__


def import_there(name: str, globals: Any = None, *rest: Any, **named: Any) -> Any:
    package = (globals or {}).get("__package__") or ""
    if package.split(".")[0] == "divtok":
        if name in MISSING["modules"]:
            raise ModuleNotFoundError(f"{SYSTEM} has no module {name}", name=name)
        if name in SHOWN:
            return SHOWN[name]
    return import_here(name, globals, *rest, **named)


builtins.__import__ = import_there
# Text files are UTF-8 wherever they are read; a default of the system's must not decide.
warnings.filterwarnings("ignore", category=EncodingWarning)
warnings.filterwarnings("error", category=EncodingWarning, module=r"divtok\b")
