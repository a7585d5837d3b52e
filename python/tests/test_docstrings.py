"""Every public function has an example, and every example does what it says: on two ranks, with the results shown."""

import doctest
import inspect
import os
import pydoc
import re
from pathlib import Path

import numpy as np
import pytest

import hora
import hora.elastic

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
ALONE = {"run"}  # starts its own ranks


def public() -> dict[str, object]:
    """What a program may call: functions and classes by name."""
    found = {n: getattr(hora, n) for n in hora.__all__}
    found = {
        n: o
        for n, o in found.items()
        if callable(o) and n != "Op" and not (inspect.isclass(o) and issubclass(o, Exception))
    }
    found = {n: o for n, o in found.items() if not isinstance(o, hora.Op)}
    return found | {
        "group.Call": hora.group.Call,
        "elastic.State": hora.elastic.State,
        "elastic.ElasticSampler": hora.elastic.ElasticSampler,
    }


def examples(name: str, text: str) -> doctest.DocTest:
    names = {"hora": hora, "np": np, "State": hora.elastic.State, "model": np.zeros(2)}
    return doctest.DocTestParser().get_doctest(inspect.cleandoc(text), names, name, None, 0)


def test_everything_has_an_example():
    bare = [n for n, o in public().items() if ">>>" not in (o.__doc__ or "")]
    assert not bare, f"without an example: {', '.join(bare)}"
    told = pydoc.plain(pydoc.render_doc(hora))
    untold = [n for n in public() if "." not in n and not re.search(rf"^    (class )?{n}\b", told, re.MULTILINE)]
    assert not untold, f"help(hora) does not show {', '.join(untold)}"


def check(tests: list[doctest.DocTest]) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    for t in tests:
        assert t.examples, t.name
        runner.run(t, out=said.append, clear_globs=True)
    assert not runner.failures, "\n".join(said)
    print(runner.tries, "examples")


def work_examples(folder: str):
    os.chdir(folder)
    hora.init()
    check(
        [examples("hora", hora.__doc__ or "")] + [examples(n, o.__doc__) for n, o in public().items() if n not in ALONE]
    )


def test_examples_do_what_they_say(ranks, tmp_path):
    said = ranks(2, work_examples, args=(str(tmp_path),), timeout=120)
    assert int(said[0].split()[0]) > 70


@pytest.mark.usefixtures("launcher")
def test_examples_that_start_ranks():
    check([examples(n, public()[n].__doc__) for n in ALONE])


def page(section: str) -> str:
    """The first program of a section of docs/python.md."""
    text = (Path(__file__).resolve().parents[2] / "docs/python.md").read_text()
    return text.split(f"## {section}\n")[1].split("```python\n")[1].split("```")[0]


def work_page():
    for section in ("With NumPy", "Coming from torch"):
        names: dict = {}
        exec(compile(page(section), section, "exec"), names)
        n = hora.size()
        if section == "With NumPy":
            assert names["total"].tolist() == [n * (n - 1) / 2] * 4 and names["rows"].shape == (n * (n + 1) / 2,)
        else:
            assert names["t"].tolist() == [float(n)] * (1 << 20) and names["p"].shape == (1 << 20,)


def test_the_programs_of_the_page_run(ranks):
    ranks(2, work_page, timeout=120, warm=True)
