"""Runs the snippets of the documents unchanged. See the head of each file in `spec/`."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mithril.errors import BackendError

SPEC = Path(__file__).parent / "spec"
FENCE = re.compile(
    r"^(?P<level>#+) (?P<title>[^\n]*)$|^<!-- (?P<on>goes on) -->$"
    r"|^<!-- (?P<device>needs a device) -->$"
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


def stories(file: Path) -> list[Story]:
    """The snippets of a document, grouped by `<!-- goes on -->` and by preambles."""
    text = file.read_text(encoding="utf-8")
    found: list[Story] = []
    title, goes_on, needs_device = file.stem, False, False
    for match in FENCE.finditer(text):
        if match["title"]:
            title = match["title"]
        elif match["on"]:
            goes_on = True
        elif match["device"]:
            needs_device = True
        else:
            if not goes_on:
                found.append(Story(f"{file.stem}: {title}", file, needs_device=needs_device))
                needs_device = False
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


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
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


def test_every_snippet_of_the_spec_is_tested():
    texts = {file.stem: file.read_text(encoding="utf-8") for file in SPEC.glob("*.md")}
    counts = {name: text.count("\n```python\n") for name, text in texts.items()}
    # All snippets except those of meshes.
    assert counts == {"readme": 2, "faq": 11, "training": 5, "pytorch-backend": 31}
    parts = sum(len(story.parts) for story in STORIES)
    assert parts == sum(text.count("\n```python") for text in texts.values())
