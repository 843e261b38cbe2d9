"""A field more in each choice: everything else as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.serve.guard import deeper_than
from divtok.serve.splice import with_objects

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CHOICES = st.lists(
    st.dictionaries(st.text().filter(lambda name: name != "divtok"), VALUES, min_size=1),
    min_size=1,
    max_size=4,
)


@given(
    before=st.dictionaries(st.text(), VALUES, max_size=3),
    choices=CHOICES,
    after=st.dictionaries(st.text(), VALUES, max_size=3),
    indent=st.sampled_from([None, 0, 3]),
    ascii_only=st.booleans(),
)
def test_each_choice_has_its_object_and_nothing_else_changes(
    before: dict[str, object],
    choices: list[dict[str, object]],
    after: dict[str, object],
    indent: int | None,
    ascii_only: bool,
):
    answer = {**before, "choices": choices, **{k: v for k, v in after.items() if k != "choices"}}
    text = json.dumps(answer, indent=indent, ensure_ascii=ascii_only)
    objects = [json.dumps({"number": n}) for n in range(len(choices))]
    found = with_objects(text, objects)
    assert found is not None
    added = [{**one, "divtok": {"number": n}} for n, one in enumerate(choices)]
    assert json.loads(found) == {**answer, "choices": added}
    for one in objects:
        found = found.replace(f',"divtok":{one}', "", 1)
    assert found == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "1", '{"choices": 1}', '{"choices": [1]}', '{"choices": [{}]}', "{"),
        *('{"choices": [{"a": 1}', '{"choices": [{"a": 1, "divtok": 2}]}', '{"a": [{"b": 1}]}'),
        '{"choices": [{"a": 1}, {"a": 2}]}',
    ],
)
def test_what_has_no_such_choices_is_left_alone(text: str):
    assert with_objects(text, ["{}"]) is None


@given(value=VALUES, most=st.integers(1, 6))
def test_depth_is_that_of_the_value(value: object, most: int):
    def depth(one: object) -> int:
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    assert deeper_than(json.dumps(value).encode(), most) == (depth(value) > most)
