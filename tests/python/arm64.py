"""Libraries for arm64, called by C programs that an emulator runs."""

import subprocess
from pathlib import Path

from c_programs import CROSS, EMULATOR, FILES, STRICT
from exported import Library, place, size
from library import BYTES

PROGRAM = """
#include "@HEADER@"
#include <stdio.h>
#include <stdlib.h>
@FILES@
int main(void) {
@BODY@}
"""


def length(array, dims):
    total = BYTES.get(array["dtype"], 1)
    for dim in array["shape"]:
        total *= size(dim, dims)
    return max(0, total)


class Arm64Library(Library):
    """An exported model for arm64. Each call runs a C program that uses the model's header."""

    def ask(self, own, dims, arrays):
        program, folder = self._build(own, dims, arrays), self.folder
        ran = self.run(program)
        assert ran.returncode == 0, (ran.returncode, ran.stderr)
        results = {
            place(array): (folder / f"r{at}.out").read_bytes().hex()
            for at, array in enumerate(own["results"])
        }
        return int(ran.stdout), results

    def _build(self, own, dims, arrays):
        """Compiles a program that loads the arguments, calls the function and saves the results."""
        variables, head, tail = {}, [], []
        for at, array in enumerate(own["arguments"]):
            data = self._argument(array, arrays)
            if data is None:
                variables[place(array)] = "NULL"
                continue
            (self.folder / f"a{at}.in").write_bytes(data)
            variables[place(array)] = f"a{at}"
            head.append(f'void *a{at} = load("a{at}.in", {len(data)});')
            tail.append(f"free(a{at});")
        for at, array in enumerate(own["results"]):
            bytes_ = length(array, dims)
            variables[place(array)] = f"r{at}"
            head.append(f"void *r{at} = guarded({bytes_}, 0xFB);")
            tail += [f'save("r{at}.out", r{at}, {bytes_});', f"release(r{at}, {bytes_});"]
        passed = []
        for parameter in own["parameters"]:
            kind, name = parameter["kind"], parameter["name"]
            if kind == "struct":
                of = parameter["type"]
                fields = (f".{f} = {variables[f'{of}.{f}']}" for f in parameter["fields"])
                head.append(f"const {of} {name} = {{{', '.join(fields)}}};")
                passed.append(f"&{name}")
            elif kind == "dim":
                symbol = next(d["name"] for d in own["dims"] if d["parameter"] == name)
                passed.append(str(dims[symbol]))
            else:
                passed.append(variables.get(name, name))
        sizes = ", ".join(str(dims[d["name"]]) for d in own["dims"])
        head.append(f"const size_t bytes = {own['workspace_bytes']}({sizes});")
        head.append("void *workspace = guarded(bytes, 0xFF);")
        head.append(f'printf("%d\\n", {own["name"]}({", ".join(passed)}));')
        tail += ["release(workspace, bytes);", "return 0;"]
        body = "".join(f"  {line}\n" for line in [*head, *tail])
        text = PROGRAM.replace("@BODY@", body).replace("@FILES@", FILES)
        return self.compile(text.replace("@HEADER@", self.paths["header"].name))

    def run(self, program):
        # The loader and the C library of the cross compiler.
        found = subprocess.check_output([CROSS, "-print-file-name=libc.so.6"], text=True)
        command = [EMULATOR, "-L", Path(found.strip()).resolve().parents[1], program]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=120
        )

    def compile(self, text, *options):
        """Compiles a C program that uses the library, and returns its path."""
        source, library = self.folder / "main.c", self.paths["library"]
        source.write_text(text)
        use = [f"-I{library.parent}", source, library, f"-Wl,-rpath,{library.parent}"]
        program = source.with_suffix("")
        subprocess.run([CROSS, *STRICT, "-O1", *options, *use, "-o", program], check=True)
        return program

    def _argument(self, array, arrays):
        """The bytes of an argument: those given, or those in the file of weights."""
        if place(array) in arrays:
            return bytes.fromhex(arrays[place(array)])
        if array["role"] != "param":
            return None
        weights = self.meta["weights"]
        own = weights["params"][array["name"]]
        data = (self.paths["library"].parent / weights["file"]).read_bytes()
        return data[own["offset"] : own["offset"] + own["bytes"]]
