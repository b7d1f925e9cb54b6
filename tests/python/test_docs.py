"""The Python blocks of the README and the guide run, and print what the text behind them says."""

import contextlib
import io
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n+^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": "page"}
    blocks = list(BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        line = text.count("\n", 0, block.start()) + 1
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + block["code"], str(page), "exec"), namespace)
        if block["output"] is not None:
            assert printed.getvalue() == block["output"]
