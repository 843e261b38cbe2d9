"""Threads of a model wait asleep: said before torch is loaded, unless the user said something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import divtok
from divtok.models.waiting import POLICY, SETTINGS, wait_asleep

LOAD = "import divtok; divtok.load_pair('tiny', device='cpu'); "
DEVICE = "from divtok.models.load import pick_device; pick_device('cpu'); "
SAY = f"import os; print(os.environ.get('{POLICY}'))"


def in_a_process(code: str, **own: str) -> subprocess.CompletedProcess[str]:
    package = str(Path(divtok.__file__).parents[1])
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**environment, "PYTHONPATH": package, "OMP_DISPLAY_ENV": "verbose", **own},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("opens", [LOAD, DEVICE])
def test_waiting_threads_sleep_once_a_model_is_opened(opens: str) -> None:
    done = in_a_process(opens + SAY)
    assert done.stdout.split()[-1] == "passive"
    # What GNU's OpenMP, where torch has that one, has understood.
    spun = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
    assert set(spun) <= {"0"}


@pytest.mark.parametrize(
    ("name", "value"), [(POLICY, "active"), ("GOMP_SPINCOUNT", "1000"), ("KMP_BLOCKTIME", "200")]
)
def test_what_the_user_has_set_stays(name: str, value: str) -> None:
    done = in_a_process(DEVICE + SAY, **{name: value})
    assert done.stdout.split()[-1] == ("active" if name == POLICY else "None")


def test_where_torch_is_loaded_already_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would change nothing here, and something in processes that are started."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", object())
    wait_asleep()
    assert POLICY not in os.environ
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv(POLICY, "active")
    wait_asleep()
    assert os.environ[POLICY] == "active"
