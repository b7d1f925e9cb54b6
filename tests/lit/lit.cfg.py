"""How the `.mir` tests run: `mithril-opt` and `mithril` from .venv/bin, checked by FileCheck."""

import os
import shutil

import lit.formats

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
commands = lit_config.params.get("bin", os.path.join(root, ".venv", "bin"))  # noqa: F821

config = config  # noqa: F821, PLW0127
config.name = "mithril"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mir"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(root, "target", "lit")
config.environment["PATH"] = os.pathsep.join([commands, os.environ["PATH"]])
# What the tests compile is nobody else's.
config.environment["MITHRIL_CACHE"] = os.path.join(config.test_exec_root, "cache")
# Nor are costs those of the machine they run on.
config.environment["MITHRIL_PROFILE"] = ""

# LLVM's FileCheck where it is installed; the Python package reads the same checks, more slowly.
config.substitutions.append((r"\bFileCheck\b", shutil.which("FileCheck-22") or "filecheck"))

# What needs the code generator, which is built where LLVM is.
if os.path.exists(os.path.join(commands, "..", "lib", "libmithril_native.so")):
    config.available_features.add("native")
