"""The documentation says what the program says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_cli_reference_is_up_to_date():
    from docs.make_cli_reference import TARGET, reference

    assert TARGET.read_text(encoding="utf-8") == reference(), (
        "run: python docs/make_cli_reference.py"
    )


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_configuration_page_names_every_key():
    from divtok.config import RunConfig, Section

    text = (ROOT / "docs" / "reference" / "config.md").read_text(encoding="utf-8")
    for name, field in RunConfig.model_fields.items():
        if name != "protocol" and not (
            isinstance(field.annotation, type) and issubclass(field.annotation, Section)
        ):
            assert f"`{name}`" in text, name
        elif name != "protocol":
            assert f"`{name}." in text, name


def test_the_estimator_page_names_every_estimator():
    from divtok.score import ESTIMATORS

    text = (ROOT / "docs" / "reference" / "estimators.md").read_text(encoding="utf-8")
    for name in ("dtc_lin", "dtc_prod", "nsl", "mean_prob", "entropy", "count", "ratio", "length"):
        assert ESTIMATORS.get(name)
        assert f"`{name}`" in text


def test_the_readme_example_gives_what_it_says():
    import divtok

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(code, names)
    result = names["result"]
    assert isinstance(result, divtok.Result)
    assert f"result.value  # {result.value:g}" in code
    assert f"result.count  # {result.count} divergent" in code
