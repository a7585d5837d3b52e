"""Images of 16 bits and three colours: Pillow reads them as 8 bits, so Petastorm's OpenCV is what they are held to."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import pytest

# A file that OpenCV wrote: of pixel (y, x, c) the value x * 7919 + y * 104729 + c * 1299709, modulo 65536.
OPENCV = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAGEAIAAADUCR9fAAAAd0lEQVQIHQXBMUoCYACAUf+pzUUIWv7vAkHg5iyB0B0EwdktAqGDtLmFZ2mLxu7w9kDovbFY/Nyuf1OSJEmS8fFwut+ukkzTlCTJ"
    "WK/vnn4fkySZpinJ+Hq57F6fkyRJkmQcj5vDcp8kSZIk4/b+ff58S5IkSZJ/g5Ra/BOIjOUAAAAASUVORK5CYII="
)


def file_of(raw, width, height, depth=16, kind=2, interlace=0):
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlace)),
        (b"IDAT", zlib.compress(raw)[:9]), (b"IDAT", zlib.compress(raw)[9:]), (b"IEND", b""),
    ]  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts
    )


def guess(kind, a, b, c):
    if kind == 4:
        p = a + b - c
        return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
    return (0, a, b, (a + b) // 2)[kind]


def filtered(image, kinds):
    """Rows as the format's text tells, byte by byte."""
    lines = image.astype(">u2").reshape(len(image), -1).view(np.uint8).astype(int)
    out = b""
    for y, kind in enumerate(kinds):
        out += bytes([kind])
        for i, v in enumerate(lines[y]):
            a, b = lines[y][i - 6] if i >= 6 else 0, lines[y - 1][i] if y else 0
            out += bytes([(v - guess(kind, a, b, lines[y - 1][i - 6] if y and i >= 6 else 0)) % 256])
    return out


def codec():
    from petastorm.codecs import CompressedImageCodec
    from petastorm.unischema import UnischemaField

    made = CompressedImageCodec("png")
    return made, UnischemaField("deep", np.uint16, (None, None, 3), made)


def test_a_file_of_opencv_s():
    png, field = codec()
    y, x, c = np.mgrid[0:6, 0:5, 0:3]
    got = png.decode(field, OPENCV)
    assert got.dtype == np.uint16 and np.array_equal(got, (x * 7919 + y * 104729 + c * 1299709) % 65536)


def test_all_filters_and_what_is_written():
    png, field = codec()
    rng = np.random.default_rng(5)
    for kinds in ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (3, 3, 4, 4, 2), (1, 1, 1, 1, 1)):
        image = rng.integers(0, 65536, (5, 7, 3), dtype=np.uint16)
        assert np.array_equal(png.decode(field, file_of(filtered(image, kinds), 7, 5)), image), kinds
        assert np.array_equal(png.decode(field, bytes(png.encode(field, image))), image)


def test_what_is_not_read_is_said():
    png, field = codec()
    image = np.zeros((2, 2, 3), np.uint16)
    whole = bytes(png.encode(field, image))
    with pytest.raises(ValueError, match="another checksum"):
        png.decode(field, whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    with pytest.raises(ValueError, match="it has 25 bytes where 26 are due"):
        png.decode(field, file_of(filtered(image, (0, 0))[:-1], 2, 2))
    with pytest.raises(ValueError, match="interlaced"):
        png.decode(field, file_of(filtered(image, (0, 0)), 2, 2, interlace=1))
    with pytest.raises(ValueError, match="filtered by 9"):
        png.decode(field, file_of(bytes([9]) + bytes(12) + bytes(13), 2, 2))
    with pytest.raises(ValueError, match="transparency"):
        png.decode(field, file_of(bytes(34), 2, 2, kind=6))
