"""A column of float16 vectors: plain bytes to the program, whatever the engine keeps.

SQLite keeps the bytes themselves (little-endian float16); PostgreSQL keeps pgvector's ``halfvec``, which it can search.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from sqlalchemy import ColumnElement, LargeBinary
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

__all__ = ["Halves", "to_halfvec"]

_HEADER: Final = 4  # bytes before the numbers on the wire: dimension and a reserved word, 16 bits each


class _HalfVec(UserDefinedType[Any]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "halfvec"


class _OnTheWire(FunctionElement[bytes]):
    """The bytes of a vector; PostgreSQL would otherwise write every number out in digits."""

    inherit_cache = True

    def __init__(self, column: ColumnElement[Any], type_: TypeEngine[Any]) -> None:
        super().__init__(column)
        self.type = type_  # decides how the result is read


@compiles(_OnTheWire)
def _as_it_is(element: _OnTheWire, compiler: SQLCompiler, **named: Any) -> str:
    return compiler.process(element.clauses, **named)


@compiles(_OnTheWire, "postgresql")
def _sent(element: _OnTheWire, compiler: SQLCompiler, **named: Any) -> str:
    return f"halfvec_send({compiler.process(element.clauses, **named)})"


class Halves(TypeDecorator[bytes]):
    """Bytes of little-endian float16 numbers, ``2 * dimension`` of them."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return what the engine keeps."""
        return dialect.type_descriptor(_HalfVec() if dialect.name == "postgresql" else LargeBinary())

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> Any:
        """Turn bytes into what the driver takes."""
        if value is None or dialect.name != "postgresql":
            return value
        return to_halfvec(np.frombuffer(value, dtype="<f2"))

    def process_result_value(self, value: Any, dialect: Dialect) -> bytes | None:
        """Turn what the driver gave into bytes."""
        if value is None or dialect.name != "postgresql":
            return value  # type: ignore[no-any-return]
        return np.frombuffer(value, dtype=">f2", offset=_HEADER).astype("<f2").tobytes()

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Select the bytes rather than the digits."""
        return _OnTheWire(column, self)


def to_halfvec(vector: np.ndarray[Any, np.dtype[Any]]) -> Any:
    """Return a vector of shape (dimension,) as the driver takes it (`pgvector.HalfVector`)."""
    from pgvector import HalfVector

    return HalfVector(vector)
