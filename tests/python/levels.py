"""Selects the tests that run for a processor level.

Native code is compiled for MITHRIL_CPU in the whole run. If that is the machine's own processor,
every test runs, but of a test with many cases only a sample. At another level only the tests of
native code run: of a sample half of them, each at one of the lower levels, with fewer cases.
MITHRIL_SEED is the seed of the samples.

If MITHRIL_TESTS is `all`, every case runs. That takes hours, so MITHRIL_SHARD divides the cases:
with `2/4` the second quarter of them runs.
"""

import os
import re
import zlib
from collections import defaultdict
from functools import cache
from pathlib import Path

from mithril import _core

# A sample has all cases of a test with at most FEW, and otherwise one in PART.
FEW, PART = 1, 40
# The same for the machine's own level.
MANY, SHARE = 2, 100
SEED = os.environ.get("MITHRIL_SEED") or "0"
ALL = os.environ.get("MITHRIL_TESTS") == "all"
SHARD, SHARDS = map(int, (os.environ.get("MITHRIL_SHARD") or "1/1").split("/"))
LEVELS = _core.processors()
LEVEL = _core.processor()
# Whether code is compiled for another processor than the machine's own.
OTHER = LEVEL not in ("native", *LEVELS[-1:])
# Matches files whose tests compile native code or C.
NATIVE = re.compile(
    r"\b(CpuBackend|CBackend|INSTALLED|CLASSES|WITHOUT_C|fuzz|c_programs|def test_\w+\(.*backend)\b"
)
FRAMEWORKS = re.compile("numpy|torch|jax|mlx|tinygrad", re.IGNORECASE)
# Matches the names of files and tests that are about a framework, which no level changes.
OTHERS = re.compile("jax|mlx|tinygrad", re.IGNORECASE)
# The cases of tinygrad, which compiles a kernel for each few operations: a sample has one of each
# of its own tests, and of one in SLOW of the others.
TINYGRAD = re.compile(r"(::\w*|[\[-])tinygrad", re.IGNORECASE)
SLOW = 16
if ALL:
    # tinygrad takes most of the time of all tests, and half of that to optimize kernels.
    os.environ.setdefault("NOOPT", "1")


def header() -> str:
    level = LEVEL if LEVEL != "native" else f"{LEVELS[-1]} (native)" if LEVELS else "none"
    every = f"every case of shard {SHARD}/{SHARDS}" if SHARDS > 1 else "every case"
    sample = "a sample" if OTHER else "a sample of tests with many cases"
    tests = every if ALL else f"{sample}, {seed()}"
    return f"native code for {level}, {tests}; levels: {', '.join(LEVELS)}"


def seed() -> str:
    return f"MITHRIL_SEED={SEED}"


@cache
def has_native(file: Path) -> bool:
    return NATIVE.search(file.read_text()) is not None


def is_native(item) -> bool:
    """Whether a test depends on the level, judging by its file, its name and its parameters."""
    if OTHERS.search(item.path.name) or OTHERS.search(item.originalname):
        return False
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = [x if isinstance(x, str) else getattr(x, "__name__", type(x).__name__) for x in given]
    return has_native(item.path) and not any(FRAMEWORKS.search(name) for name in names)


def chosen(items: list) -> list:
    """The selected tests, in their order."""
    own = [item for item in items if is_native(item)] if OTHER else items
    if ALL:
        return [item for item in own if zlib.crc32(item.nodeid.encode()) % SHARDS == SHARD - 1]
    if OTHER:
        own = [item for item in own if is_of_level(item.nodeid.partition("[")[0])]
    least, part = (FEW, PART) if OTHER else (MANY, SHARE)
    cases, slow, kept = defaultdict(list), defaultdict(list), set()
    for item in own:
        if not OTHER and item.get_closest_marker("every"):
            kept.add(item.nodeid)
            continue
        name = item.nodeid.partition("[")[0]
        (slow if TINYGRAD.search(item.nodeid) else cases)[name].append(item.nodeid)
    few = {
        name: ids for name, ids in slow.items() if "tinygrad" in name or number(name) % SLOW == 0
    }
    kept |= drawn(cases, least, part) | drawn(few, 1, 50)
    return [item for item in own if item.nodeid in kept]


def half(names: list, at: int) -> list:
    """All names, or in a sample every other one; those of `at` 0 and of 1 are different."""
    return names if ALL else names[(int(SEED) + at) % 2 :: 2]


def is_of_level(name: str) -> bool:
    """Whether a test runs at this one of the lower levels. Half of the tests run at none."""
    lower = LEVELS[:-1]
    if LEVEL not in lower:
        return True
    return zlib.crc32(f"{SEED} {name}".encode()) % (2 * len(lower)) == lower.index(LEVEL)


def number(name: str) -> int:
    """A random number for a name."""
    return zlib.crc32(f"{SEED} {LEVEL} {name}".encode())


def drawn(cases: dict, least: int, part: int) -> set:
    """A sample of the cases of each test: all if they are at most `least`, else one in `part`."""
    kept = set()
    for own in cases.values():
        own.sort(key=number)
        kept.update(own[: max(least, len(own) // part)])
    return kept
