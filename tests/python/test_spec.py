"""Runs the snippets of the documents unchanged. See the head of each file in `spec/`."""

import ast
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mithril.errors import BackendError

SPEC = Path(__file__).parent / "spec"
FENCE = re.compile(
    r"^(?P<level>#+) (?P<title>[^\n]*)$|^<!-- (?P<on>goes on) -->$"
    r"|^<!-- (?P<device>needs a device) -->$"
    r"|^<!-- needs (?P<devices>\d+) devices -->$"
    r"|^```python(?P<preamble> preamble)?\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Story:
    """Snippets that share a namespace."""

    name: str
    file: Path
    parts: list[tuple[int, str]] = field(default_factory=list)
    needs_device: bool = False
    devices: int = 1


def stories(file: Path) -> list[Story]:
    """The snippets of a document, grouped by `<!-- goes on -->` and by preambles."""
    text = file.read_text(encoding="utf-8")
    found: list[Story] = []
    title, goes_on, needs_device, devices = file.stem, False, False, 1
    for match in FENCE.finditer(text):
        if match["title"]:
            title = match["title"]
        elif match["on"]:
            goes_on = True
        elif match["device"]:
            needs_device = True
        elif match["devices"]:
            devices = int(match["devices"])
        else:
            if not goes_on:
                name = f"{file.stem}: {title}"
                found.append(Story(name, file, needs_device=needs_device, devices=devices))
                needs_device, devices = False, 1
            line = text.count("\n", 0, match.start()) + 1
            found[-1].parts.append((line, match["code"]))
            # The next snippet belongs to a preamble.
            goes_on = bool(match["preamble"])
    return found


STORIES = [story for file in sorted(SPEC.glob("*.md")) for story in stories(file)]


@pytest.fixture
def torch_switches(frameworks):
    """Restores the switches that backends set for the whole process."""
    torch = pytest.importorskip("torch")
    was = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(was[0])
    torch.backends.cudnn.benchmark = was[1]


@pytest.mark.parametrize(
    "story", [story for story in STORIES if story.devices == 1], ids=lambda story: story.name
)
@pytest.mark.every
@pytest.mark.filterwarnings("ignore:CUDA is not available", "ignore::mithril.errors.BackendWarning")
def test_snippets_run(story, tmp_path, monkeypatch, frameworks, torch_switches):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace = {"__name__": "snippet"}
    for line, code in story.parts:
        # Errors give the line in the document.
        padded = "\n" * line + code
        for statement in ast.parse(padded).body:
            part = compile(ast.Module([statement], []), str(story.file), "exec")
            try:
                exec(part, namespace)
            except BackendError as error:
                # The machine may have fewer devices than the document.
                assert story.needs_device, error
                assert "torch has no device" in str(error)
                assert "expected: cpu" in str(error)


@pytest.mark.parametrize(
    "story", [story for story in STORIES if story.devices > 1], ids=lambda story: story.name
)
def test_snippets_with_meshes_run(story, tmp_path):
    """The frameworks have one device in this process, so these snippets are a script."""
    lines: list[str] = []
    for line, code in story.parts:
        # Errors give the line in the document.
        lines += [""] * (line - len(lines)) + code.splitlines()
    script = tmp_path / "snippets.py"
    script.write_text("\n".join(lines), encoding="utf-8")
    flags = f"--xla_force_host_platform_device_count={story.devices}"
    command = [sys.executable, "-W", "error", script.name]
    environment = {**os.environ, "XLA_FLAGS": flags}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_every_snippet_of_the_spec_is_tested():
    texts = {file.stem: file.read_text(encoding="utf-8") for file in SPEC.glob("*.md")}
    counts = {name: text.count("\n```python\n") for name, text in texts.items()}
    assert counts == {"readme": 3, "faq": 13, "training": 6, "pytorch-backend": 31}
    parts = sum(len(story.parts) for story in STORIES)
    assert parts == sum(text.count("\n```python") for text in texts.values())
