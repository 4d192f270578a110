"""Asks the OSV database of advisories (https://osv.dev) about every locked package: ``python deploy/audit.py``.

Exit status 1 where an advisory is known for a version that is locked; 0 where none is, and also, with a line that says
so, where the database cannot be reached: a build without a network is no worse than before. An advisory that does not
concern this project is named in ``requirements/audit-ignored.txt`` with the reason. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("proxy.lock", "container.lock", "dev.lock", "models.lock")
IGNORED = ROOT / "requirements" / "audit-ignored.txt"
SERVICE = "https://api.osv.dev"
PATIENCE_S = 20.0

Package = tuple[str, str]  # name, version


def locked(paths: Sequence[Path]) -> list[Package]:
    """Names and versions of all packages in lock files, each once, in order."""
    found: set[Package] = set()
    for path in paths:
        for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text("utf-8"), re.MULTILINE):
            found.add((name.lower(), version))
    return sorted(found)


def ignored(path: Path = IGNORED) -> dict[str, str]:
    """Advisories that do not concern this project, with the reason. Raises ``SystemExit`` for one without."""
    known: dict[str, str] = {}
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            name, _, reason = line.partition("#")[0].strip(), "", line.partition("#")[2].strip()
            if name and not reason:
                raise SystemExit(f"audit: {path.name} must say after a # why {name} does not matter")
            if name:
                known[name] = reason
    return known


def advisories(packages: Sequence[Package], service: str = SERVICE) -> dict[Package, list[str]]:
    """Ids of the advisories known for each package. Raises ``OSError`` where the service cannot be reached.

    Raises ``ValueError`` where its answer cannot be read (API: https://google.github.io/osv.dev/post-v1-querybatch/).
    """
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in packages]
    request = urllib.request.Request(  # noqa: S310 - the address is ours
        f"{service}/v1/querybatch",
        json.dumps({"queries": queries}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:  # noqa: S310
        results: list[dict[str, Any]] = json.load(reply)["results"]
    if len(results) != len(packages):
        raise ValueError("the database answered about another number of packages")
    return {
        package: [one["id"] for one in result.get("vulns", [])]
        for package, result in zip(packages, results, strict=True)
        if result.get("vulns")
    }


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Ask an advisory database about every locked package.")
    parser.add_argument("--service", default=SERVICE, help=f"address of an OSV server (default {SERVICE})")
    options = parser.parse_args()
    packages = locked([path for name in LOCKS if (path := ROOT / "requirements" / name).exists()])
    try:
        found = advisories(packages, options.service)
    except (OSError, ValueError, KeyError) as error:
        reason = getattr(error, "reason", None) or error
        sys.stderr.write(
            f"audit: left out, {options.service} cannot be asked about {len(packages)} packages ({reason})\n"
        )
        return 0
    harmless = ignored()
    bad = 0
    for (name, version), ids in found.items():
        for one in ids:
            if one in harmless:
                sys.stdout.write(f"{name} {version}: {one} ignored: {harmless[one]}\n")
            else:
                bad += 1
                sys.stdout.write(f"{name} {version}: https://osv.dev/vulnerability/{one}\n")
    sys.stdout.write(f"audit: {len(packages)} packages, {bad} advisories\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
