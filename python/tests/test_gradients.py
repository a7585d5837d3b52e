"""hora.gradients by itself: layouts, terms, passes and factors, with numbers and texts in place of gradients."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

import hora
from hora import gradients
from hora.gradients import terms

FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "mxnet", "numpy")


def test_no_framework_is_imported():
    program = f"import sys, hora.gradients; print([m for m in {FRAMEWORKS} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", done.stdout


# Layout: a gradient is a text such as "f4:100:w", its kind, its bytes and its name.


def kind(gradient):
    return gradient.split(":")[0]


def nbytes(gradient):
    return int(gradient.split(":")[1])


def assign(items, groups=None, limit=100):
    return gradients.assign(items, groups, limit, kind, nbytes)


def test_buckets_begin_with_the_last_gradient_and_end_at_the_limit():
    a, b, c, d = "f4:40:a", "f4:60:b", "f4:50:c", "f4:50:d"
    assert assign([a, b, c, d]) == [[d, c], [b, a]]
    assert assign([a, b, c, d], limit=99) == [[d], [c], [b], [a]]
    assert assign(["f4:500:big", a]) == [[a], ["f4:500:big"]], "one that is past the limit travels alone"
    assert assign([]) == []


def test_only_gradients_of_one_kind_meet():
    a, b, c, d = "f4:10:a", "f2:10:b", "f4:10:c", "f2:10:d"
    assert assign([a, b, c, d]) == [[d, b], [c, a]], "each kind fills a bucket of its own, however they are mixed"


def test_groups_that_are_given_come_first_whatever_their_size():
    a, b, c, d = "f4:90:a", "f4:90:b", "f2:90:c", "f4:90:d"
    assert assign([a, b, c, d], [[a, b, c]]) == [[a, b], [c], [d]]
    strange = "f4:90:strange"
    assert assign([a, b], [[a, strange], [a]]) == [[a], [b]], "one that is not asked for, and one that is taken"


def test_each_gradient_is_in_one_bucket():
    items = [f"{'f4' if i % 3 else 'f2'}:{(i * 37) % 91 + 1}:{i}" for i in range(200)]
    for groups in (None, [items[5:20], items[90:95]]):
        found = assign(items, groups)
        assert sorted(g for bucket in found for g in bucket) == sorted(items)
        for bucket in found[len(groups or ()) * 2 :]:  # a group has two kinds
            assert sum(map(nbytes, bucket)) <= 100 and len(set(map(kind, bucket))) == 1


def test_split():
    assert gradients.split([1, 2, 3, 4, 5], 2) == [[1, 2, 3], [4, 5]]
    assert gradients.split([1, 2], 5) == [[1], [2]], "none is empty"
    assert gradients.split([], 3) == []


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 64, 128])
def test_gradients_begin_at_cache_lines(width):
    counts = [1, 17, 0, 64, 5]
    found, total = gradients.starts(counts, width)
    assert all(at * width % 64 == 0 for at in found) and len(found) == len(counts)
    ends = [*found[1:], total]
    assert all(n <= end - at < n + max(1, 64 // width) for at, n, end in zip(found, counts, ends, strict=True))


def test_starts():
    assert gradients.starts([3, 16, 17], 4) == ([0, 16, 32], 64)
    assert gradients.starts([], 4) == ([], 0)


def test_label():
    assert gradients.label("w", 3) == "gradient.w+2"
    assert gradients.label("w", 1, "sync.") == "sync.w"


# Terms: ranks that are asked one after the other; the greatest of their numbers is known the second time.


class Asked(Exception):
    pass


def on_ranks(n, call):
    """What call(rank, greatest) returns or raises on each of n ranks."""
    asked = []

    def ask(numbers, of):
        asked.append(numbers)
        raise Asked

    for rank in range(n):
        with pytest.raises(Asked):
            call(rank, ask)
    assert len({len(numbers) for numbers in asked}) == 1, "ranks must send equally many numbers"
    top = [max(column) for column in zip(*asked, strict=True)]
    out = []
    for rank in range(n):
        try:
            out.append(call(rank, lambda numbers, of: list(top)))
        except hora.HoraError as e:
            out.append(e)
    return out


def world(n, rank=0, tag="", ranks=None):
    return SimpleNamespace(ranks=ranks or tuple(range(n)), tag=tag, size=n, rank=rank)


@pytest.fixture(autouse=True)
def no_optimizer_yet(monkeypatch):
    monkeypatch.setattr(terms, "_numbers", {})


def test_terms_are_one_rank_s_sparseness_and_the_smallest_bucket():
    sparse, sizes = [[False, True, False], [False, False, True]], [64 << 20, 1 << 20]
    found = on_ranks(
        2, lambda r, greatest: gradients.agree(greatest, world(2), sparse[r], sizes[r], -1, "x", more=[r, 7 - r])
    )
    assert found[0] == found[1] == gradients.Terms([False, True, True], 1 << 20, 0, [1, 7])


def test_an_optimizer_s_number_is_new_in_its_group_and_alike_on_all_ranks():
    def agree(group, numbers):
        found = on_ranks(2, lambda r, greatest: gradients.agree(greatest, group, [], 1, numbers[r], "x"))
        assert found[0] == found[1]
        return found[0].number

    assert [agree(world(2), (-1, -1)) for _ in range(3)] == [0, 1, 2]
    assert agree(world(2, tag="other"), (-1, -1)) == 0, "another group counts for itself"
    assert agree(world(2), (-1, 5)) == 5, "a rank that has come later takes what the others have"
    assert agree(world(2), (5, 5)) == 5 and agree(world(2), (-1, -1)) == 6


def test_buckets_that_differ_are_one_sentence_on_every_rank():
    places = [[1, 1, 2], [1, 2, 2], [1, 1, 2]]
    found = on_ranks(
        3,
        lambda r, greatest: gradients.check_buckets(
            greatest, world(3, r, ranks=(4, 6, 8)), places[r], lambda i: "abc"[i]
        ),
    )
    assert all(isinstance(e, hora.MismatchError) for e in found) and len(set(map(str, found))) == 1
    assert str(found[0]).startswith(
        "Mismatched buckets: the gradient of b is in part 2 on rank 6 and in part 1 on rank "
    )
    assert "rank 4;" in str(found[0]) or "rank 8;" in str(found[0])


def test_equal_buckets_and_gradients_in_none_are_agreed_on():
    assert on_ranks(2, lambda r, greatest: gradients.check_buckets(greatest, world(2, r), [0, 1, 2, 1], str)) == [
        None,
        None,
    ]
    found = on_ranks(2, lambda r, greatest: gradients.check_buckets(greatest, world(2, r), [r], str))
    assert "is in part 1 on rank 1 and in part 0 on rank 0" in str(found[0]), "in none on one rank alone"


def test_a_rank_that_has_joined_agrees_with_all():
    """It brings zeros, which are below whatever the others say."""

    def joined(numbers, of):
        return [max(n, 0) for n in numbers]

    gradients.check_buckets(joined, world(1), [0, 3, 1], str)


# Passes.


def test_passes_of_a_step():
    passes = gradients.Passes(2)
    assert not passes.full
    passes.ended()
    assert passes.made == 1 and not passes.full
    passes.ended()
    assert passes.full
    with pytest.raises(AssertionError, match="more than backward_passes_per_step times before call to step"):
        passes.ended()
    passes.reduced()
    assert passes.made == 0 and not passes.full


def test_a_gradient_is_complete_once_in_a_step():
    passes = gradients.Passes(2)
    name = lambda: "layer.weight"
    assert [passes.came("w", name, False), passes.came("b", name, False)] == [False, False]
    assert passes.came("w", name, False) and passes.came("b", name, False)
    assert not passes.came("w", name, False), "once more, where its bucket has not gone yet"
    with pytest.raises(AssertionError, match=r"^The gradient of layer\.weight was computed more than"):
        passes.came("b", name, True)
    passes.collected()
    assert not passes.came("w", name, False), "the next step counts from the start"


def test_passes_that_start_anew():
    passes = gradients.Passes(1)
    passes.ended()
    assert passes.came("w", str, False)
    passes.restart()
    assert passes.made == 0 and passes.per_step == 1 and passes.came("w", str, True)
    passes.restart(3)
    assert passes.per_step == 3 and [passes.came("w", str, False) for _ in range(3)] == [False, False, True]
    with pytest.raises(AssertionError, match="prohibited"):
        gradients.Passes.refuse_zeroing()


# Factors.


def test_predivided():
    assert gradients.predivided(hora.AVERAGE, 1.0, 8) == (hora.AVERAGE, 1.0, 1.0)
    assert gradients.predivided(hora.SUM, 1.0, 8) == (hora.SUM, 1.0, 1.0)
    op, before, after = gradients.predivided(hora.AVERAGE, 4.0, 8)
    assert (op, before, after) == (hora.SUM, 0.25, 0.5) and before * after == 1 / 8, "together they are an average"
    with pytest.raises(ValueError, match="not supported with op != Average"):
        gradients.predivided(hora.SUM, 2.0, 8)


def test_gradients_apart_stay_in_their_places():
    calls = []

    def reduce(given):
        calls.append(given)
        return [None if g is None else g * 10 for g in given]

    got = gradients.apart([1, 2, None, 4, None], [False, True, True, False, False], reduce, lambda g: -g)
    assert got == [10, -2, None, 40, None] and calls == [[1, 4, None]], "one call, of those that are not a rank's own"
    assert gradients.apart([], [], lambda given: given, str) == []
    with pytest.raises(ValueError):
        gradients.apart([1, 2], [True], reduce, str)


def test_what_is_said_of_faults():
    e = gradients.differs_in_shape(hora.MismatchError("Mismatched allreduce tensor shapes: a, b."))
    assert str(e).startswith("Mismatched allreduce tensor shapes: a, b; a parameter that is frozen")
    assert str(gradients.differs_in_shape(hora.MismatchError("other"))) == "other"
    cut = gradients.cut_short("synchronize()", "KeyboardInterrupt", "a step", 3, "its buckets are lost; load the state")
    assert str(cut) == (
        "synchronize(): KeyboardInterrupt cut a step short on rank 3, its buckets are lost; load the state on every rank, or end the job."
    )
