"""The errors a user meets: a next step, an exit code, and names that were nearly right."""

from __future__ import annotations

import pytest

from divtok import errors
from divtok.errors import DivtokError, MissingExtraError, did_you_mean


def test_an_error_is_what_happened_and_then_what_to_do() -> None:
    error = DivtokError("The disk is full.", next_step="Free some space.")
    assert str(error) == "The disk is full. Free some space."
    assert (error.what, error.next_step) == ("The disk is full.", "Free some space.")


def test_a_next_step_can_be_missing() -> None:
    error = DivtokError("It failed.")
    assert str(error) == "It failed."
    assert error.next_step is None


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.DivtokError, 1),
        (errors.DataError, 1),
        (errors.ModelError, 1),
        (errors.StoreError, 1),
        (errors.MissingExtraError, 1),
        (errors.UsageError, 2),
        (errors.ConfigError, 2),
        (errors.NothingScoredError, 4),
    ],
)
def test_exit_codes(kind: type[DivtokError], code: int) -> None:
    assert kind.exit_code == code
    assert issubclass(kind, DivtokError)


def test_exit_codes_of_what_is_no_error() -> None:
    assert (errors.EXIT_OK, errors.EXIT_PARTIAL) == (0, 3)


def test_a_missing_extra_gives_the_exact_pip_line() -> None:
    error = MissingExtraError("torch", "models", purpose="Running a model")
    assert str(error) == (
        "Running a model needs the package 'torch', which is not installed. "
        "Run: pip install 'divtok[models]'"
    )


def test_did_you_mean_offers_the_close_names() -> None:
    assert did_you_mean("thta", ["theta", "n", "k"]) == "Did you mean 'theta'?"
    assert did_you_mean("top", ["top_p", "top_k", "seed"]) in (
        "Did you mean 'top_p' or 'top_k'?",
        "Did you mean 'top_k' or 'top_p'?",
    )


def test_did_you_mean_lists_all_names_where_none_is_close() -> None:
    assert did_you_mean("zzz", {"b", "a"}) == "Known: a, b."
