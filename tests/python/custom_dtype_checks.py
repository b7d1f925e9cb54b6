"""Checks that bodies of custom operations return the declared dtypes on meshes and in pipelines.
`test_custom_dtypes.py` runs them in a process of their own for each framework:
`python custom_dtype_checks.py KIND NAME...`."""

import sys
from functools import partial

import numpy as np
from check_runs import run_checks

import mithril as ml
from mithril.models import Linear, Model, SquaredError

WIDER = {"torch": "return x.bfloat16()", "jax": "return x.astype(jnp.bfloat16)"}
KIND = sys.argv.pop(1)


# The plan of a pipeline reads operations.
MIR = """mithril 1
func @scale(%x: tensor<*b x f32>) -> (y: tensor<*b x f32>) {
  %y = mul(%x, %x)
  return %y
}
"""


def model(at=1):
    blocks = [Linear(4, name="first"), Linear(4, name="second"), Linear(4, name="third")]
    blocks.insert(at, ml.custom(mir=MIR, **{KIND: WIDER[KIND]}))
    model = Model()
    model += blocks[0](input="x")
    model += blocks[1]
    model += blocks[2]
    model += blocks[3](**{"y" if at == 3 else "output": "y"})
    return model


def backend(mesh):
    return {"torch": ml.TorchBackend, "jax": ml.JaxBackend}[KIND](device_mesh=mesh)


def check_refused(call, error=ml.ShapeError, where=""):
    message = ""
    try:
        call()
    except error as found:
        message = str(found)
    lines = "\n".join(line.strip() for line in message.splitlines())
    assert where in lines
    assert "Incompatible dtypes: a custom operation did not return" in lines, message
    assert f"the body of `scale` for {KIND}" in lines
    assert "got: bfloat16 for `y`\nexpected: float32" in lines


def check_mesh():
    own = backend({"data": 2})
    compiled = ml.compile(model(), own, shapes={"x": [4, 4]})
    params = compiled.randomize_params(0)
    x = own.array(np.ones((4, 4), "f4"), tensor_split={"data": 0})
    check_refused(lambda: compiled.evaluate(params, {"x": x}))
    check_refused(lambda: compiled.evaluate_gradients(params, {"x": x}, {"y": own.ones(4, 4)}))


def check_pipeline():
    def run(at):
        own = backend({"stage": 2})
        trained = ml.TrainModel(model(at))
        trained.add_loss(SquaredError(), input="y", target="target")
        compiled = ml.compile(trained, own, shapes={"x": [4, 4], "target": [4, 4]}, stages=2)
        params = compiled.randomize_params(0)
        inputs = {name: own.array(np.ones((4, 4), "f4")) for name in ("x", "target")}
        compiled.evaluate_gradients(params, inputs)

    # JAX traces all stages on one rank. PyTorch tells which rank failed.
    for at, rank in ((1, 0), (3, 1)):
        told = (ml.BackendError, f"got: rank {rank}: ") if KIND == "torch" else ()
        check_refused(partial(run, at), *told)


if __name__ == "__main__":
    run_checks({"mesh": check_mesh, "pipeline": check_pipeline})
