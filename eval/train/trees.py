"""Train the first stage of the reuse confidence: boosted trees over the comparisons of two turns.

usage: python -m eval.train.trees build --work DIR       comparisons of all pairs and of generated ones (minutes)
       python -m eval.train.trees folds --work DIR       out-of-fold scores and what they reach, by domain and source
       python -m eval.train.trees fit --work DIR         the shipped trees, from everything

Seeded. Folds are whole domains and whole sources (``eval.data.fold_of``); generated pairs stay in the fold of the pair
they were made from. Pairs whose system messages differ are left out: the identity keeps those apart before anything is
compared. ``--work`` keeps sentence vectors and comparisons between runs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from eval.data import FOLDS, Pair, fold_of, load_all
from eval.train.augment import Augmenter
from eval.train.near import Floats, Vectors, comparable, neighbours
from fingerprint.comparisons import NAMES, compare
from store.confidence.trees import Forest

SEED = 20261129
STATEMENTS = frozenset({"paws_wiki_en", "paws_x_zh"})
"""Sources of statements about the world, not of things anyone asks: measured, never trained on."""
CAP = 700
"""Pairs taken from each public source."""
ARTEFACT = Path("store/confidence")


# -- rows ------------------------------------------------------------------------------------------------------------


def chosen() -> list[Pair]:
    """Every comparable family pair, and of each public source at most ``CAP``, evenly spread."""
    out: list[Pair] = []
    sources: dict[str, list[Pair]] = {}
    for pair in load_all():
        if comparable(pair):
            (out if pair.is_family else sources.setdefault(pair.domain, [])).append(pair)
    for source in sorted(sources):
        step = max(1.0, len(sources[source]) / CAP)
        out += [sources[source][int(i * step)] for i in range(min(CAP, len(sources[source])))]
    return out


def generated(pairs: Sequence[Pair]) -> list[Pair]:
    """Hard negatives and hard positives, about as many as there are pairs."""
    maker = Augmenter(pairs, seed=SEED)
    frames = Augmenter(pairs, seed=SEED + 3)
    rng, other = np.random.default_rng(SEED), np.random.default_rng(SEED + 1)
    out: list[Pair] = []
    for pair in pairs:
        if pair.domain in STATEMENTS:
            continue
        share = 0.3 if pair.is_family else 0.12
        if rng.random() < share and (made := maker.positive(pair)) is not None:
            out.append(made)
        if rng.random() < share and (made := maker.negative(pair)) is not None:
            out.append(made)
        if rng.random() < 0.25 and (made := earlier(pair, rng)) is not None:
            out.append(made)
        if other.random() < 0.05:
            out.append(itself(pair))
        tries = range(1 if pair.lang == "en" else 3)  # Chinese frames fit less often
        out += [made for _ in tries if other.random() < 0.4 and (made := frames.framed(pair)) is not None]
    return out


def itself(pair: Pair) -> Pair:
    """A turn against itself: what a conversation looks like that reached the same node in other words."""
    return replace(
        pair, id=f"{pair.id}~itself", b=pair.a, equivalent=True, subtype="generated_itself",
        category="paraphrase", label_origin="generated",
    )  # fmt: skip


def earlier(pair: Pair, rng: np.random.Generator) -> Pair | None:
    """A conversation against a question that it, or its equivalent, asked before: alone, or where it stood."""
    a, b = (pair.a, pair.b) if pair.equivalent and rng.random() < 0.5 else (pair.a, pair.a)
    places = [i for i, m in enumerate(b.history) if m.role == "user" and m.text != a.message.text]
    if not places:
        return None
    place = int(rng.choice(places))
    before = b.history[:place] if rng.random() < 0.5 else ()
    turn = replace(b, history=before, message=b.history[place])
    if rng.random() < 0.5:
        a, turn = turn, a
    return replace(
        pair, id=f"{pair.id}~earlier{place}", a=a, b=turn, equivalent=False, subtype="generated_earlier",
        category="related", label_origin="generated",
    )  # fmt: skip


def weight(pair: Pair) -> float:
    """Families count most, pairing rules least."""
    if pair.domain in STATEMENTS:
        return 0.0
    if pair.label_origin == "generated":
        return 1.5 if pair.is_family else 0.7
    if pair.is_family:
        return 4.0
    return 0.5 if pair.label_origin == "derived" else 1.0


# -- comparisons ----------------------------------------------------------------------------------------------------


def same_history(pair: Pair) -> bool:
    """What the store would find by exact key: the same place in the forest."""
    return [(m.role, m.text) for m in pair.a.history] == [(m.role, m.text) for m in pair.b.history]


def _compared(task: tuple[Pair, float]) -> Floats:
    pair, similarity = task
    return compare(pair.a, pair.b, similarity=similarity, same_place=same_history(pair))


def build(work: Path, processes: int, langs: Sequence[str]) -> None:
    """Comparisons of every pair, into ``work/rows.npz``, in the order of ``load_all`` and then the generated ones."""
    pairs = chosen()
    pairs += generated(pairs)
    pairs = [p for p in pairs if p.lang in langs]
    vectors = Vectors(work / "vectors.npz")
    vectors.add(pairs)
    pairs += neighbours(pairs, vectors, SEED + 2)
    tasks = ((p, vectors.cosine(p)) for p in pairs)
    started = time.time()
    with Pool(processes) as pool:
        rows = np.stack(list(pool.imap(_compared, tasks, chunksize=256)))
    print(f"{rows.shape} comparisons in {time.time() - started:.0f} s")
    np.savez(
        work / "rows.npz",
        x=rows,
        y=np.array([p.equivalent for p in pairs]),
        w=np.array([weight(p) for p in pairs], np.float32),
        fold=np.array([fold_of(p.domain) for p in pairs], np.int8),
        meta=np.frombuffer(
            json.dumps(
                [[p.id, p.lang, p.domain, p.category, p.subtype, p.is_family, p.label_origin, p.family] for p in pairs]
            ).encode(),
            np.uint8,
        ),
        names=np.frombuffer("\n".join(NAMES).encode(), np.uint8),
    )


class Rows:
    """What ``build`` wrote."""

    def __init__(self, work: Path) -> None:
        with np.load(work / "rows.npz", allow_pickle=False) as table:
            self.x: Floats = table["x"]
            self.y: NDArray[np.bool_] = table["y"]
            self.w: Floats = table["w"]
            self.fold: NDArray[np.int8] = table["fold"]
            meta: list[list[Any]] = json.loads(bytes(table["meta"]).decode())
            names = tuple(bytes(table["names"]).decode().split("\n"))
        if names != NAMES:
            raise SystemExit("the comparisons have changed since: build again")
        self.id = np.array([m[0] for m in meta])
        self.lang = np.array([m[1] for m in meta])
        self.domain = np.array([m[2] for m in meta])
        self.category = np.array([m[3] for m in meta])
        self.subtype = np.array([m[4] for m in meta])
        self.family = np.array([m[5] for m in meta])
        self.origin = np.array([m[6] for m in meta])
        self.real: NDArray[np.bool_] = self.origin != "generated"


# -- trees -----------------------------------------------------------------------------------------------------------


def learner(seed: int, iterations: int = 220) -> HistGradientBoostingClassifier:
    """The one model: its numbers were chosen on folds."""
    return HistGradientBoostingClassifier(
        learning_rate=0.09,
        max_iter=iterations,
        max_leaf_nodes=24,
        min_samples_leaf=60,
        l2_regularization=3.0,
        max_features=0.3,
        early_stopping=False,
        random_state=seed,
    )


def balanced(rows: Rows, chosen: NDArray[np.bool_]) -> Floats:
    """Weights of the chosen rows; both languages and both answers carry the same total."""
    w = rows.w.copy()
    for lang in np.unique(rows.lang):
        for answer in (True, False):
            group = chosen & (rows.lang == lang) & (rows.y == answer)
            if w[group].sum() > 0:
                w[group] *= 1.0 / w[group].sum()
    out: Floats = (w[chosen] * chosen.sum() / w[chosen].sum()).astype(np.float32)
    return out


def fit_scores(
    rows: Rows, train: NDArray[np.bool_], test: NDArray[np.bool_], seeds: Sequence[int]
) -> NDArray[np.float64]:
    """Mean logit of the test rows over models of several seeds."""
    weights = balanced(rows, train)
    keep = weights > 0
    x, y, w = rows.x[train][keep], rows.y[train][keep], weights[keep]
    total = np.zeros(int(test.sum()))
    for seed in seeds:
        model = learner(seed).fit(x, y, sample_weight=w)
        total += model.decision_function(rows.x[test])
    return total / len(seeds)


def folds(work: Path, oof: Path, seeds: Sequence[int], only: int | None, results: Path | None) -> None:
    """Out-of-fold scores of every real pair, and what they reach; ``only`` one fold is kept for a later call."""
    rows = Rows(work)
    scores = np.full(len(rows.y), np.nan)
    for fold in range(FOLDS) if only is None else [only]:
        test = (rows.fold == fold) & rows.real
        kept = work / f"fold{fold}.npy"
        if only is None and kept.is_file() and kept.stat().st_mtime > (work / "rows.npz").stat().st_mtime:
            scores[test] = np.load(kept)
            continue
        started = time.time()
        scores[test] = fit_scores(rows, rows.fold != fold, test, seeds)
        np.save(kept, scores[test])
        print(f"fold {fold}: {int(test.sum())} rows, {time.time() - started:.0f} s", flush=True)
    if only is not None:
        return
    oof.parent.mkdir(parents=True, exist_ok=True)
    real = rows.real
    np.savez(oof, id=rows.id[real], score=scores[real], cos=rows.x[real, NAMES.index("cos")])
    found = report(rows, scores)
    if results is not None:
        results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def report(rows: Rows, scores: NDArray[np.float64]) -> dict[str, Any]:
    """What the first stage reaches alone, no guard before it, by language, source and subtype; printed too.

    Families: each fold at the threshold the other folds set. Sources and subtypes: at the threshold that serves 1 % of
    the families' different pairs. Sources beside the cosine of the two messages: at such a threshold of its own
    (``cosine``), and each at the one that serves 1 % of the source's own different pairs (``own_1``, ``cosine_own_1``).
    """
    out: dict[str, Any] = {}
    cosine = rows.x[:, NAMES.index("cos")].astype(float)
    for lang in sorted(set(rows.lang)):
        group = rows.real & rows.family & (rows.lang == lang)
        limit = threshold(scores[group & ~rows.y], 0.01)
        near = threshold(cosine[group & ~rows.y], 0.01)
        found: dict[str, Any] = {"auc": round(auc(scores[group], rows.y[group]), 4)}
        for wrong in (0.005, 0.01, 0.03, 0.05):
            found[f"families at {100 * wrong:g} %"] = frozen(rows, scores, group, wrong)
        print(f"families {lang}:", json.dumps(found))
        sources: dict[str, Any] = {}
        for source in sorted(set(rows.domain[rows.real & ~rows.family & (rows.lang == lang)])):
            here = rows.real & (rows.domain == source)
            same, different = here & rows.y, here & ~rows.y
            sources[source] = {
                "right": share(scores[same] >= limit),
                "wrong": share(scores[different] >= limit),
                "cosine": [share(cosine[same] >= near), share(cosine[different] >= near)],
                "auc": None
                if rows.y[here].all() or not rows.y[here].any()
                else round(auc(scores[here], rows.y[here]), 4),
            }
            if same.any() and different.any():
                sources[source]["own_1"] = share(scores[same] >= threshold(scores[different], 0.01))
                sources[source]["cosine_own_1"] = share(cosine[same] >= threshold(cosine[different], 0.01))
            print(f"  {source:24s}", sources[source])
        found["sources"] = sources
        for answer, name in ((True, "same"), (False, "different")):
            found[name] = {
                how: [share(scores[g] >= limit), int(g.sum())]
                for how in sorted(set(rows.subtype[group & (rows.y == answer)]))
                if (g := group & (rows.y == answer) & (rows.subtype == how)).any()
            }
            print(f"  {name}:", found[name])
        out[lang] = found
    return out


def share(served: NDArray[np.bool_]) -> float | None:
    """Share served, 0 … 1; None of none."""
    return round(float(served.mean()), 4) if len(served) else None


def threshold(different: NDArray[np.float64], wrong: float) -> float:
    """The lowest threshold that serves at most this share of the different pairs."""
    ranked = np.sort(different)[::-1]
    return float(np.nextafter(ranked[int(wrong * len(ranked))], np.inf))


def frozen(rows: Rows, scores: NDArray[np.float64], group: NDArray[np.bool_], wrong: float) -> dict[str, float | None]:
    """Right and wrong, each fold at the threshold of the others."""
    served = np.zeros(len(scores), bool)
    for fold in range(FOLDS):
        here = group & (rows.fold == fold)
        limit = threshold(scores[group & (rows.fold != fold) & ~rows.y], wrong)
        served[here] = scores[here] >= limit
    return {"right": share(served[group & rows.y]), "wrong": share(served[group & ~rows.y])}


def auc(scores: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    """Area under the ROC curve; NaN where one answer is missing."""
    from scipy.stats import rankdata

    positive = int(truth.sum())
    negative = len(truth) - positive
    if not positive or not negative:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[truth].sum() - positive * (positive + 1) / 2) / (positive * negative))


def forest_of(models: Sequence[HistGradientBoostingClassifier]) -> Forest:
    """The mean of fitted models as one plain forest."""
    feature: list[int] = []
    limit: list[float] = []
    left: list[int] = []
    right: list[int] = []
    value: list[float] = []
    roots: list[int] = []
    depth = 0
    for model in models:
        for (predictor,) in model._predictors:
            base = len(feature)
            roots.append(base)
            for place, node in enumerate(predictor.nodes):
                leaf = bool(node["is_leaf"])
                depth = max(depth, int(node["depth"]))
                feature.append(0 if leaf else int(node["feature_idx"]))
                limit.append(np.inf if leaf else _at_most(float(node["num_threshold"])))
                left.append(base + (place if leaf else int(node["left"])))
                right.append(base + (place if leaf else int(node["right"])))
                value.append(float(node["value"]) if leaf else 0.0)
    baseline = float(np.mean([np.ravel(m._baseline_prediction)[0] for m in models]))
    return Forest(
        feature=np.array(feature, np.int32),
        threshold=np.array(limit, np.float32),
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        value=np.array(value, np.float32),
        roots=np.array(roots, np.int32),
        depth=depth,
        baseline=baseline,
        scale=1.0 / len(models),
    )


def _at_most(limit: float) -> float:
    """The greatest float32 that is not above ``limit``: rows are float32, so no row changes sides."""
    short = np.float32(limit)
    return float(short if float(short) <= limit else np.nextafter(short, np.float32(-np.inf)))


def fit(work: Path, out: Path, seeds: Sequence[int], without: int | None) -> None:
    """The shipped trees, from every fold (or all but one); checked against scikit-learn before they are written."""
    rows = Rows(work)
    used = np.ones(len(rows.y), bool) if without is None else rows.fold != without
    weights = balanced(rows, used)
    x, y, keep = rows.x[used], rows.y[used], weights > 0
    models = [learner(seed).fit(x[keep], y[keep], sample_weight=weights[keep]) for seed in seeds]
    forest = forest_of(models)
    sample = rows.x[:: max(1, len(rows.x) // 500)]
    ours = np.array([forest.score(row) for row in sample])
    theirs = np.mean([m.decision_function(sample) for m in models], axis=0)
    print(f"{len(forest.roots)} trees of depth {forest.depth}; off scikit-learn by {np.abs(ours - theirs).max():.1e}")
    with out.open("wb") as file:
        forest.write(file, names=NAMES)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["build", "folds", "fit"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--oof", type=Path, default=Path("/tmp/oof/a.npz"))  # noqa: S108 - a scratch file
    parser.add_argument("--out", type=Path, default=ARTEFACT / "trees_en.npz")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--langs", nargs="+", default=["en", "zh"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--fold", type=int, help="only this fold, so that several can run at once")
    parser.add_argument("--without", type=int, help="leave this fold out of `fit`, to measure on it")
    parser.add_argument("--json", type=Path, help="where the figures of `folds` go")
    given = parser.parse_args(arguments)
    given.work.mkdir(parents=True, exist_ok=True)
    seeds = [SEED + i for i in range(given.seeds)]
    if given.step == "build":
        build(given.work, given.processes, given.langs)
    elif given.step == "folds":
        folds(given.work, given.oof, seeds, given.fold, given.json)
    else:
        fit(given.work, given.out, seeds, given.without)


if __name__ == "__main__":
    main()
