"""Programs in C around generated files, and the compilers and options to build them with.

`MITHRIL_TESTS=all` tests each program in every build. Otherwise each is tested in the builds that
the docs recommend, and in a sample of the others, drawn by the seed `MITHRIL_SEED` (default 0).
"""

import os
import random
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

import pytest

STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
SANITIZED = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
LEVELS = ["-O0", "-O2", "-O3"]
ALL = os.environ.get("MITHRIL_TESTS") == "all"
SEED = os.environ.get("MITHRIL_SEED", "0")
# The number of other builds in a sample.
SAMPLE = 2


@dataclass(frozen=True)
class Build:
    """A compiler, its options, and the command that runs its programs, if one is needed."""

    compiler: str
    options: tuple[str, ...]
    emulator: tuple[str, ...] = ()

    def __str__(self):
        return " ".join([self.compiler, *self.options])


def found_compilers():
    """The compilers for this machine. One that has several names is listed once."""
    versions = {}
    for name in ["gcc", *(f"gcc-{n}" for n in range(11, 17)), "clang"]:
        if shutil.which(name):
            done = subprocess.run([name, "--version"], capture_output=True, text=True, check=True)
            # The first word of the version is the compiler's name.
            versions.setdefault(done.stdout.partition(" ")[2], name)
    return list(versions.values()) or ["cc"]


def has_sanitizers(compiler):
    """Whether the sanitizers of a compiler are installed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, *SANITIZED, "-x", "c", "-", "-o", f"{folder}/main"]
        program = b"int main(void) { return 0; }"
        done = subprocess.run(command, input=program, capture_output=True, check=False)
        return done.returncode == 0


COMPILERS = found_compilers()
CHECKED = [name for name in COMPILERS if has_sanitizers(name)]
# A cross compiler for arm64, and the emulator that runs its programs.
CROSS, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
HAS_CROSS = bool(shutil.which(CROSS) and shutil.which(EMULATOR))
PLAIN = [
    *(
        Build(name, (level, *machine))
        for name in COMPILERS
        for level in LEVELS
        for machine in [(), ("-march=native",)]
    ),
    *(
        Build(CROSS, ("-static", level, *machine), (EMULATOR,))
        for level in LEVELS
        for machine in [(), ("-march=armv8.2-a",)]
        if HAS_CROSS
    ),
]
# The builds that the docs recommend, and those that detect undefined behaviour.
ALWAYS = [
    *(Build(name, ("-O3", "-march=native")) for name in COMPILERS[:1]),
    *(Build(name, tuple(SANITIZED)) for name in CHECKED),
]


def builds(name, *, checked=True):
    """The builds to test a program in; with `checked`, those with sanitizers as well."""
    always = [build for build in ALWAYS if checked or "-g" not in build.options]
    others = [build for build in PLAIN if build not in always]
    if not ALL:
        chosen = random.Random(f"{SEED} {name}")
        others = chosen.sample(others, min(SAMPLE, len(others)))
    return [*always, *others]


def by_builds(names, *, checked=True):
    """Parametrizes a test by `name` and `build`, for each program and its builds."""
    pairs = [(name, build) for name in names for build in builds(name, checked=checked)]
    ids = [f"{name}-{build}" for name, build in pairs]
    return pytest.mark.parametrize(("name", "build"), pairs, ids=ids)


by_every_compiler = pytest.mark.parametrize("compiler", COMPILERS)
by_checked_compilers = pytest.mark.parametrize("compiler", CHECKED)


def identifier(name):
    return re.sub(r"_+", "_", name.replace(".", "_")).strip("_")


TYPES = {"float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t"}

PROGRAM = """
#include "model.c"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
@BODY@  return 0;
}
"""

# Memory is between guard bytes, except where sanitizers detect more, and is filled with numbers
# that no result has.
FILES = """
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
enum { GUARD = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { GUARD = 0 };
#else
enum { GUARD = 256 };
#endif
#else
enum { GUARD = 256 };
#endif

static void *guarded(size_t bytes, int filled) {
  size_t all = (bytes + 2 * GUARD + 64) / 64 * 64;
  unsigned char *memory = aligned_alloc(64, all);
  if (memory == NULL) exit(5);
  memset(memory, 0xA5, all);
  memset(memory + GUARD, filled, bytes);
  return memory + GUARD;
}

static void release(void *memory, size_t bytes) {
  unsigned char *start = memory;
  for (ptrdiff_t i = 0; i < GUARD; i++) {
    if (start[(ptrdiff_t)bytes + i] != 0xA5 || start[-1 - i] != 0xA5) exit(4);
  }
  free(start - GUARD);
}

static void *load(const char *name, size_t bytes) {
  void *memory = malloc(bytes);
  FILE *file = fopen(name, "rb");
  if (file == NULL || fread(memory, 1, bytes, file) != bytes) exit(2);
  fclose(file);
  return memory;
}

static void save(const char *name, const void *memory, size_t bytes) {
  FILE *file = fopen(name, "wb");
  if (file == NULL || fwrite(memory, 1, bytes, file) != bytes) exit(3);
  fclose(file);
}
"""


def fields(prefix, names):
    """An initializer of a struct of pointers, each to the variable with the field's name."""
    pairs = (f".{identifier(name)} = {prefix}_{identifier(name)}" for name in names)
    return "{" + ", ".join(pairs) + "}"


def call(function, dims, inputs, params, outputs, *, gradients, folder):
    """C code that loads arrays, calls a function and saves the results."""
    lines, free, args = [], [], [str(size) for size in dims]
    for name, array in {**inputs, **params}.items():
        key = identifier(name)
        array.tofile(folder / f"{key}.in")
        own = f"const {TYPES[array.dtype.name]} *in_{key}"
        lines.append(f'{own} = load("{key}.in", {array.nbytes});')
        free.append(f"free((void *)in_{key});")
    args += [f"in_{identifier(name)}" for name in inputs]
    if params:
        lines.append(f"const mithril_model_params params = {fields('in', params)};")
        args.append("&params")
    for name, array in {**outputs, **gradients}.items():
        key = identifier(name)
        lines.append(f"{TYPES[array.dtype.name]} *out_{key} = guarded({array.nbytes}, 0xFB);")
        free.append(f'save("{key}.out", out_{key}, {array.nbytes});')
        free.append(f"release(out_{key}, {array.nbytes});")
    args += [f"out_{identifier(name)}" for name in outputs]
    if gradients:
        written = fields("out", gradients)
        lines.append(f"const mithril_model_param_gradients gradients = {written};")
        args.append("&gradients")
    numbers = ", ".join(map(str, dims))
    lines.append(f"const size_t bytes = {function}_workspace_bytes({numbers});")
    lines.append("void *workspace = guarded(bytes, 0xFF);")
    lines.append(f"if ({function}({', '.join([*args, 'workspace'])}) != MITHRIL_OK) return 1;")
    free.append("release(workspace, bytes);")
    return "".join(f"    {line}\n" for line in [*lines, *free])


def run(build, folder, body, *options, before=""):
    """Compiles and runs a program in the folder, which includes the folder's `model.c`."""
    program = folder / "main.c"
    text = PROGRAM.replace("@BODY@", body).replace("\nint main", f"{before}\nint main")
    if "load(" in body:
        text = text.replace("\nint main", f"{FILES}\nint main")
    program.write_text(text)
    options = [*STRICT, *build.options, *options]
    subprocess.run([build.compiler, *options, program, "-o", folder / "main", "-lm"], check=True)
    subprocess.run([*build.emulator, folder / "main"], cwd=folder, check=True)
