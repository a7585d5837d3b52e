"""`hora run --legacy tf1`: names of TensorFlow 1 and Keras 2 that today's releases lack, so that old scripts run as
they are.

Modules get them as they are imported, in whatever order; what a module has itself stays as it is. TensorFlow's come
from its own tf.compat.v1. Processes of such a job install this before their first line (hora_legacy.pth in the wheel,
where HORA_LEGACY is set), and `import hora` does at the latest.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from . import _old_keras
from ._gone import MODULES, MULTI_GPU, Gone, Several, With, from_keras_two

# Modules of Keras 2 that Keras 3 has under another name.
MOVED = {
    "keras.backend.tensorflow_backend": "keras.backend",
    "keras.engine": "keras.models keras.layers",
    "keras.engine.base_layer": "keras.layers",
    "keras.engine.input_layer": "keras.layers",
    "keras.engine.training": "keras.models",
    "keras.engine.topology": "keras.layers",
    "keras.layers.advanced_activations": "keras.layers",
    "keras.layers.convolutional": "keras.layers",
    "keras.layers.convolutional_recurrent": "keras.layers",
    "keras.layers.core": "keras.layers",
    "keras.layers.embeddings": "keras.layers",
    "keras.layers.experimental": "keras.layers",
    "keras.layers.experimental.preprocessing": "keras.layers",
    "keras.layers.merge": "keras.layers",
    "keras.layers.noise": "keras.layers",
    "keras.layers.normalization": "keras.layers",
    "keras.layers.pooling": "keras.layers",
    "keras.layers.recurrent": "keras.layers",
    "keras.layers.wrappers": "keras.layers",
    "keras.objectives": "keras.losses",
    "keras.preprocessing.text": "keras._tf_keras.keras.preprocessing.text",
    "keras.utils.data_utils": "keras.utils",
    "keras.utils.np_utils": "keras.utils",
    "keras.utils.generic_utils": "keras.utils",
    "keras.utils.vis_utils": "keras.utils",
    "keras.wrappers": "keras.models",
}

_INITIALIZERS = {
    "normal": "RandomNormal", "uniform": "RandomUniform", "random_normal": "RandomNormal",
    "random_uniform": "RandomUniform", "zero": "Zeros", "one": "Ones",
}  # fmt: skip
_GENERATORS = {"fit_generator": "fit", "evaluate_generator": "evaluate", "predict_generator": "predict"}
_GONE = ("workers", "use_multiprocessing", "max_queue_size", "max_q_size", "pickle_safe")


def install() -> None:
    """Give the modules that are there what they lack, and those that come."""
    if any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    asked = os.environ.get("HORA_LEGACY", "")
    if asked != "tf1":
        sys.stderr.write(f"hora: HORA_LEGACY={asked!r} is no set of old names: the one there is is tf1\n")
        return
    sys.meta_path.insert(0, _Finder())
    for name, give in _GIVERS.items():
        if name in sys.modules:
            give(sys.modules[name])


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the other finders do, and has a module completed once it has run; and modules that have moved."""

    def __init__(self) -> None:
        self._busy = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        short = fullname.removeprefix("tensorflow.")
        if self._busy or fullname not in _GIVERS and short not in MOVED and fullname not in MODULES:
            return None
        self._busy = True  # the others are asked, this one aside
        try:
            spec = importlib.util.find_spec(fullname) if fullname in _GIVERS or fullname in MODULES else None
        finally:
            self._busy = False
        if fullname in MODULES:
            if spec is None:
                raise ModuleNotFoundError(MODULES[fullname], name=fullname)
            return spec
        if spec is not None and spec.loader is not None:
            spec.loader = _Completing(spec.loader, _GIVERS[fullname])  # type: ignore[assignment]
        elif spec is None and short in MOVED:
            before = fullname[: -len(short)]
            to = [before + name for name in MOVED[short].split()]
            spec = importlib.machinery.ModuleSpec(fullname, _Moved(to), is_package=True)
        return spec


