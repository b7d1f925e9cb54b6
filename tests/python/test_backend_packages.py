"""Entry points of packages that provide backends."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import mithril as ml

MITHRIL = Path(ml.__file__).parents[1]


def package(folder, name, entry, code):
    """Installs a package in a folder: a module, and the metadata of its entry points."""
    (folder / f"{name}.py").write_text(textwrap.dedent(code))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mithril.backends]\n{entry}\n")


GOOD = """
    import sys
    import mithril as ml

    print("imported")

    class FineBackend(ml.Backend):
        kind = "fine"
        module = package = "numpy"
        imports = {"np": "import numpy as np"}

        def from_numpy(self, array):
            return array
"""


def run(folder, code):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": f"{folder}{os.pathsep}{MITHRIL}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_entry_point_is_imported_only_when_it_is_asked_for(tmp_path):
    package(tmp_path, "fine_package", "fine = fine_package:FineBackend", GOOD)
    ran = run(
        tmp_path,
        """
        import sys
        import mithril as ml

        model = ml.Linear(2)
        ml.compile(model, ml.NumpyBackend(), shapes={"input": [1, 3]})
        assert "importlib.metadata" not in sys.modules
        print("fine" in ml.backends.names())
        backend = ml.backends.find("fine")()
        print(backend, ml.FineBackend is type(backend), ml.backends.FineBackend is type(backend))
        print(ml.diff(model, ["fine", "numpy"], shapes={"input": [1, 3]}).agrees)
        """,
    )
    assert ran.stdout.splitlines() == [
        "True",
        "imported",
        "FineBackend(dtype=float32) True True",
        "True",
    ], ran.stderr


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        ("fine = broken:FineBackend", "import nowhere", "No module named 'nowhere'"),
        ("fine = broken:FineBackend", "", "AttributeError: "),
        ("fine = broken:FineBackend", "FineBackend = 3", "3, which is not a subclass"),
        ("other = broken:FineBackend", GOOD, "a class whose `kind` is 'fine'"),
        (
            "fine = broken:FineBackend",
            GOOD.replace('kind = "fine"', 'kind = "fine"\n        spellings = {"exq": "{x}"}'),
            "UsageError: `spellings` names no operation: `exq`",
        ),
    ],
)
def test_errors_of_a_package_name_it(entry, code, message, tmp_path):
    package(tmp_path, "broken", entry, code)
    ran = run(
        tmp_path,
        f"""
        import mithril as ml

        try:
            ml.backends.find({entry.split()[0]!r})
        except ml.BackendError as error:
            print(error)
        # Mithril is not broken by it.
        ml.compile(ml.Linear(2), ml.NumpyBackend(), shapes={{"input": [1, 3]}})
        print("works", ml.backends.names()[-1])
        """,
    )
    name = entry.split()[0]
    assert f"the backend `{name}` of the package `broken` cannot be loaded" in ran.stdout, (
        ran.stderr
    )
    assert message in ran.stdout
    assert "works" in ran.stdout


def test_a_name_of_two_packages_is_refused(tmp_path):
    for name in ("first", "second"):
        package(tmp_path, name, f"fine = {name}:FineBackend", GOOD)
    ran = run(
        tmp_path,
        """
        import mithril as ml

        for find in (lambda: ml.backends.find("fine"), lambda: ml.FineBackend):
            try:
                find()
            except ml.BackendError as error:
                print(error)
        print(ml.backends.names().count("fine"))
        from second import FineBackend
        print(ml.backends.find("fine") is FineBackend, ml.FineBackend is FineBackend)
        """,
    )
    assert ran.stdout.count("several packages provide a backend `fine`\n") == 2, ran.stderr
    for name in ("first", "second"):
        assert f"fine = {name}:FineBackend of the package `{name}`" in ran.stdout
    assert ran.stdout.splitlines()[-3:] == ["1", "imported", "True True"]
