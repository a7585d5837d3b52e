"""The columns that a fit takes of a frame, what they may hold, and the frame with its marks that the ranks get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from . import _ensemble_cluster, _frames, _training
from ._tables import need

WHO = _training.WHO
_FEW = 10_000  # rows up to which they are dealt exactly
_FINE = 1 << 20  # parts that a validation is told in
_NUMBERS = _frames._NUMBERS | {"DecimalType"}


def listed(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def frame(s: dict[str, Any], kind: str, labels: list[str], df: Any) -> tuple[tuple[str, ...], tuple[str, ...], Any]:
    """The columns, and the frame of what the ranks get: those, a number that orders rows, and which rows validate."""
    from pyspark.sql import functions as F

    if kind != "function" or any(label in df.columns for label in labels):
        for label in labels:
            need(label, df.columns, WHO, "label column")
    else:
        labels = []
    if not labels and kind != "function":
        raise ArgumentError(f"{WHO}: there is no label; name its column in label=")
    validation = s["validation"]
    for name, what in (
        (s["weight"], "weight column"),
        (validation if isinstance(validation, str) else None, "validation column"),
    ):
        if name is not None:
            need(name, df.columns, WHO, what)
    features = _features(s, labels, df)
    both = [f for f in features if f in labels]
    if both:
        raise ArgumentError(f"{WHO}: {both[0]!r} is a feature and the label; name the features without it")
    if s["shapes"] is not None and len(s["shapes"]) != len(features):
        raise ArgumentError(
            f"{WHO}: shapes has {len(s['shapes'])} entries for {len(features)} features; give one for each"
        )
    names = [*dict.fromkeys([*features, *labels, *([s["weight"]] if s["weight"] else [])])]
    if kind != "function":
        _numbers(df, names)
    columns = []
    for name, column in zip(names, _frames.taken(df, names, WHO), strict=True):
        small = _narrowed(df.schema[name].dataType) if name in features else None
        columns.append(column.cast(small).alias(name) if small else column.alias(name))
    more = []
    if isinstance(validation, str):
        flag = df.schema[validation].dataType
        if type(flag).__name__ not in _NUMBERS:
            raise ArgumentError(
                f"{WHO}: the validation column {validation!r} holds {flag.simpleString()}; give one of booleans or numbers"
            )
        more.append(F.col(f"`{validation}`").cast("boolean").alias(_training.VALID))
    frame = df.select(*columns, *more)
    order = F.xxhash64(F.lit(int(s["seed"])), *[F.col(f"`{n}`") for n in names])
    frame = frame.withColumn(_training.ORDER, order)
    if validation is not None and not isinstance(validation, str):
        # By the row's values, so that the same rows validate whatever the partitions are, and in every part of a run.
        frame = frame.withColumn(
            _training.VALID, F.pmod(F.col(_training.ORDER), F.lit(_FINE)) < F.lit(int(validation * _FINE))
        )
    return tuple(features), tuple(labels), frame


def parts(frame: Any, s: dict[str, Any]) -> dict[str, Any]:
    """What is to be counted of the rows that train and of those that validate: how many there are, and their
    weights."""
    from pyspark.sql import functions as F

    validates = _training.VALID in frame.columns
    held = F.col(_training.VALID) if validates else F.lit(False)
    found = {"held": F.coalesce(F.sum(held.cast("int")), F.lit(0))}
    weighs = s["weight"] is not None and _plain(frame, s["weight"])
    weight = F.col(f"`{s['weight']}`").cast("double") if weighs else F.lit(1.0)
    labels = listed(s["label"])
    plain = bool(s["class_weight"]) and _plain(frame, labels[0])
    if plain:
        label, own = F.col(f"`{labels[0]}`").cast("double"), F.lit(1.0)
        for key, value in s["class_weight"].items():
            own = F.when(label == F.lit(float(key)), F.lit(float(value))).otherwise(own)
        weight = weight * own
    if weighs or plain:
        found["weights"] = F.sum(F.when(held, 0.0).otherwise(weight))
        if validates:
            found["held weights"] = F.sum(F.when(held, weight).otherwise(0.0))
    return found


def _plain(frame: Any, name: str) -> bool:
    return name in frame.columns and type(frame.schema[name].dataType).__name__ in _NUMBERS


def check_parts(looked: _frames.Looked, s: dict[str, Any], np: int) -> None:
    """Raises where no rows are left to train or to validate on, or their weights sum up to nothing."""
    validation, held = s["validation"], int(looked.more["held"])
    if validation is not None and not held:
        what = f"the validation column {validation!r} is true for no row" if isinstance(validation, str) else ""
        what = what or f"validation={validation!r} leaves no row to validate on"
        raise ArgumentError(f"{WHO}: {what}; give a larger part, or a column with some that are true")
    rest = looked.rows - held
    if rest < np:
        raise ArgumentError(
            f"{WHO}: {rest} of {looked.rows} rows {'is' if rest == 1 else 'are'} left to train on for np={np} ranks; give a smaller np, or "
            "validate on fewer"
        )
    for name, what in (
        ("weights", "all rows" if not held else "the rows that train"),
        ("held weights", "the rows that validate"),
    ):
        total = looked.more.get(name)
        if total is not None and not total > 0:
            raise ArgumentError(f"{WHO}: the weights of {what} sum up to {total}; give some that are above 0")


def dealt(frame: Any, rows: int, np: int) -> Any:
    """A small frame in np partitions, each with as many rows to train on as the others, but for one: Spark deals each
    partition of a frame by itself, which may leave a rank none. None for a large one, dealt evenly enough by Spark."""
    if rows > _FEW:
        return None
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    marks = [n for n in (_training.VALID, _training.ORDER) if n in frame.columns]
    at = F.row_number().over(Window.orderBy(*[F.col(n) for n in marks])) - 1
    place = _ensemble_cluster._placed(F.pmod(at, F.lit(np)), np)
    name = _ensemble_cluster._PLACE
    return frame.withColumn(name, place).repartition(np, name).drop(name)


def _features(s: dict[str, Any], labels: list[str], df: Any) -> list[str]:
    if s["features"] is not None:
        for name in listed(s["features"]):
            need(name, df.columns, WHO)
        return listed(s["features"])
    if "features" in df.columns:
        return ["features"]
    found = [c for c in df.columns if c not in {*labels, s["weight"], s["validation"]}]
    if not found:
        raise ArgumentError(f"{WHO}: the table has no column but {', '.join(df.columns)}; features need some")
    return found


def _numbers(df: Any, names: Sequence[str]) -> None:
    for name in names:
        kind = df.schema[name].dataType
        inner = kind.elementType if type(kind).__name__ == "ArrayType" else kind
        if type(inner).__name__ not in _NUMBERS and not _frames.is_vector(kind):
            raise ArgumentError(
                f"{WHO}: column {name!r} holds {kind.simpleString()}, no numbers; encode it as numbers (StringIndexer, for text), or name the "
                "columns to take in features="
            )


def _narrowed(kind: Any) -> str | None:
    """Half the bytes for fractions, which models take as float32."""
    name = type(kind).__name__
    if name in ("DoubleType", "DecimalType"):
        return "float"
    if _frames.is_vector(kind) or (
        name == "ArrayType" and type(kind.elementType).__name__ in ("DoubleType", "DecimalType")
    ):
        return "array<float>"
    return None
