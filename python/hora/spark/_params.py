"""Params as Spark's estimators have them, or a small twin of them where there is no Spark."""

from __future__ import annotations

from typing import Any

try:
    from pyspark.ml import Estimator, Model
    from pyspark.ml.param import Param, Params, TypeConverters
    from pyspark.ml.util import MLReadable, MLWritable

    HAVE_SPARK = True
except ImportError:
    HAVE_SPARK = False

    class Param:  # type: ignore[no-redef]
        def __init__(self, parent: Any, name: str, doc: str, typeConverter: Any = None) -> None:
            self.parent, self.name, self.doc, self.typeConverter = parent, name, doc, typeConverter or (lambda v: v)

        def __repr__(self) -> str:
            return f"{self.parent}__{self.name}"

    class TypeConverters:  # type: ignore[no-redef]
        identity = staticmethod(lambda v: v)

    class Params:  # type: ignore[no-redef]
        _dummy = staticmethod(lambda: "undefined")

        def __init__(self) -> None:
            self._paramMap: dict[str, Any] = {}
            self._defaultParamMap: dict[str, Any] = {}

        @property
        def params(self) -> list[Param]:
            return [p for name in sorted(dir(type(self))) if isinstance(p := getattr(type(self), name), Param)]

        def getParam(self, name: str) -> Param:
            return next(p for p in self.params if p.name == name)

        def _set(self, **given: Any) -> Params:
            self._paramMap |= {k: self.getParam(k).typeConverter(v) for k, v in given.items() if v is not None}
            return self

        def _setDefault(self, **given: Any) -> Params:
            self._defaultParamMap |= given
            return self

        def isSet(self, param: Any) -> bool:
            return getattr(param, "name", param) in self._paramMap

        def getOrDefault(self, param: Any) -> Any:
            name = getattr(param, "name", param)
            return self._paramMap.get(name, self._defaultParamMap.get(name))

        def set(self, param: Any, value: Any) -> None:
            self._set(**{param.name: value})

        def copy(self, extra: dict[Param, Any] | None = None) -> Any:
            import copy

            found = copy.copy(self)
            found._paramMap = dict(self._paramMap)
            for p, v in (extra or {}).items():
                found.set(p, v)
            return found

    class Estimator(Params):  # type: ignore[no-redef]
        pass

    class Model(Params):  # type: ignore[no-redef]
        pass

    class MLReadable:  # type: ignore[no-redef]
        pass

    class MLWritable:  # type: ignore[no-redef]
        pass


__all__ = ["HAVE_SPARK", "Estimator", "MLReadable", "MLWritable", "Model", "Param", "Params", "TypeConverters"]


def is_spark(table: Any) -> bool:
    """Whether a table is a DataFrame of Spark's, of a session here or of Connect."""
    return HAVE_SPARK and any(
        c.__module__.startswith("pyspark.sql") and c.__name__ == "DataFrame" for c in type(table).__mro__
    )
