"""The default theta of a pair: whose text it reads decides, where two families share it."""

from __future__ import annotations

import pytest

from divtok.errors import UsageError
from divtok.families.family import default_theta, theta_for

LARGE, SMALL = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"
WHITE_BOX, BLACK_BOX = 0.50, 0.70  # of qwen2.5 and of blackbox, which share the pair


def test_text_of_p_itself_has_the_white_box_theta() -> None:
    assert default_theta(LARGE, SMALL, generator=LARGE) == WHITE_BOX
    assert theta_for(LARGE, SMALL) == WHITE_BOX


@pytest.mark.parametrize("generator", [None, SMALL, "gpt-4o-mini"])
def test_text_of_another_or_nobody_has_the_black_box_theta(generator: str | None) -> None:
    assert default_theta(LARGE, SMALL, generator=generator) == BLACK_BOX
    assert theta_for(LARGE, SMALL, foreign=True) == BLACK_BOX


@pytest.mark.parametrize("generator", [None, LARGE, "gpt-4o-mini"])
def test_a_family_that_is_named_gives_its_own(generator: str | None) -> None:
    for family, theta in (("qwen2.5", WHITE_BOX), ("blackbox", BLACK_BOX)):
        assert default_theta(LARGE, SMALL, family=family, generator=generator) == theta


@pytest.mark.parametrize("generator", [None, "Qwen/Qwen3-8B", "gpt-4o-mini"])
def test_a_pair_of_one_family_has_its_theta_whoever_wrote(generator: str | None) -> None:
    assert default_theta("Qwen/Qwen3-8B", "Qwen/Qwen3-1.7B", generator=generator) == 0.60


def test_a_pair_of_no_family_has_none() -> None:
    with pytest.raises(UsageError, match=r"No family pairs 'a' with 'b'.*--theta"):
        default_theta("a", "b", generator="a")
