"""Runs the Python examples of the README, the guide and other pages, and checks that they print the
text after them. A block with the name of a file is written to it, and commands that are marked
`run` are run."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mithril.backends import custom

ROOT = Path(__file__).parents[2]
ERRORS = sorted((ROOT / "docs" / "errors").glob("*.md"))
BLOCKS = sorted((ROOT / "docs" / "blocks").glob("*.md"))
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "docs" / "scaling.md", *GUIDE]
BLOCK = re.compile(
    r"^```(?P<kind>python|sh run|python (?P<file>\S+))\n(?P<code>.*?)^```$"
    r"(?:\n+^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


# Pages that set how many devices a framework has, which it takes once in a process.
ALONE = ["meshes"]


@pytest.mark.every
@pytest.mark.parametrize("page", PAGES + ERRORS + BLOCKS, ids=lambda page: page.stem)
def test_pages_run(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    digits = np.get_printoptions()
    request.addfinalizer(lambda: np.set_printoptions(**digits))
    commands = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    # A page may register a backend whose name a package has, too.
    monkeypatch.setattr(custom, "_classes", {})
    if page.stem in ALONE:
        code = f"import test_docs, pathlib; test_docs.check(pathlib.Path({str(page)!r}))"
        others = os.environ.get("PYTHONPATH", "")
        path = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{others}"}
        subprocess.run([sys.executable, "-W", "error", "-c", code], env=path, check=True)
    else:
        check(page)


def check(page):
    """Runs the examples of a page, and compares what they print with the text after them."""
    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": "page"}
    blocks = list(BLOCK.finditer(text))
    # Internal errors have no example, and cargo tests the examples in Rust.
    assert blocks or page.stem in ("E0901", "rust")
    for block in blocks:
        line = text.count("\n", 0, block.start()) + 1
        if block["file"]:
            Path(block["file"]).write_text(block["code"], encoding="utf-8")
            continue
        if block["kind"] == "sh run":
            printed = output_of(block["code"])
        else:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile("\n" * line + block["code"], str(page), "exec"), namespace)
            printed = out.getvalue()
        if block["output"] is not None:
            assert printed == block["output"], printed


def output_of(commands):
    """What commands print, without what JAX's gloo prints about its connections, at any place, and
    without the empty lines that it leaves: processes that print at once mix their ends of lines."""
    shell = ["bash", "-e", "-c", commands]
    # Python then writes a line at once, and gloo's ends of lines do not fall inside.
    buffered = {n: value for n, value in os.environ.items() if n != "PYTHONUNBUFFERED"}
    pipe = {"stdout": subprocess.PIPE, "text": True, "env": buffered}
    run = subprocess.run(shell, **pipe, check=True, timeout=300)
    own = re.sub(r"\[Gloo\] Rank \d+ is connected to [^\n]*?: \d+", "", run.stdout)
    return re.sub(r"\n+", "\n", own).lstrip("\n")


@pytest.mark.parametrize("page", ERRORS, ids=lambda page: page.stem)
def test_pages_of_errors_are_printed(page):
    command = [str(Path(sys.executable).parent / "mithril"), "error", page.stem.lower()]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    assert ran.stdout == page.read_text(encoding="utf-8")
    assert ran.stdout.count("```python") in (0, 2)
    assert f"# {page.stem}: " in ran.stdout
    # The failing example raises the error of this page.
    assert page.stem == "E0901" or page.stem in ran.stdout.split("```text")[1]


def test_errors_are_listed():
    command = [str(Path(sys.executable).parent / "mithril"), "error"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in ran.stdout.splitlines()] == [p.stem for p in ERRORS]
    wrong = subprocess.run([*command, "E0170"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "there is no error `E0170`" in wrong.stderr
    assert "`E0107`" in wrong.stderr
