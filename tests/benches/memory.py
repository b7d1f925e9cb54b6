"""The memory that an exported GPT-2 small takes when C runs it.

`python tests/benches/memory.py`. The library is exported with its weights as one file, which a
program of C maps; it runs the model on 128 tokens and prints the peak of what it held in memory,
beside the bytes of the weights.
"""

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from generate import VOCABULARY, gpt

import mithril as ml

TOKENS = 128

PROGRAM = """
#include "gpt.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
  const int file = open(argv[argc - 1], O_RDONLY);
  struct stat about;
  if (file < 0 || fstat(file, &about) != 0) return 10;
  const char *weights = mmap(NULL, about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (weights == MAP_FAILED) return 11;
  const mithril_gpt_params params = {@FIELDS@};
  @DTYPE@ *tokens = malloc(@TOKENS@ * sizeof *tokens);
  for (int i = 0; i < @TOKENS@; i++) tokens[i] = i * 7919 % @VOCABULARY@;
  float *logits = malloc((size_t)@TOKENS@ * @VOCABULARY@ * sizeof *logits);
  const size_t bytes = mithril_gpt_workspace_bytes();
  void *workspace = aligned_alloc(64, (bytes / 64 + 1) * 64);
  const int status = mithril_gpt(tokens, &params, logits, workspace);
  char line[256];
  FILE *own = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, own))
    if (sscanf(line, "VmHWM: %255s", line) == 1) printf("%s %zu %g\\n", line, bytes, logits[0]);
  return status;
}
"""


def main() -> None:
    compiled = ml.compile(gpt(), ml.CpuBackend(), shapes={"input": [1, TOKENS]}, inference=True)
    params = compiled.randomize_params(seed=0)
    weights = sum(array.nbytes for array in params.values())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = compiled.export(folder, name="gpt", params=params)
        meta = json.loads(paths["metadata"].read_text())
        arguments = meta["functions"][0]["arguments"]
        places = meta["weights"]["params"]
        values = {
            "FIELDS": ", ".join(
                f".{a['field']} = (const void *)(weights + {places[a['name']]['offset']})"
                for a in arguments
                if a["role"] == "param"
            ),
            "DTYPE": {"i64": "int64_t", "i32": "int32_t"}[
                next(a["dtype"] for a in arguments if a["role"] == "data")
            ],
            "TOKENS": str(TOKENS),
            "VOCABULARY": str(VOCABULARY),
        }
        text = PROGRAM
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        (folder / "main.c").write_text(text)
        library = paths["library"]
        command = ["cc", "-O2", "main.c", library, f"-Wl,-rpath,{folder}", "-o", "main"]
        subprocess.run(command, cwd=folder, check=True)
        run = subprocess.run(
            [folder / "main", paths["weights"]], capture_output=True, text=True, check=True
        )
        peak, workspace, _ = run.stdout.split()
        tokens = np.arange(TOKENS) * 7919 % VOCABULARY
        logits = compiled.evaluate(params, {"input": tokens[None].astype(np.int64)})["logits"]
        print(f"first logit: {run.stdout.split()[2]} from C, {logits.ravel()[0]:g} from Python")
    peak = int(peak) * 1024
    mb = 1e6
    print(
        f"weights {weights / mb:.1f} MB, workspace {int(workspace) / mb:.1f} MB, logits "
        f"{4 * TOKENS * VOCABULARY / mb:.1f} MB; peak {peak / mb:.1f} MB, "
        f"{(peak - weights) / mb:.1f} MB more than the weights"
    )


if __name__ == "__main__":
    main()