class _Completing(importlib.abc.Loader):
    """A module's own loader, and then what the module lacks."""

    def __init__(self, own: Any, give: Callable[[ModuleType], None]) -> None:
        self._own, self._give = own, give

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._own  # whoever looks at it sees what there always is
        module.__loader__ = self._own
        self._own.exec_module(module)
        self._give(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class _Moved(importlib.abc.Loader):
    """A module whose names are those of others."""

    def __init__(self, to: list[str]) -> None:
        self._to = to

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        fall_back(module, lambda: Several(*self._to))


def fall_back(
    module: ModuleType, find: Callable[[], Any], give: Callable[[ModuleType, Any], Any] | None = None
) -> None:
    """Have a module answer for names that it lacks with those of what `find` finds."""
    before = vars(module).get("__getattr__")

    def missing(name: str) -> Any:
        if before is not None:
            try:
                return before(name)
            except Gone:
                raise
            except AttributeError:
                pass
        if not name.startswith("__"):
            try:
                return getattr(find(), name)
            except Gone:
                raise
            except (AttributeError, ImportError):
                pass
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__getattr__ = missing  # type: ignore[method-assign]


# -- TensorFlow


def _tensorflow(tf: ModuleType) -> None:
    old = tf.compat.v1
    root = With(old, layers=from_keras_two(old.layers, "tf.layers"))
    fall_back(tf, lambda: root)
    cells = With(old.nn, rnn_cell=from_keras_two(getattr(old.nn, "rnn_cell", None), "tf.nn.rnn_cell"))
    fall_back(tf.nn, lambda: cells)
    for name in dir(old):
        ours, theirs = vars(tf).get(name), vars(old).get(name)
        if type(ours) is ModuleType and isinstance(theirs, ModuleType) and ours is not theirs and name != "compat":
            fall_back(ours, lambda theirs=theirs: theirs)  # type: ignore[misc]
    _datasets(tf)


def _datasets(tf: ModuleType) -> None:
    """What a dataset of TensorFlow 1 has besides."""
    old = tf.compat.v1.data
    for name in ("make_one_shot_iterator", "make_initializable_iterator"):
        if not hasattr(tf.data.Dataset, name):
            setattr(tf.data.Dataset, name, getattr(old, name))
    for name in ("output_types", "output_shapes", "output_classes"):
        if not hasattr(tf.data.Dataset, name):
            setattr(tf.data.Dataset, name, property(getattr(old, f"get_{name}")))


# -- Keras


class _Sessions:
    """K.set_session and K.get_session: Keras 3 has no session, so that one is kept for who asks, and its devices are
    used."""

    def __init__(self) -> None:
        self._held: Any = None

    def set_session(self, session: Any) -> None:
        """Keep the session; where its configuration names devices, TensorFlow uses those alone."""
        import tensorflow as tf

        self._held = session
        options: Any = getattr(getattr(session, "_config", None), "gpu_options", None)
        gpus = tf.config.list_physical_devices("GPU") if options is not None else []
        try:
            if gpus and options.visible_device_list:
                gpus = [gpus[int(i)] for i in options.visible_device_list.split(",")]
                tf.config.set_visible_devices(gpus, "GPU")
            for gpu in gpus:
                tf.config.experimental.set_memory_growth(gpu, options.allow_growth)
        except RuntimeError as error:  # they are in use already
            sys.stderr.write(
                f"hora: set_session came too late to choose devices: {error}; call it before anything else of TensorFlow\n"
            )

    def get_session(self) -> Any:
        """The session that was set, or a new one."""
        import tensorflow as tf

        if self._held is None:
            self._held = tf.compat.v1.Session()
        return self._held


_sessions = _Sessions()


_ORDERINGS = {"tf": "channels_last", "th": "channels_first"}


class _OldBackend:
    """What K lacks: sessions, then the functions that Keras keeps for tf.keras."""

    def __getattr__(self, name: str) -> Any:
        if name in ("set_session", "get_session"):
            return getattr(_sessions, name)
        if name in _old_keras.BACKEND:
            return _old_keras.BACKEND[name]
        if name == "tf":
            return importlib.import_module("tensorflow")
        if name == "image_dim_ordering":
            return lambda: (
                "tf" if importlib.import_module("keras").config.image_data_format() == _ORDERINGS["tf"] else "th"
            )
        if name == "set_image_dim_ordering":
            return lambda how: importlib.import_module("keras").config.set_image_data_format(_ORDERINGS[how])
        if name == "get_value":  # tf.keras' own forms know no variable of Keras 3
            return importlib.import_module("keras.ops").convert_to_numpy
        if name == "set_value":
            return lambda x, value: x.assign(value)
        own = vars(importlib.import_module("keras._tf_keras.keras.backend"))  # which falls back to this class itself
        if name in own:
            return own[name]
        raise AttributeError(name)


def _keras(keras: ModuleType) -> None:
    if not hasattr(keras, "ops"):
        _keras_two(keras.backend)
        return
    for module in (keras.backend, importlib.import_module("keras._tf_keras.keras.backend")):
        fall_back(module, _OldBackend)
    fall_back(keras.preprocessing.image, lambda: importlib.import_module("keras._tf_keras.keras.preprocessing.image"))
    fall_back(keras.preprocessing, lambda: SimpleNamespace(text=importlib.import_module("keras.preprocessing.text")))
    for utils in (keras.utils, importlib.import_module("keras._tf_keras.keras.utils")):
        fall_back(utils, lambda: SimpleNamespace(multi_gpu_model=MULTI_GPU))
    for models in (keras.models, importlib.import_module("keras._tf_keras.keras.models")):
        fall_back(models, lambda: _old_keras.MODELS)
    for name in ("keras.layers", "keras._tf_keras.keras.layers"):
        layers = importlib.import_module(name)
        has = SimpleNamespace(experimental=SimpleNamespace(preprocessing=layers), **_old_keras.LAYERS)
        fall_back(layers, lambda has=has: has)  # type: ignore[misc]
    for old in ("np_utils", "generic_utils"):
        if not hasattr(keras.utils, old):
            setattr(keras.utils, old, keras.utils)
    for name in ("losses", "metrics", "initializers"):  # what tf.losses and so on are, once they are asked for
        module = importlib.import_module(f"keras._tf_keras.keras.{name}")
        short = SimpleNamespace(**vars(module))  # Keras 2's short names, as mse
        for old, now in {"initializers": _INITIALIZERS, "losses": _old_keras.LOSSES}.get(name, {}).items():
            setattr(short, old, getattr(module, now))
        fall_back(getattr(keras, name), lambda short=short: short)  # type: ignore[misc]
        fall_back(module, lambda name=name: getattr(importlib.import_module("tensorflow").compat.v1, name))  # type: ignore[misc]
    _optimizers(keras)
    for name, now in _GENERATORS.items():
        if not hasattr(keras.Model, name):
            setattr(keras.Model, name, _generator(now))


def _keras_two(backend: ModuleType) -> None:
    """Keras 2 has its names, but for those that its backend keeps for version 1 alone: sessions, above all."""
    fall_back(backend, lambda: importlib.import_module("tensorflow").compat.v1.keras.backend)


def _twin(module: ModuleType) -> None:
    """`import tensorflow.keras.backend` makes a second module of the file that tf.keras.backend comes from: it has what
    that one has."""
    place = module.__name__.removeprefix("tensorflow")
    for name, other in list(sys.modules.items()):
        if name.endswith(place) and other is not module and getattr(other, "__file__", None) == module.__file__:
            fall_back(module, lambda other=other: other)  # type: ignore[misc]
            return


def _generator(now: str) -> Callable[..., Any]:
    def call(self: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        for gone in _GONE:
            kwargs.pop(gone, None)
        if args:  # a generator's steps came second; in what takes its place they have a name
            kwargs["steps_per_epoch" if now == "fit" else "steps"], args = args[0], args[1:]
            if args and now == "fit":
                kwargs["epochs"], args = args[0], args[1:]
        return getattr(self, now)(generator, *args, **kwargs)

    return call


def _optimizers(keras: ModuleType) -> None:
    """`lr` is the learning rate, and `decay` lowers it with every step, as both did."""
    base = keras.optimizers.Optimizer
    if hasattr(base, "lr"):
        return
    of = next(c for c in base.__mro__ if c.__module__.endswith("base_optimizer"))
    own = of.__init__

    def __init__(self: Any, learning_rate: Any, *args: Any, lr: Any = None, decay: float = 0.0, **kwargs: Any) -> None:
        rate = learning_rate if lr is None else lr
        if decay:
            rate = keras.optimizers.schedules.InverseTimeDecay(rate, 1, decay)
        own(self, rate, *args, **kwargs)

    of.__init__ = __init__
    for name in ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam"):
        if not hasattr(keras.optimizers, name.lower()):
            setattr(keras.optimizers, name.lower(), getattr(keras.optimizers, name))
    base.lr = property(lambda self: self.learning_rate, lambda self, rate: setattr(self, "learning_rate", rate))


_GIVERS: dict[str, Callable[[ModuleType], None]] = {"tensorflow": _tensorflow, "keras": _keras}
# tf_keras' backend, that of tf.keras where it is Keras 2, and of TensorFlow up to 2.15.
_GIVERS |= dict.fromkeys(
    ("tf_keras.backend", "tf_keras.api._v2.keras.backend", "keras.api._v2.keras.backend"), _keras_two
)
_GIVERS |= dict.fromkeys(
    (f"tensorflow.keras.{name}" for name in ("backend", "losses", "metrics", "initializers", "utils")), _twin
)
