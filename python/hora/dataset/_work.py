"""What Python does to a batch before it is handed out: images are decoded and transforms run on threads, a few
ahead."""

from __future__ import annotations

import collections
import concurrent.futures
import io
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError, HoraError
from ._views import Batch, Texts, take

AHEAD = 3  # batches that are worked on beside the one in use
MODES = {"rgb": "RGB", "gray": "L", "rgba": "RGBA", "unchanged": None}

Item = tuple[Batch, int, int]  # with the epoch and position after it


class Work:
    """decode= and transform= of a loader."""

    def __init__(
        self, decode: Mapping[str, Any] | None, transform: Callable[[Batch], Any] | None, threads: int, skip: bool
    ) -> None:
        self.decode = {name: decoder(name, how) for name, how in (decode or {}).items()}
        if transform is not None and not callable(transform):
            raise ArgumentError(
                f"open data: transform={transform!r} cannot be called; give a function from a batch to a batch"
            )
        self.transform, self.threads, self.skip = transform, threads, skip
        self.dropped: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.decode or self.transform)

    def run(self, raw: Callable[[bool], Item | None], end: object) -> Iterator[Item]:
        """Batches in their order. `raw` answers the next one, None where it is not there yet and need not be waited
        for."""
        images = concurrent.futures.ThreadPoolExecutor(self.threads, "hora-decode") if self.decode else None
        last = concurrent.futures.ThreadPoolExecutor(1, "hora-transform")
        waiting: collections.deque[tuple[Any, int, int]] = collections.deque()
        more = True
        try:
            while more or waiting:
                while more and len(waiting) < AHEAD:
                    item = raw(not waiting)
                    if item is end:
                        more = False
                    if item is None or item is end:
                        break
                    parts = self._begin(images, item[0])
                    waiting.append((last.submit(self._finish, item, parts), item[1], item[2]))
                if waiting:
                    done, epoch, position = waiting.popleft()
                    while True:
                        try:
                            batch = done.result(0.05)
                            break
                        except concurrent.futures.TimeoutError:
                            if done.done():  # it was the transform's own
                                batch = done.result()
                                break
                    yield batch, epoch, position
        finally:
            last.shutdown(wait=False, cancel_futures=True)
            if images:
                images.shutdown(wait=False, cancel_futures=True)

    def _begin(self, pool: Any, batch: Batch) -> dict[str, list[Any]]:
        parts = {}
        for name, one in self.decode.items():
            column = batch.get(name)
            if not isinstance(column, Texts):
                raise ArgumentError(
                    f"read data: decode= names {name!r}, which is no column of binaries; the batch has {', '.join(batch)}"
                )
            n = len(column)
            cut = max(1, -(-n // (2 * self.threads)))
            parts[name] = [pool.submit(_decode, one, column, i, min(n, i + cut)) for i in range(0, n, cut)]
        return parts

    def _finish(self, item: Item, parts: Mapping[str, list[Any]]) -> Any:
        batch, epoch, position = item
        where = f"in the batch that ends at row {position} of epoch {epoch}"
        bad: dict[int, str] = {}
        for name, futures in parts.items():
            images = [image for f in futures for image in f.result()]
            for i, image in enumerate(images):
                if isinstance(image, Exception):
                    bad[i] = (
                        f"read data: {name!r} of row {i} {where} cannot be decoded: {type(image).__name__}: {image}"
                    )
            batch[name] = images
        if bad and not self.skip:
            raise HoraError(
                next(iter(bad.values())) + '; leave such rows out with on_error="skip", or write them again'
            )
        if bad:
            self.dropped += bad.values()
            keep = [i for i in range(batch.rows) if i not in bad]
            for name in batch:
                batch[name] = take(batch[name], keep)
            batch.padded = sum(i >= batch.rows - batch.padded for i in keep)
            batch.rows = len(keep)
        for name in parts:
            if batch[name] and len({getattr(image, "shape", None) for image in batch[name]}) == 1:
                batch[name] = np.stack(batch[name])
        if self.transform is None:
            return batch
        try:
            out = self.transform(batch)
        except Exception as e:
            raise HoraError(
                f"read data: transform= raised {type(e).__name__} {where}: {e}; mend the function, and go on from the saved state"
            ) from e
        if isinstance(out, Mapping) and not isinstance(out, Batch):
            out = Batch(out)
            out.rows, out.padded = batch.rows, batch.padded
        if out is None:
            raise HoraError("read data: transform= answered None; it must answer the batch that it has made")
        return out


def _decode(one: Callable[[Any], Any], column: Texts, begin: int, end: int) -> list[Any]:
    out: list[Any] = []
    for i in range(begin, end):
        try:
            out.append(one(column[i]))
        except Exception as e:
            out.append(e)
    return out


def decoder(name: str, how: Any) -> Callable[[Any], Any]:
    """The function that makes an array [height, width, channels] of an image's bytes."""
    size = None
    if isinstance(how, (tuple, list)) and len(how) == 2:
        how, size = how
    if callable(how):
        return how  # type: ignore[no-any-return]
    if how not in MODES or size is not None and (len(size) != 2 or min(size) < 1):
        raise ArgumentError(
            f'open data: decode={{{name!r}: {how!r}}}; use "rgb", "gray", "rgba", "unchanged", ("rgb", (height, width)), or a function of the bytes'
        )
    if "torch" in sys.modules and size is None:
        try:
            return _torchvision(how)
        except (ImportError, RuntimeError):
            pass
    try:
        return _pillow(how, size)
    except ImportError:
        raise ArgumentError(
            f"open data: decode={{{name!r}: ...}} needs torchvision or Pillow, and neither is installed for {sys.executable}; pip install pillow"
        ) from None


def _torchvision(mode: str) -> Callable[[Any], Any]:
    import torch
    from torchvision.io import ImageReadMode, decode_image  # type: ignore[import-not-found,import-untyped,unused-ignore]

    wanted = {
        "rgb": ImageReadMode.RGB,
        "gray": ImageReadMode.GRAY,
        "rgba": ImageReadMode.RGB_ALPHA,
        "unchanged": ImageReadMode.UNCHANGED,
    }[mode]

    def one(data: Any) -> Any:
        return decode_image(torch.frombuffer(data, dtype=torch.uint8), wanted).permute(1, 2, 0).numpy()

    return one


def _pillow(mode: str, size: Any) -> Callable[[Any], Any]:
    from PIL import Image  # type: ignore[import-not-found,import-untyped,unused-ignore]

    def one(data: Any) -> Any:
        with Image.open(io.BytesIO(data)) as image:
            if size is not None:
                image.draft(MODES[mode], (size[1], size[0]))
            if MODES[mode] and image.mode != MODES[mode]:
                image = image.convert(MODES[mode])
            if size is not None and image.size != (size[1], size[0]):
                image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            array = np.asarray(image)
        return array[:, :, None] if array.ndim == 2 else array

    return one
