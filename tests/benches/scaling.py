"""Plans of a model of GPT-3's size (Brown et al. 2020) on up to 4,096 devices: the table of
`docs/scaling.md`. No device is needed: `python tests/benches/scaling.py`."""

import mithril as ml
from mithril.models import Embedding, Gelu, LayerNorm, Linear, MultiHeadAttention, Sequential

LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH = 96, 12288, 96, 51200, 2048
BATCH = 2048
MESHES = [
    {"data": 1024},
    {"data": 128, "model": 8},
    {"data": 64, "model": 16},
    {"data": 512, "model": 8},
]


def layer() -> ml.Block:
    attention = Sequential([LayerNorm(), MultiHeadAttention(HEADS, is_causal=True)])
    feed_forward = Sequential([LayerNorm(), Linear(4 * WIDTH), Gelu(), Linear(WIDTH)])
    return Sequential([ml.Residual(attention), ml.Residual(feed_forward)])


def gpt() -> ml.Block:
    layers = [layer() for _ in range(LAYERS)]
    ends = [LayerNorm(), Linear(VOCABULARY, use_bias=False)]
    return Sequential([Embedding(VOCABULARY, WIDTH), *layers, *ends])


def main() -> None:
    compiled = ml.compile(
        gpt(),
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
