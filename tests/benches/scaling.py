"""Plans of a model of GPT-3's size (Brown et al. 2020) on up to 4,096 devices: the table of
`docs/scaling.md`. No device is needed. `PYTHONPATH` has `tests/python`."""

from scale_models import gpt

import mithril as ml

LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH = 96, 12288, 96, 51200, 2048
BATCH = 2048
MESHES = [
    {"data": 1024},
    {"data": 128, "model": 8},
    {"data": 64, "model": 16},
    {"data": 512, "model": 8},
]


def main() -> None:
    compiled = ml.compile(
        gpt(LAYERS, WIDTH, HEADS, VOCABULARY),
        ml.NumpyBackend(dtype=ml.bfloat16),
        shapes={"input": [BATCH, LENGTH]},
        gradient_checkpointing=True,
    )
    print("| mesh | step | arithmetic | transfer | memory of a device |")
    print("|---|---|---|---|---|")
    for mesh in MESHES:
        plan = compiled.propose_shardings(mesh, machine="2x8xH100", memory="80GB")
        whole = plan.blocks[0]
        axes = " x ".join(f"{size} {name}" for name, size in mesh.items())
        times = " | ".join(
            f"{time:.3g} s" for time in (plan.seconds, whole.compute, whole.transfer)
        )
        print(f"| {axes} | {times} | {plan.memory / 1e9:.0f} GB |", flush=True)


if __name__ == "__main__":
    main()
