"""The documentation names everything there is, and nothing that is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from proxy import reference
from proxy.admin import routes
from proxy.cli import app
from proxy.metrics import metric_names
from proxy.settings import Setting, every_setting
from store.reads import DIMENSIONS

ROOT = Path(__file__).parent.parent.parent
DOCS = {file.name: file.read_text(encoding="utf-8") for file in sorted((ROOT / "docs").glob("*.md"))}
OURS = ("start.md", "configuration.md", "headers.md", "decision.md", "operations.md", "threats.md", "kv.md")
SOURCES = {
    file: file.read_text(encoding="utf-8")
    for room in ("proxy", "store")
    for file in sorted((ROOT / room).rglob("*.py"))
}
CODE = "\n".join(SOURCES.values())


@pytest.mark.parametrize("name", OURS)
def test_the_tables_are_those_that_the_code_makes(name: str) -> None:
    assert reference.renewed(DOCS[name]) == DOCS[name], "renew them: python -m proxy.reference docs"


def test_there_is_a_table_of_each_kind() -> None:
    text = "".join(DOCS.values())
    for name in reference.TABLES:
        assert text.count(f"<!-- {name}:begin -->") == 1


@pytest.mark.parametrize("setting", every_setting(), ids=lambda s: s.name)
def test_every_setting_is_documented(setting: Setting) -> None:
    section = DOCS["configuration.md"].partition(f"### [{setting.section}]")[2].partition("\n### ")[0]
    assert f"| `{setting.key}` |" in section


@pytest.mark.parametrize("setting", every_setting(), ids=lambda s: s.name)
def test_every_setting_is_read_somewhere(setting: Setting) -> None:
    elsewhere = "".join(text for file, text in SOURCES.items() if file.name not in ("settings.py", "doctor.py"))
    used = {"trusted_tenant_callers": r"\.trusts\("}.get(setting.key, rf"\.{setting.key}\b")
    assert re.search(used, elsewhere)


def headers_in_code() -> set[str]:
    return {found.lower() for found in re.findall(r"X-Antiphon-[A-Za-z]+(?:-[A-Za-z]+)*", CODE, re.IGNORECASE)}


@pytest.mark.parametrize("header", sorted(headers_in_code() | {"cache-status", "age", "cache-control"}))
def test_every_header_is_documented(header: str) -> None:
    assert f"`{header}" in DOCS["headers.md"].lower()


def test_no_header_is_documented_that_the_code_does_not_know() -> None:
    named = re.findall(r"X-Antiphon-[A-Za-z]+(?:-[A-Za-z]+)*", "".join(DOCS[name] for name in OURS))
    assert {name.lower() for name in named} <= headers_in_code()


@pytest.mark.parametrize("metric", sorted(metric_names()))
def test_every_metric_is_documented(metric: str) -> None:
    assert f"| `{metric}` |" in DOCS["operations.md"]


def test_no_metric_is_documented_that_does_not_exist() -> None:
    named = set(re.findall(r"\bantiphon_[a-z_]+", "".join(DOCS[name] for name in OURS)))
    assert named <= set(metric_names())


@pytest.mark.parametrize("path", sorted(r.path for r in routes() if "{path" not in r.path))
def test_every_admin_path_is_documented(path: str) -> None:
    assert f" /antiphon{path.replace('{entry}', 'ID')}`" in DOCS["operations.md"]


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_every_dimension_is_documented(dimension: str) -> None:
    assert f"`{dimension}`" in DOCS["operations.md"]


def commands() -> set[str]:
    def walk(command: object, name: str) -> set[str]:
        inner = getattr(command, "commands", {})
        return {name} if not inner else set().union(*(walk(c, f"{name} {c.name}") for c in inner.values()))

    return walk(typer.main.get_command(app), "antiphon")


@pytest.mark.parametrize("command", sorted(commands()))
def test_every_command_is_documented(command: str) -> None:
    assert f"### {command}\n" in DOCS["operations.md"]


def test_no_command_is_documented_that_does_not_exist() -> None:
    groups = {command.rpartition(" ")[0] for command in commands()}
    known = commands() | groups
    named = re.findall(r"(?:^|[`/])antiphon ((?:[a-z]+ ?){1,2})", "\n".join(DOCS[name] for name in OURS), re.MULTILINE)
    for words in named:
        first, _, second = words.strip().partition(" ")
        assert {f"antiphon {first}", f"antiphon {first} {second}"} & known, words


def test_every_setting_named_in_the_text_exists() -> None:
    known = {setting.name for setting in every_setting()}
    sections = {setting.section for setting in every_setting()}
    for name in OURS:
        for found in re.findall(r"`([a-z]+\.[a-z_]+)\b", DOCS[name]):
            if found.partition(".")[0] in sections and not found.endswith((".db", ".json", ".toml")):
                assert found in known, f"{name}: {found}"


def test_every_variable_is_documented() -> None:
    variables = set(re.findall(r"\bANTIPHON_[A-Z]+\b(?!_)", CODE))
    assert {"ANTIPHON_HOME", "ANTIPHON_CONFIG"} <= variables
    for variable in ("ANTIPHON_HOME", "ANTIPHON_CONFIG"):
        assert f"`{variable}`" in DOCS["configuration.md"]


def test_every_reason_in_the_documentation_is_given_by_the_code() -> None:
    table = DOCS["headers.md"].partition("### Reasons")[2].partition("\n## ")[0]
    for line in table.splitlines():
        cells = line.split("|")
        if len(cells) > 3 and cells[1].strip().startswith("`"):
            for reason in re.findall(r"`([^`]+)`", cells[2]):
                word = reason.partition(":")[0]
                assert re.search(rf"[\"']{re.escape(word)}\b", CODE) or word in ("no-session", "no-user"), reason


@pytest.mark.parametrize("name", sorted(DOCS))
def test_every_relative_link_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", DOCS[name]):
        assert (ROOT / "docs" / target).exists(), target
