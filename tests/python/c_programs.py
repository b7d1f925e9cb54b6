"""Programs in C around generated files: by which compilers, and how they are called."""

import re
import shutil
import subprocess
import tempfile

import pytest

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)] or ["cc"]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
SANITIZED = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def has_sanitizers(compiler):
    """Whether a compiler is there, and its sanitizers with it."""
    if shutil.which(compiler) is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, *SANITIZED, "-x", "c", "-", "-o", f"{folder}/main"]
        program = b"int main(void) { return 0; }"
        done = subprocess.run(command, input=program, capture_output=True, check=False)
        return done.returncode == 0


CHECKED = [name for name in COMPILERS if has_sanitizers(name)]
by_every_compiler = pytest.mark.parametrize("compiler", COMPILERS)
by_checked_compilers = pytest.mark.parametrize("compiler", CHECKED)
by_every_build = pytest.mark.parametrize(
    ("compiler", "options"),
    [
        *(pytest.param(name, ["-O3", "-march=native"], id=f"{name}-fast") for name in COMPILERS),
        *(pytest.param(name, SANITIZED, id=f"{name}-checked") for name in CHECKED),
    ],
)


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

FILES = """
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
    """The value of a struct of pointers, each to the variable of its name."""
    pairs = (f".{identifier(name)} = {prefix}_{identifier(name)}" for name in names)
    return "{" + ", ".join(pairs) + "}"


def call(function, dims, inputs, params, outputs, *, gradients, folder):
    """C that loads arrays, calls a function and saves what it gives."""
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
        lines.append(f"{TYPES[array.dtype.name]} *out_{key} = malloc({array.nbytes});")
        free.append(f'save("{key}.out", out_{key}, {array.nbytes});')
        free.append(f"free(out_{key});")
    args += [f"out_{identifier(name)}" for name in outputs]
    if gradients:
        written = fields("out", gradients)
        lines.append(f"const mithril_model_param_gradients gradients = {written};")
        args.append("&gradients")
    numbers = ", ".join(map(str, dims))
    lines.append(f"const size_t bytes = {function}_workspace_bytes({numbers});")
    lines.append("void *workspace = aligned_alloc(64, (bytes / 64 + 1) * 64);")
    lines.append(f"if ({function}({', '.join([*args, 'workspace'])}) != MITHRIL_OK) return 1;")
    free.append("free(workspace);")
    return "".join(f"    {line}\n" for line in [*lines, *free])


def run(compiler, folder, body, *options, before=""):
    program = folder / "main.c"
    text = PROGRAM.replace("@BODY@", body).replace("\nint main", f"{before}\nint main")
    if "load(" in body:
        text = text.replace("\nint main", f"{FILES}\nint main")
    program.write_text(text)
    command = [compiler, *STRICT, *options, program, "-o", folder / "main", "-lm"]
    subprocess.run(command, check=True)
    subprocess.run([folder / "main"], cwd=folder, check=True)
