"""How values that Parquet has no type for are stored: arrays and images as bytes."""

from __future__ import annotations

import abc
import io
from decimal import Decimal

import numpy as np

from . import _png


class DataframeColumnCodec(abc.ABC):
    """What a codec can do."""

    @abc.abstractmethod
    def encode(self, unischema_field, value):
        """The stored form of a value."""

    @abc.abstractmethod
    def decode(self, unischema_field, value):
        """The value of a stored form."""

    @abc.abstractmethod
    def spark_dtype(self):
        """Spark's type of the stored form."""

    @abc.abstractmethod
    def __str__(self): ...


class _Bytes(DataframeColumnCodec):
    def spark_dtype(self):
        from pyspark.sql.types import BinaryType

        return BinaryType()

    def __str__(self):
        return f"{type(self).__name__}()"


def _checked(field, value):
    if not isinstance(value, np.ndarray):
        raise ValueError(
            f"Unexpected type of {field.name} feature: {type(value).__name__} where an array of {field.numpy_dtype} is expected"
        )
    if value.dtype.type != np.dtype(field.numpy_dtype).type:
        raise ValueError(
            f"Unexpected type of {field.name} feature: {value.dtype} where {field.numpy_dtype} is expected"
        )
    if not _is_compliant_shape(value.shape, field.shape):
        raise ValueError(
            f"Unexpected dimensions of {field.name} feature: {value.shape} where {field.shape} is expected"
        )
    return value


class NdarrayCodec(_Bytes):
    """An array as a .npy file."""

    def encode(self, unischema_field, value):
        out = io.BytesIO()
        np.save(out, _checked(unischema_field, value), allow_pickle=False)
        return bytearray(out.getvalue())

    def decode(self, unischema_field, value):
        return np.load(io.BytesIO(value), allow_pickle=False)


class CompressedNdarrayCodec(_Bytes):
    """An array as a .npz file."""

    def encode(self, unischema_field, value):
        out = io.BytesIO()
        np.savez_compressed(out, arr=_checked(unischema_field, value))
        return bytearray(out.getvalue())

    def decode(self, unischema_field, value):
        with np.load(io.BytesIO(value), allow_pickle=False) as file:
            return file["arr"]


class CompressedImageCodec(_Bytes):
    """An image, [height, width] or [height, width, 3], as a PNG or JPEG file. It needs Pillow."""

    def __init__(self, image_codec="png", quality=80):
        if image_codec not in ("png", "jpeg", "jpg"):
            raise ValueError(f"image codec {image_codec!r}: use png or jpeg")
        self._image_codec, self._quality = "." + image_codec, quality

    @property
    def image_codec(self):
        return self._image_codec[1:]

    def encode(self, unischema_field, value):
        from PIL import Image

        _checked(unischema_field, value)
        if not (value.ndim == 2 or value.ndim == 3 and value.shape[2] == 3):
            raise ValueError(f"Unexpected image dimensions {value.shape}: an image is (H, W) or (H, W, 3)")
        if value.dtype == np.uint16 and value.ndim == 3 and self.image_codec == "png":
            return bytearray(_png.encode(value))
        if value.dtype != np.uint8 and not (value.dtype == np.uint16 and self.image_codec == "png"):
            raise ValueError(
                f"{unischema_field.name}: {self.image_codec} of {value.dtype}{value.shape} is not written; use NdarrayCodec"
            )
        out = io.BytesIO()
        kind = "PNG" if self.image_codec == "png" else "JPEG"
        Image.fromarray(value).save(out, kind, **({} if kind == "PNG" else {"quality": self._quality}))
        return bytearray(out.getvalue())

    def decode(self, unischema_field, value):
        if _png.wants(value):
            return _png.decode(value)
        if _png.narrowed(value):
            raise ValueError(
                f"{unischema_field.name}: a png with 16 bits and transparency is not read; write it as RGB"
            )
        from PIL import Image

        with Image.open(io.BytesIO(value)) as image:
            if image.mode not in ("RGB", "L", "I;16", "I"):
                image = image.convert("RGB")
            array = np.array(image)
        return array.astype(np.uint16) if array.dtype == np.int32 else array

    def __str__(self):
        return f"{type(self).__name__}('{self.image_codec}', {self._quality})"


_WHOLE = {"ByteType", "ShortType", "IntegerType", "LongType"}


class ScalarCodec(DataframeColumnCodec):
    """A number, text or date as Spark's type of that kind."""

    def __init__(self, spark_type):
        self._spark_type = spark_type

    def encode(self, unischema_field, value):
        if unischema_field.shape:
            raise ValueError(
                f"{unischema_field.name}: the shape of a scalar's field must be an empty tuple, not {unischema_field.shape}"
            )
        if hasattr(value, "__len__") and not isinstance(value, (str, bytes)) and getattr(value, "shape", None) != ():
            raise TypeError(
                f"Expected a scalar as a value for field {unischema_field.name!r}, not {type(value).__name__}"
            )
        kind = (
            type(self._spark_type).__name__
            if not hasattr(self._spark_type, "spark_name")
            else self._spark_type.spark_name
        )
        if kind in _WHOLE:
            return int(value)
        if kind in ("FloatType", "DoubleType"):
            return float(value)
        if kind == "BooleanType":
            return bool(value)
        if kind == "StringType":
            if not isinstance(value, str):
                raise ValueError(
                    f"Expected a string value for field {unischema_field.name}, not {type(value).__name__}"
                )
            return str(value)
        return value

    def decode(self, unischema_field, value):
        return scalar(unischema_field, value)

    def spark_dtype(self):
        return self._spark_type

    def __str__(self):
        return f"{type(self).__name__}({type(self._spark_type).__name__}())"


def scalar(field, value):
    """A stored value as what the field says."""
    kind = field.numpy_dtype
    if kind is None:  # a field without a type is what was stored
        return value
    if kind is Decimal:
        return value if isinstance(value, Decimal) else Decimal(str(value))
    if kind is np.datetime64 or kind is np.dtype("datetime64"):
        return np.datetime64(value)
    return kind(value) if callable(kind) and not isinstance(kind, np.dtype) else np.dtype(kind).type(value)


def _is_compliant_shape(a, b):
    """Whether a shape is what another allows: None is any size."""
    return len(a) == len(b) and all(y is None or x == y for x, y in zip(a, b, strict=True))
