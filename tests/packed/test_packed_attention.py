"""Attention of packs: both ways give each lane what it would get alone, and plans are for few."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flash_samples import plain_flash
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.packed import attention
from divtok.packed.attention import LaneAttention, Recurring, fast_without_plans
from divtok.packed.packs import build_pack

PROMPTS = (tuple(range(40)), tuple(range(7)), tuple(range(100, 133)))


def heads_of(rows: int, *, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Query, key and value of `rows` tokens; three heads share a key."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(rows, heads, 8, generator=generator, dtype=torch.float64) for heads in (6, 2, 2)
    )


def attend(pack: Any, window: int | None, **options: Any) -> torch.Tensor:
    way = LaneAttention(pack, **options)
    return way(0, *heads_of(len(pack.ids)), scaling=0.3, window=window)


def lane_by_lane(pack: Any, window: int | None) -> torch.Tensor:
    """The definition: every lane on its own, and of its output what it owns."""
    query, key, value = heads_of(len(pack.ids))
    output = torch.full_like(query, float("nan"))
    for lane in pack.lanes:
        rows = torch.from_numpy(lane.rows)
        ends = torch.tensor([0, len(rows)], dtype=torch.int32)
        alone = plain_flash(
            *(x[rows] for x in (query, key, value)),
            (ends, ends),
            (len(rows), len(rows)),
            scaling=0.3,
            window=window,
        )
        output[rows[lane.owned :]] = alone[lane.owned :]
    return output


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "flash_takes", lambda query, value: True)
    monkeypatch.setattr(attention, "flash", plain_flash)


packs = st.lists(
    st.tuples(st.sampled_from(PROMPTS), st.integers(1, 90)), min_size=1, max_size=6
).map(lambda rows: build_pack([p for p, _ in rows], [list(range(1, n + 1)) for _, n in rows]))


@pytest.mark.parametrize("flash", [True, False], ids=["flash", "side by side"])
@given(pack=packs, window=st.sampled_from([None, 1, 5, 64, 500]))
@settings(max_examples=40, deadline=None)
def test_lanes_get_what_they_would_get_alone(flash: bool, pack: Any, window: int | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if flash:
            patch.setattr(attention, "flash_takes", lambda query, value: True)
            patch.setattr(attention, "flash", plain_flash)
        found = attend(pack, window)
    torch.testing.assert_close(found, lane_by_lane(pack, window), atol=1e-12, rtol=1e-12)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_lanes_without_a_shared_prompt_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def flash(query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> Any:
        seen.append((query, key, value))
        return plain_flash(query, key, value, *rest, **options)

    monkeypatch.setattr(attention, "flash", flash)
    pack = build_pack([[1, 2, 3], [4, 5]], [[6, 7, 8], [9, 10, 11, 12]])
    given_heads = heads_of(len(pack.ids))
    LaneAttention(pack)(0, *given_heads, scaling=1.0, window=None)
    assert all(one is other for one, other in zip(seen[0], given_heads, strict=True))


def test_a_shape_recurs_from_its_third_pass_on() -> None:
    recurring = Recurring()
    assert [recurring((8, 1024)) for _ in range(5)] == [False, False, True, True, True]
    assert not recurring((1, 8192))


def test_a_shape_that_comes_seldom_does_not_recur() -> None:
    recurring = Recurring()
    for round_ in range(50):
        others = [recurring((1, 1000 + 8 * round_ + i)) for i in range(8)]
        assert not any(others)
        assert not recurring((8, 1024)), "forgotten in between"


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize(
    ("prompts", "responses", "planned"),
    [
        ([[1]] * 4, [[2, 3, 4]] * 4, True),
        ([[1]], [[2, 3, 4]], True),
        ([[1]] * 2, [[2, 3, 4], [2, 3]], False),  # ragged
        ([list(range(40))] * 2, [[2, 3, 4]] * 2, False),  # a shared prompt
    ],
)
def test_only_even_packs_that_recur_are_planned(
    prompts: Any, responses: Any, planned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[bool] = []
    usual = attention.fast_without_plans

    def watched(device: Any, *, planned: bool = False) -> Any:
        orders.append(planned)
        return usual(device, planned=planned)

    monkeypatch.setattr(attention, "fast_without_plans", watched)
    pack, recurring = build_pack(prompts, responses), Recurring()
    first, *_, last = (attend(pack, None, recurring=recurring) for _ in range(4))
    # Flash attention does the first two passes; torch's own, with plans, the others.
    assert orders == ([True] * 2 if planned else [])
    torch.testing.assert_close(first, last, atol=1e-12, rtol=1e-12)


def test_on_a_gpu_plans_are_made_only_where_asked_for() -> None:
    enabled = torch.backends.cuda.cudnn_sdp_enabled
    before = enabled()
    with fast_without_plans(torch.device("cuda")):
        assert not enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
    with fast_without_plans(torch.device("cuda"), planned=True):
        assert enabled()
    with fast_without_plans(torch.device("cpu")):
        assert enabled() == before
    assert enabled() == before


def test_torch_has_the_operation_with_the_arguments_it_is_called_with() -> None:
    schema = torch.ops.aten._flash_attention_forward.default._schema
    names = [argument.name for argument in schema.arguments]
    assert names[:10] == [
        *("query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k"),
        *("dropout_p", "is_causal", "return_debug_mask"),
    ]
    assert {"scale", "window_size_left", "window_size_right", "seqused_k"} <= set(names)
