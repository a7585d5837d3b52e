"""PNG files with colours of 16 bits, which Pillow reads as 8 bits without a word: OpenCV writes them for arrays of
uint16."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PIXEL = 6  # bytes of three colours


def wants(data):
    """Whether a file is of the kind that this module reads: 16 bits and three colours."""
    return data[:8] == _SIGNATURE and data[24:26] == b"\x10\x02"


def narrowed(data):
    """Whether Pillow would drop half of the bits: 16 bits and more than one value a pixel."""
    return data[:8] == _SIGNATURE and data[24:25] == b"\x10" and data[25:26] not in (b"\x00", b"\x02")


def encode(image):
    """A file of an array of uint16, [height, width, 3]."""
    height, width, _ = image.shape
    rows = np.zeros((height, 1 + width * _PIXEL), np.uint8)
    raw = image.astype(">u2").reshape(height, -1).view(np.uint8)
    rows[:, 0] = 1  # each byte less the one of the pixel before
    rows[:, 1:] = raw
    rows[:, 1 + _PIXEL :] -= raw[:, :-_PIXEL]
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")]
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts
    )


def decode(data):
    """The array of a file."""
    data, at, packed, header = bytes(data), 8, [], None
    while at + 12 <= len(data):
        size, name = struct.unpack(">I", data[at : at + 4])[0], data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + size]
        if data[at + 8 + size : at + 12 + size] != struct.pack(">I", zlib.crc32(name + body)):
            raise ValueError(f"the image is damaged: its part at byte {at} has another checksum")
        if name == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif name == b"IDAT":
            packed.append(body)
        at += 12 + size
    if header is None or header[6]:
        raise ValueError("the image is damaged, or interlaced, which is not read with colours of 16 bits")
    width, height = header[:2]
    each = width * _PIXEL
    try:
        raw = zlib.decompress(b"".join(packed))
    except zlib.error as e:
        raise ValueError(f"the image is damaged: {e}") from e
    if len(raw) != height * (1 + each):
        raise ValueError(f"the image is damaged: it has {len(raw)} bytes where {height * (1 + each)} are due")
    lines = np.frombuffer(raw, np.uint8).reshape(height, 1 + each)
    out = np.zeros((height + 1, width + 1, _PIXEL), np.uint8)  # with the zeros above and to the left
    for y in range(height):
        _unfilter(int(lines[y, 0]), lines[y, 1:].reshape(width, _PIXEL), out[y], out[y + 1])
    pixels = np.ascontiguousarray(out[1:, 1:]).view(">u2")
    return pixels.reshape(height, width, 3).astype(np.uint16)


def _unfilter(kind, line, above, to):
    """One row: what was taken from each byte is added again."""
    if kind == 0:
        to[1:] = line
    elif kind == 1:
        to[1:] = np.add.accumulate(line, axis=0, dtype=np.uint8)
    elif kind == 2:
        to[1:] = line + above[1:]
    elif kind in (3, 4):
        guess = _mean if kind == 3 else _paeth
        for x in range(1, len(to)):
            a, b, c = (v.astype(np.int16) for v in (to[x - 1], above[x], above[x - 1]))
            to[x] = (line[x - 1] + guess(a, b, c)).astype(np.uint8)
    else:
        raise ValueError(f"the image is damaged: a row is filtered by {kind}")


def _mean(left, above, _):
    return (left + above) // 2


def _paeth(left, above, corner):
    p = left + above - corner
    a, b, c = abs(p - left), abs(p - above), abs(p - corner)
    return np.where((a <= b) & (a <= c), left, np.where(b <= c, above, corner))
