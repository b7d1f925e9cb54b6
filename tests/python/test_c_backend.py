"""The C backend: its file, cache and compiler, and bugs of compilers that it avoids."""

import fcntl
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_programs import COMPILERS, STRICT, by_every_compiler
from comparing import chain, random
from conftest import has

import mithril as ml
from mithril.models import Buffer, Concat, Linear, Model, Relu

pytestmark = pytest.mark.skipif(not has("c"), reason="there is no C compiler")


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("rows", [2, 3, 7])
@pytest.mark.parametrize("columns", [1, 2, 3, 16, 33])
def test_slices_of_concatenations_have_correct_gradients(rows, columns, first):
    """The gradient of a slice of `x` concatenated with itself. GCC 12 read some rows as 0."""
    model = Model()
    model |= Concat(axis=0)(inputs=["x", "x"], output="twice")
    model |= Buffer()(input=model.twice[first : first + rows], output="y")
    shapes = {"x": [max(rows, first), columns]}
    compiled = ml.compile(model, ml.CBackend(), shapes=shapes, trainable_keys=["x"])
    part = np.arange(1.0, 1 + rows * columns, dtype=np.float32).reshape(rows, columns)
    x = np.zeros(shapes["x"], np.float32)
    _, gradients = compiled.evaluate({"x": x}, {}, output_gradients={"y": part})
    whole = np.zeros([2 * len(x), columns], np.float32)
    whole[first : first + rows] = part
    np.testing.assert_array_equal(gradients["x"], whole[: len(x)] + whole[len(x) :])


@by_every_compiler
@pytest.mark.parametrize("shape", [[9, 9, 1], [5, 2], ["n", 4], [17, 7]])
def test_sums_of_flipped_arrays_count_each_element_once(compiler, shape, monkeypatch):
    """GCC 12.2 added some elements twice: 3268 for the sum of 0 to 80."""
    monkeypatch.setenv("CC", compiler)
    model = Model()
    model |= ml.Flip(1)(input="x", output="turned")
    model |= ml.Sum([0, 1])(input="turned", output="y")
    compiled = ml.compile(model, ml.CBackend(), shapes={"x": shape}, inference=True)
    sizes = [6 if size == "n" else size for size in shape]
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    assert compiled.evaluate({}, {"x": x})["y"].item() == x.sum()


@by_every_compiler
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("size", [8, 16, 33])
def test_products_of_integers_have_each_term(compiler, dtype, size, monkeypatch):
    """GCC 12.2 dropped lanes in loops with several accumulators: 924 instead of 1240."""
    monkeypatch.setenv("CC", compiler)
    model = Model()
    a, b = (ml.IOKey(name, dtype=dtype) for name in "ab")
    model |= ml.Einsum("ik,jk->ij")(inputs=[a, b], output="y")
    shapes = {"a": [1, "k"], "b": [1, "k"]}
    compiled = ml.compile(model, ml.CBackend(), shapes=shapes, inference=True)
    x = np.arange(size, dtype=dtype).reshape(1, size)
    y = compiled.evaluate({}, {"a": x, "b": x})["y"]
    np.testing.assert_array_equal(y, x @ x.T)


