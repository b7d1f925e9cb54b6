"""Files are written as a whole: what was there before stays until the new file is complete."""

import os
import re
import threading

import numpy as np
import pytest

import mithril as ml
from mithril.models import Linear, Model, Relu

# Large constants get a file of their own.
CONSTANT = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)


def compiled(path, constant=CONSTANT):
    model = Model()
    model |= Linear(40, use_bias=False)(input="x", w=constant, output="y")
    return ml.compile(model, ml.NumpyBackend(), shapes={"x": [2, 3]}, file_path=path)


def save_model(path):
    Relu().save(path)


def save_params(path):
    ml.save_params(path, {"w": CONSTANT})


def test_a_failed_write_leaves_the_files(tmp_path, monkeypatch):
    compiled(tmp_path / "model.py")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"model.py", "model.npz"}

    def half(path, **arrays):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(OSError, match="No space left"):
        compiled(tmp_path / "model.py", 2 * CONSTANT)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("save", [compiled, save_model, save_params])
def test_links_stay_links(save, tmp_path):
    (tmp_path / "there").mkdir()
    there, link = tmp_path / "there" / "file.py", tmp_path / "link.py"
    there.write_text("before")
    link.symlink_to(there)
    save(link)
    assert link.is_symlink()
    assert there.read_bytes() != b"before"
    assert not [path for path in there.parent.iterdir() if path.suffix not in (".py", ".npz")]


@pytest.mark.parametrize("save", [save_model, save_params])
def test_pipes_are_written_to(save, tmp_path):
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    save(pipe)
    reader.join()
    save(file)
    assert read == [file.read_bytes()]
    assert pipe.is_fifo()


@pytest.mark.parametrize("save", [compiled, save_model, save_params])
def test_errors_name_the_file(save, tmp_path):
    path = tmp_path / "no" / "file.py"
    with pytest.raises(ml.MithrilError, match=f"where: {re.escape(str(path))}\n"):
        save(path)
    folder = tmp_path / "folder.py"
    folder.mkdir()
    with pytest.raises(ml.MithrilError, match=f"where: {re.escape(str(folder))}\n"):
        save(folder)
    assert [*tmp_path.iterdir()] == [folder]
