"""A sample of the public interface for a type checker. It is checked, but never run."""

from typing import Any

from typing_extensions import assert_type

import mithril as ml
from mithril.models import Add, Concat, Linear, Model, Relu, Sequential, SquaredError

assert_type(ml.__version__, str)


class Network(Model):
    """A subclass of Model, built with operators and called."""

    def __init__(self, width: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self |= Linear(dimension=width)(input="input", output="hidden")
        self += Relu()
        self += Linear(1, use_bias=False, name="last")(output="output")


network = Network(8, name="net")
assert_type(network, Network)
assert_type(network(input="x", output="y"), ml.Block)
assert_type(network.hidden, ml.Connection)
assert_type(2 - network.hidden @ network.hidden * 1.5, ml.Connection)
assert_type(network.summary({"input": ["batch", 4, None]}, depth=2), str)

model = Model()
model |= network(input="x", output="y")
model |= Add()(left="y", right=ml.IOKey("z", shape=[None, 1], dtype=ml.float32), output="sum")
model += Concat(axis=-1)(inputs=["y", model.sum])
model += Sequential([Relu(), Linear(2)])
assert_type(model, Model)
assert_type(Model.from_json(model.to_json()), Model)

training = ml.TrainModel(model)
training.add_loss(SquaredError(), coef=0.5, input="output")

compiled = ml.compile(
    training,
    ml.NumpyBackend(dtype=ml.float64),
    shapes={"x": ["batch", 4], "z": [None, 1]},
    constant_keys={"z": 1.0},
    math="fast",
)
assert_type(compiled, ml.CompiledModel)
assert_type(compiled.code, str)
assert_type(compiled.randomize_params(seed=1), dict[str, Any])

mesh = ml.JaxBackend(device_mesh={"data": 2, "model": 2})
mesh.ones(4, 4, device_mesh=(2, 1), tensor_split=(0, None))
mesh.randn([4, 4], tensor_split={"model": 1})
mesh.ones(4, tensor_split="data")  # type: ignore[arg-type]

model |= 3  # type: ignore[arg-type]
Linear(dimension="8")  # type: ignore[arg-type]
Linear(dimenson=8)  # type: ignore[call-arg]
Model("net")  # type: ignore[call-arg]
ml.compile(model, math="quick")  # type: ignore[arg-type]
ml.compile(model, maths="fast")  # type: ignore[call-arg]
ml.IOKey("z", shapes=[1])  # type: ignore[call-arg]
training.add_loss(SquaredError(), factor=0.5)  # type: ignore[call-arg]
