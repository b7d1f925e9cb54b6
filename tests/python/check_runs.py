"""Runs checks of meshes by their names, says which cases a sample has, and requires errors."""

import os
import sys
import traceback

# All layouts of a small model, and 200 random ones of others, if every case is tested.
EVERY = (1, 200) if os.environ.get("MITHRIL_TESTS") == "all" else None
SEED = int(os.environ.get("MITHRIL_SEED") or 0)


def run_checks(checks):
    """Runs the checks that the command line names, one after the other, so that they share the
    start of a process and its ranks. All that fail are told."""
    failed = []
    assert sys.argv[1:], f"expected: some of {', '.join(checks)}"
    for name in sys.argv[1:]:
        try:
            checks[name]()
        except Exception:
            print(f"{name}:", file=sys.stderr)
            traceback.print_exc()
            failed.append(name)
        jax = sys.modules.get("jax")
        if jax is not None:
            jax.config.update("jax_enable_x64", False)
    if failed:
        sys.exit(f"checks that failed: {', '.join(failed)}")


def some(cases, part):
    """All cases, or in a sample one in `part`, the first of which depends on the seed."""
    return cases if EVERY else cases[SEED % part :: part]


def wrong(error, call, *parts):
    """Requires an error of exactly this type, whose message has these parts."""
    try:
        call()
    except error as raised:
        assert type(raised) is error
        for part in parts:
            assert part in str(raised), (part, str(raised))
    else:
        raise AssertionError(f"no error: {parts}")
