"""The acceptance cases of ../shared/cases, run by their own runner against the proxy with its defaults."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
LATER: dict[str, str] = tomllib.loads(Path(__file__).with_name("cases_of_later_issues.toml").read_text("utf-8"))[
    "cases"
]
ANTIPHON = Path(sys.executable).with_name("antiphon")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CASES.is_dir(), reason="../shared is not there")]


def every_case() -> list[dict[str, str]]:
    """The cases in the order of their file; none where there is no such folder."""
    if not CASES.is_dir():
        return []
    return [json.loads(line) for line in (CASES / "cases.jsonl").read_text("utf-8").splitlines() if line.strip()]


def parameters() -> list[object]:
    """One a case; those of later issues must fail."""
    return [
        pytest.param(
            case["id"],
            id=f"{case['id']}: {case['title']}",
            marks=[pytest.mark.xfail(reason=LATER[case["id"]], strict=True)] if case["id"] in LATER else [],
        )
        for case in every_case()
    ]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What went wrong in each case, by its id; nothing for one that passed."""
    folder = tmp_path_factory.mktemp("cases")
    results = folder / "results.json"
    proxy = shlex.join([str(ANTIPHON), "serve", "--upstream"]) + " {upstream} --port {port}"
    command = [sys.executable, str(CASES / "run_cases.py"), str(CASES / "cases.jsonl")]
    run = subprocess.run(
        [*command, "--proxy", proxy, "--json", str(results)],
        env=os.environ | {"ANTIPHON_HOME": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert results.exists(), f"the runner broke off:\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}"
    return {result["id"]: result["failures"] for result in json.loads(results.read_text("utf-8"))}


@pytest.mark.parametrize("case", parameters())
def test_case(case: str, failures: dict[str, list[str]]) -> None:
    assert not failures[case], "\n".join(failures[case])


def test_every_case_put_off_exists() -> None:
    assert LATER.keys() <= {case["id"] for case in every_case()}
