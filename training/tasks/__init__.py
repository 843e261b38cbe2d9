"""The tasks of the bench families, one file each; a new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.tasks.programs import PROGRAMS
from training.tasks.puzzles import PUZZLES
from training.tasks.routes import ROUTES
from training.tasks.task import Task

TASKS: Mapping[str, Task[Any]] = {task.name: task for task in (ROUTES, PUZZLES, PROGRAMS)}
