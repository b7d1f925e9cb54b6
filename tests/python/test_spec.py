"""Runs the snippets of the documents unchanged. See the head of each file in `spec/`."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SPEC = Path(__file__).parent / "spec"
FENCE = re.compile(
    r"^(?P<level>#+) (?P<title>[^\n]*)$|^<!-- (?P<on>goes on) -->$"
    r"|^```python(?P<preamble> preamble)?\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Story:
    """Snippets that share a namespace."""

    name: str
    file: Path
    parts: list[tuple[int, str]] = field(default_factory=list)


def stories(file: Path) -> list[Story]:
    """The snippets of a document, grouped by `<!-- goes on -->` and by preambles."""
    text = file.read_text(encoding="utf-8")
    found: list[Story] = []
    title, goes_on = file.stem, False
    for match in FENCE.finditer(text):
        if match["title"]:
            title = match["title"]
        elif match["on"]:
            goes_on = True
        else:
            if not goes_on:
                found.append(Story(f"{file.stem}: {title}", file))
            line = text.count("\n", 0, match.start()) + 1
            found[-1].parts.append((line, match["code"]))
            # The next snippet belongs to a preamble.
            goes_on = bool(match["preamble"])
    return found


STORIES = [story for file in sorted(SPEC.glob("*.md")) for story in stories(file)]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_snippets_run(story, tmp_path, monkeypatch, frameworks):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace = {"__name__": "snippet"}
    for line, code in story.parts:
        # Errors give the line in the document.
        padded = "\n" * line + code
        exec(compile(padded, str(story.file), "exec"), namespace)


def test_every_snippet_of_the_spec_is_tested():
    texts = {file.stem: file.read_text(encoding="utf-8") for file in SPEC.glob("*.md")}
    counts = {name: text.count("\n```python\n") for name, text in texts.items()}
    # All snippets except those of meshes, and those of backends under the heading "Backends".
    assert counts == {"readme": 2, "faq": 9, "training": 5}
    parts = sum(len(story.parts) for story in STORIES)
    assert parts == sum(text.count("\n```python") for text in texts.values())