def test_folders_of_killed_processes_are_removed(monkeypatch, tmp_path):
    """A folder goes if it has a lock that no process holds, and is at least a minute old."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MITHRIL_CACHE", "")
    names = ["mithril-c-held", "mithril-c-left", "mithril-c-young", "other", "mithril-c-users"]
    held, left, young, foreign, users = (tmp_path / name for name in names)
    empty = tmp_path / "mithril-c-empty"
    empty.mkdir()
    for folder in (held, left, young, foreign, users):
        folder.mkdir()
        (folder / "model.c").touch()
        if folder != users:
            (folder / ".mithril-lock").touch()
    for folder in (held, left, foreign, users, empty):
        os.utime(folder, (1, 1))
    with (held / ".mithril-lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        compiled = ml.compile(Relu(), ml.CBackend(), shapes={"input": [3]}, inference=True)
        output = compiled.evaluate({}, {"input": np.array([-1, 0, 2], np.float32)})["output"]
    np.testing.assert_array_equal(output, [0, 0, 2])
    # A user's folder of such a name has no lock, and stays.
    assert sorted(tmp_path.iterdir()) == sorted([held, young, foreign, users])


def test_the_file_is_written(tmp_path):
    path = tmp_path / "small.c"
    compiled = ml.compile(
        chain(Linear(2), Relu()), ml.CBackend(), shapes={"input": [4, 3]}, file_path=path, jit=False
    )
    assert path.read_text() == compiled.code
    assert "int mithril_small(" in compiled.code
    with pytest.raises(ml.BackendError, match="jit=False"):
        compiled.evaluate(compiled.randomize_params(), {"input": np.ones((4, 3), np.float32)})
    with pytest.raises(ml.MithrilError, match=r"ends in `\.c`"):
        ml.compile(Linear(2), ml.CBackend(), shapes={"input": [4, 3]}, file_path="model.py")
    with pytest.raises(ml.MithrilError, match="shapes"):
        ml.compile(Linear(2), ml.CBackend(), file_path=tmp_path / "model.c")


def test_required_dim_equalities_name_their_blocks():
    model = ml.Model()
    model |= ml.Add(name="sum")(left="a", right="b", output="y")
    compiled = ml.compile(model, ml.CBackend(), shapes={"a": ["n"], "b": ["m"]}, jit=False)
    assert " *   n == m of block `sum`\n" in compiled.code


@pytest.mark.parametrize("name", ["*/ int evil(void); /*", "/*/", "??/", "a\nb", "\\", "#if"])
def test_names_stay_in_comments(name, tmp_path):
    model = ml.Model(name=name)
    model |= Linear(2, name=name)(input=f"{name}x", output=f"{name}y")
    compiled = ml.compile(model, ml.CBackend(), shapes={f"{name}x": ["n", 3]}, jit=False)
    path = tmp_path / "model.c"
    path.write_text(compiled.code)
    subprocess.run([COMPILERS[0], *STRICT, "-c", path, "-o", tmp_path / "model.o"], check=True)


@pytest.mark.parametrize("gradients", [False, True])
def test_blocks_may_have_names_of_c(gradients, tmp_path):
    names = "log main memcpy y0 lgamma_r index workspace arena row_0 constant mithril_max x"
    names += (
        " MITHRIL_OK NULL size_t scratch temporary sums i out params model_constant_0 select_f32"
    )
    model = ml.Model()
    for name in names.split():
        model += Linear(3, name=name)
        model += ml.Softmax(name=f"{name}_1")
    shapes = {"input": ["n", 3]}
    compiled = ml.compile(model, ml.CBackend(), shapes=shapes, inference=not gradients)
    path = tmp_path / "model.c"
    path.write_text(compiled.code)
    subprocess.run([COMPILERS[0], *STRICT, "-c", path, "-o", tmp_path / "model.o"], check=True)
    params = compiled.randomize_params(seed=1)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    expected = ml.compile(model, ml.NumpyBackend(), shapes=shapes, inference=True)
    np.testing.assert_allclose(
        compiled.evaluate(params, {"input": x})["output"],
        expected.evaluate(params, {"input": x})["output"],
        rtol=1e-5,
    )


def test_source_is_named_after_blocks_and_values():
    model = ml.Model()
    model += ml.LayerNorm()(input="x")
    model += ml.MultiHeadAttention(4)
    model += Linear(16)
    model += Relu()(output="y")
    code = ml.compile(model, ml.CBackend(), shapes={"x": [2, 8, 16]}, inference=True).code
    kernels = set(re.findall(r"static void (\w+)\(", code))
    assert {"layer_norm", "multi_head_attention_scores", "linear_relu"} <= kernels
    assert re.search(r"multi_head_attention_weights\(.*scores, weights\);", code)
    # An index that is divided into axes and multiplied again leaves no arithmetic.
    assert "out[(i + j) * 16 + k]" in code or "total[(i + j) * 16 + k]" in code
    assert not re.search(r"/ (\d+) \* \1", code)


def fresh(factor):
    """A model that is in no cache."""
    model = Model()
    model |= ml.Multiply()(left="x", right=factor, output="y")
    return ml.compile(model, ml.CBackend(), shapes={"x": [3]})


def test_libraries_are_cached(monkeypatch, tmp_path):
    monkeypatch.setenv("MITHRIL_CACHE", str(tmp_path / "cache"))
    x = np.ones(3, np.float32)
    for found in ("1 compiled", "1 found"):
        compiled = fresh(1.625)
        assert compiled.evaluate({}, {"x": x})["y"].tolist() == [1.625] * 3
        assert found in compiled.report()
    (entry,) = (tmp_path / "cache").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    compiled = fresh(1.625)
    compiled.evaluate({}, {"x": x})
    assert "1 compiled" in compiled.report()


def test_c_compiler_failures_are_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("MITHRIL_CACHE", "")
    x = np.ones(3, np.float32)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ml.BackendError, match="no C compiler"):
        fresh(2.5).evaluate({}, {"x": x})
    broken = Path(tmp_path / "cc")
    broken.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] || { echo 'x.c:1: error: no' >&2; exit 1; }\n"
    )
    os.chmod(broken, 0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(ml.BackendError, match=r"x\.c:1: error: no"):
        fresh(3.5).evaluate({}, {"x": x})


def test_repeated_compiles_give_the_same_bits():
    model = chain(Linear(33), Relu(), Linear(17), ml.Tanh(), Linear(5))
    compiled = ml.compile(model, ml.CBackend(), shapes={"input": ["batch", 24]})
    params = compiled.randomize_params(seed=1)
    inputs = {"input": random(7, 24)}
    first = compiled.evaluate(params, inputs)["output"]
    again = ml.compile(model, ml.CBackend()).evaluate(params, inputs)["output"]
    assert np.array_equal(first, again)
