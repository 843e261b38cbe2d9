"""Words of a user's in a config: read from files once, then the config's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from divtok.config.joined import joined, kept
from divtok.config.run import RunConfig, load_config, read_config, resolve, to_yaml
from divtok.errors import ConfigError
from divtok.protocols.wording import Wording

TEXT = "kind: verbalized\nuser: '{question} End with JSON.'\n"
HASH = Wording("x", "verbalized", "{question} End with JSON.").hash
TWO = "benchmarks=[arith-easy, arith-hard]"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    return path


def test_a_file_is_a_protocol_and_a_stored_config_needs_it_no_more(file: Path) -> None:
    config = load_config(None, [f"protocol={file}"])
    assert config.protocol == "mine"
    assert config.protocol_for("arith-easy") == f"verbalized@{HASH}"
    assert config.grader_for("unheard-of") == "maths"
    assert config.all_state_confidence
    assert config.protocols_said() == "verbalized in the words of 'mine'"
    file.unlink()
    again = read_config(to_yaml(resolve(config)), source="run.yaml")
    assert again.protocol == "mine"
    assert again.protocol_for("arith-easy") == f"verbalized@{HASH}"


def test_each_benchmark_may_have_words_of_its_own(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yml"
    other.write_text("kind: cot\nuser: '{question}'\nsystem: Box it.\n")
    config = load_config(
        None,
        [
            TWO,
            f"benchmark_protocols.arith-easy={file}",
            f"benchmark_protocols.arith-hard={other}",
        ],
    )
    assert config.benchmark_protocols == {"arith-easy": "mine", "arith-hard": "other"}
    easy, hard = config.protocols()
    assert easy == f"verbalized@{HASH}"
    assert hard.startswith("cot@")
    assert not config.all_state_confidence
    # The question after the answer was left out, and is written down with the rest.
    assert (config.wordings["other"].follow_up or "").startswith("How sure are you")
    resolved = resolve(config)
    assert resolved.benchmark_protocols == {"arith-easy": "mine", "arith-hard": "other"}


def test_words_may_stand_in_the_config_itself() -> None:
    text = f"wordings:\n  mine: {{kind: verbalized, user: '{'{question}'} End with JSON.'}}\n"
    config = read_config(text + "protocol: mine\n", source="my.yaml")
    assert config.protocols() == [f"verbalized@{HASH}"]


def test_two_files_of_one_name_with_other_words_are_refused(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("name: mine\n" + TEXT.replace("End", "Close"))
    given = [TWO, f"benchmark_protocols.arith-easy={file}", f"protocol={other}"]
    with pytest.raises(ConfigError, match="Two wording files give other words by one name, 'mine'"):
        load_config(None, given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("protocol: coot", "unknown protocol. Did you mean 'cot'"),
        ("protocol: nowhere.yaml", "wording file nowhere.yaml cannot be read"),
        (f"protocol: verbalized@{HASH}", "unknown protocol"),
        ("wordings: {cot: {kind: cot, user: '{question}'}}", "is the name of a protocol already"),
        ("wordings: {a: {kind: cot, user: x}}", "wordings.a: The place {question} is missing"),
        ("wordings: {a: {kind: cot, usr: x}}", "unknown key 'wordings.a.usr'"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_config(text, source="my.yaml")
    assert said in str(refused.value)


def test_a_run_that_goes_on_keeps_its_words(file: Path) -> None:
    before = resolve(load_config(None, [f"protocol={file}", "benchmarks=[arith-easy]"]))
    after = joined(before, load_config(None, ["benchmarks=[arith-easy]", "samples=3"]))
    assert after.protocols() == [f"verbalized@{HASH}"]
    assert "wordings" not in " ".join(kept(before, load_config(None)))
    file.write_text(TEXT.replace("End", "Close"))
    other = joined(before, load_config(None, [f"protocol={file}"]))
    assert other.protocols() != after.protocols()
    assert other.wordings["mine"].user == "{question} Close with JSON."


def test_nothing_is_added_where_nothing_is_given() -> None:
    assert RunConfig().wordings == {}
    assert load_config(None, ["protocol=verbalized"]).protocols() == ["verbalized"]
