"""How often each guard is right: ``python -m eval.guards [--json OUT] [--split tune|held|both] [--pairs]``.

For every guard and subtype: the share of `equivalent` pairs wrongly vetoed and the share of `different` pairs vetoed.
The word tables and limits of the guards were set while looking at half of the domains (``tune``); the other half
(``held``) was only counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eval.data import Pair, load_families, load_pairs
from eval.provenance import commit
from fingerprint.facts import objections

__all__ = ["half_of", "main", "measure"]

# The statements of PAWS and of CANNOT are no questions; a cache never sees them, but opposites and swaps show there.
_LISTED_WORST = 12


def half_of(domain: str) -> str:
    """``tune`` or ``held``: which half of the domains a domain belongs to."""
    return "tune" if hashlib.blake2b(b"guards:" + domain.encode(), digest_size=8).digest()[0] % 2 else "held"


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def measure(pairs: Iterable[Pair]) -> dict[str, Any]:
    """Counts over ``pairs``: overall, per guard, per subtype and language. Shares are 0 … 1, ``ms`` processor time."""
    total: Counter[bool] = Counter()
    vetoed: Counter[bool] = Counter()
    by_guard: dict[str, Counter[bool]] = defaultdict(Counter)
    alone: dict[str, Counter[bool]] = defaultdict(Counter)
    subtypes: dict[tuple[str, str, bool], list[int]] = defaultdict(lambda: [0, 0])
    guards_of: dict[tuple[str, str, bool], Counter[str]] = defaultdict(Counter)
    seconds: list[float] = []
    for pair in pairs:
        started = time.process_time()
        found = objections(pair.a, pair.b, same_place=False)
        seconds.append(time.process_time() - started)
        total[pair.equivalent] += 1
        vetoed[pair.equivalent] += bool(found)
        cell = subtypes[pair.subtype, pair.lang, pair.equivalent]
        cell[0] += 1
        cell[1] += bool(found)
        for guard in found:
            by_guard[guard][pair.equivalent] += 1
            guards_of[pair.subtype, pair.lang, pair.equivalent][guard] += 1
        if len(found) == 1:
            alone[found[0]][pair.equivalent] += 1
    return {
        "n_equivalent": total[True],
        "n_different": total[False],
        "wrong_veto": _share(vetoed[True], total[True]),
        "caught": _share(vetoed[False], total[False]),
        "guards": {
            guard: {
                "wrong_veto": _share(counts[True], total[True]),
                "caught": _share(counts[False], total[False]),
                "wrong_veto_alone": _share(alone[guard][True], total[True]),
                "caught_alone": _share(alone[guard][False], total[False]),
            }
            for guard, counts in sorted(by_guard.items())
        },
        "subtypes": {
            f"{subtype}/{lang}/{'equivalent' if equivalent else 'different'}": {
                "n": n,
                "vetoed": _share(hit, n),
                "guards": {g: _share(c, n) for g, c in guards_of[subtype, lang, equivalent].most_common(4)},
            }
            for (subtype, lang, equivalent), (n, hit) in sorted(
                subtypes.items(), key=lambda item: (not item[0][2], item[0])
            )
        },
        "ms": {
            "p50": round(statistics.median(seconds) * 1e3, 3) if seconds else 0.0,
            "p95": round(sorted(seconds)[int(len(seconds) * 0.95)] * 1e3, 3) if seconds else 0.0,
        },
    }


def _table(name: str, figures: dict[str, Any]) -> None:
    print(
        f"\n{name}: {figures['n_equivalent']} equivalent, {figures['n_different']} different; "
        f"wrongly vetoed {figures['wrong_veto']:.1%}, caught {figures['caught']:.1%}; "
        f"{figures['ms']['p50']} ms a pair (p50)"
    )
    print(f"  {'guard':14} {'wrong':>7} {'caught':>7} {'alone: wrong':>13} {'caught':>7}")
    for guard, row in figures["guards"].items():
        print(
            f"  {guard:14} {row['wrong_veto']:7.2%} {row['caught']:7.2%} "
            f"{row['wrong_veto_alone']:13.2%} {row['caught_alone']:7.2%}"
        )
    for subtype, row in figures["subtypes"].items():
        reasons = ", ".join(f"{g} {s:.1%}" for g, s in row["guards"].items())
        print(f"  {subtype:46} n={row['n']:5} vetoed {row['vetoed']:6.1%}  {reasons}")


def _show(pairs: list[Pair], guard: str, equivalent: bool, count: int) -> None:
    """Prints examples of what a guard objects to, for whoever tunes it."""
    shown = 0
    for pair in pairs:
        if pair.equivalent != equivalent:
            continue
        found = objections(pair.a, pair.b, same_place=False)
        if guard not in found and not (guard == "none" and not found):
            continue
        print(f"## {pair.id} {pair.subtype} {found}")
        for side, turn in (("A", pair.a), ("B", pair.b)):
            for message in (*turn.history, turn.message):
                other = pair.b if side == "A" else pair.a
                if message in (*other.history, other.message):
                    if side == "B":
                        continue
                    print(f"   = {message.role[0]} {message.text[:400]}")
                else:
                    print(f"   {side} {message.role[0]} {message.text[:400]}")
        shown += 1
        if shown >= count:
            break


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--split", choices=("tune", "held", "both"), default="both")
    parser.add_argument("--pairs", action="store_true", help="the public pair files too, each by itself")
    parser.add_argument("--sample", type=float, default=1.0, help="share of the pairs, 0 … 1")
    parser.add_argument(
        "--show", metavar="GUARD", help="print examples a guard objects to ('none': that none objects to)"
    )
    parser.add_argument("--different", action="store_true", help="with --show: examples that differ")
    parser.add_argument("--subtype", help="only this subtype")
    parser.add_argument("--lang", help="only this language")
    parser.add_argument("--count", type=int, default=_LISTED_WORST)
    arguments = parser.parse_args()
    pairs = load_families()
    if arguments.pairs:
        pairs += load_pairs()
    keep = random.Random(20)
    pairs = [
        p
        for p in pairs
        if (arguments.sample >= 1 or keep.random() < arguments.sample)
        and (not arguments.subtype or p.subtype == arguments.subtype)
        and (not arguments.lang or p.lang == arguments.lang)
    ]
    if arguments.show:
        tune = [p for p in pairs if half_of(p.domain) == "tune" or not p.is_family]
        keep.shuffle(tune)
        _show(tune, arguments.show, not arguments.different, arguments.count)
        return
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        half = half_of(pair.domain)
        if pair.is_family and arguments.split in {half, "both"}:
            groups[f"families, {half} domains"].append(pair)
        elif not pair.is_family:
            groups[f"pairs/{pair.domain}"].append(pair)
    figures = {name: measure(group) for name, group in sorted(groups.items())}
    for name, group_figures in figures.items():
        _table(name, group_figures)
    if arguments.json:
        result = {
            "sample": arguments.sample,
            "commit": commit(short=True),
            "machine": f"{platform.machine()} {platform.python_version()}",
            "groups": figures,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
