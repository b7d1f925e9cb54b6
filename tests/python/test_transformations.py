"""Transformations and optimizers of the frameworks around `evaluate`: their gradients are those of
`output_gradients`, or the call is refused."""

import numpy as np
import pytest
from conftest import MAKERS

import mithril as ml
from mithril.models import Add, BatchNorm1d, Linear, Model

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def forked():
    """A model one of whose two branches runs elsewhere."""
    model = Model()
    model |= Linear(4, name="a")(input="x", output="h")
    model |= Linear(4, name="b")(input="h", output="inner")
    model |= Linear(4, name="c")(input="x", output="k")
    model |= Add()(left="inner", right="k", output="y")
    return model


def normed():
    model = Model()
    model += Linear(4)(input="x")
    model += BatchNorm1d()
    model += Linear(3)(output="y")
    return model


def across(kind, **options):
    """A compiled model that crosses to NumPy and back, its params, and its gradients."""
    pytest.importorskip({"mlx": "mlx.core"}.get(kind, kind))
    backend = getattr(ml, MAKERS[kind])(**options)
    compiled = ml.compile(
        forked(), backend, shapes={"x": ["n", 4]}, backend_map={"b": ml.NumpyBackend()}
    )
    params = compiled.randomize_params(seed=0)
    seed = {"y": backend.ones(5, 4)}
    gradients = compiled.evaluate_gradients(params, {"x": backend.array(X)}, seed)
    return backend, compiled, params, {n: backend.to_numpy(g) for n, g in gradients.items()}


def near(got, want):
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_autograd_passes_through_parts_on_other_backends():
    torch = pytest.importorskip("torch")
    backend, compiled, params, want = across("torch", requires_grad=True)
    x = backend.array(X)
    compiled.evaluate(params, {"x": x})["y"].sum().backward()
    near({name: p.grad.numpy() for name, p in params.items()}, want)
    with torch.no_grad():
        assert not compiled.evaluate(params, {"x": x})["y"].requires_grad
    frozen = {name: p.detach() for name, p in params.items()}
    one = frozen | {"b.w": params["b.w"]}
    (found,) = torch.autograd.grad(compiled.evaluate(one, {"x": x})["y"].sum(), one["b.w"])
    near({"b.w": found.numpy()}, {"b.w": want["b.w"]})


def test_autograd_passes_through_states_on_other_backends():
    torch = pytest.importorskip("torch")
    place = {"batch_norm1d": ml.NumpyBackend()}
    answers = []
    for backend_map in ({}, place):
        compiled = ml.compile(
            normed(),
            ml.TorchBackend(requires_grad=True),
            shapes={"x": ["n", 4]},
            backend_map=backend_map,
        )
        params = compiled.randomize_params(seed=0)
        for _ in range(2):
            (compiled.evaluate(params, {"x": torch.tensor(X)})["y"] ** 2).sum().backward()
        answers.append({n: p.grad.numpy() for n, p in params.items()} | compiled.state)
    near(*answers)


def test_mlx_differentiates_parts_on_other_backends():
    mx = pytest.importorskip("mlx.core")
    _, compiled, params, want = across("mlx")

    def total(params, x):
        return compiled.evaluate(params, {"x": x})["y"].sum()

    near(mx.grad(total)(params, mx.array(X)), want)
    # Nobody computes the gradients of inputs, so they are not 0.
    assert np.isnan(np.array(mx.grad(total, 1)(params, mx.array(X)))).all()


def test_transformations_that_parts_do_not_take_are_refused():
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    backend, compiled, params, _ = across("jax")
    with pytest.raises(ml.MithrilError, match="JAX cannot transform a model whose parts") as error:
        jax.grad(lambda p: compiled.evaluate(p, {"x": backend.array(X)})["y"].sum())(params)
    assert "got: NumpyBackend(dtype=float32)\n  hint: give `output_gradients`" in str(error.value)
    _, compiled, params, _ = across("torch")
    x = torch.tensor(X)
    with pytest.raises(ml.MithrilError, match=r"`torch\.func` cannot transform a model"):
        torch.func.grad(lambda p: compiled.evaluate(p, {"x": x})["y"].sum())(params)
    with pytest.raises(ml.MithrilError, match="gradients of inputs do not pass to parts"):
        compiled.evaluate(params, {"x": x.requires_grad_()})


def traced_calls():
    def of_jax(call):
        jax = pytest.importorskip("jax")
        return [jax.grad(call), jax.jit(call)]

    def of_torch(call):
        torch = pytest.importorskip("torch")
        return [torch.func.grad(call)]

    def of_mlx(call):
        mx = pytest.importorskip("mlx.core")
        return [mx.compile(call)]

    def of_tinygrad(call):
        tinygrad = pytest.importorskip("tinygrad")
        jitted = tinygrad.TinyJit(call)

        def twice(params):
            jitted(params)
            jitted(params)

        return [twice]

    return {"jax": of_jax, "torch": of_torch, "mlx": of_mlx, "tinygrad": of_tinygrad}


@pytest.mark.parametrize("kind", traced_calls())
def test_a_traced_call_leaves_the_state_alone(kind):
    pytest.importorskip({"mlx": "mlx.core"}.get(kind, kind))
    backend = getattr(ml, MAKERS[kind])()
    compiled = ml.compile(normed(), backend, shapes={"x": ["n", 4]})
    params, x = compiled.randomize_params(seed=0), backend.array(X)
    inputs = {"x": x}

    def call(params):
        return compiled.evaluate(params, inputs)["y"].sum()

    for transformed in traced_calls()[kind](call):
        with pytest.raises(ml.MithrilError, match="a traced call cannot change the state") as error:
            transformed(params)
        assert "`outputs, state = compiled.evaluate(params, inputs, state)`" in str(error.value)
    compiled.evaluate(params, inputs)
    want = backend.to_numpy(compiled.state["batch_norm1d.running_mean"])
    assert np.isfinite(want).all()
    # The state may be an argument and a result of the traced call.
    state = compiled.initial_state()

    def explicit(params):
        outputs, following = compiled.evaluate(params, inputs, state)
        return outputs["y"].sum() + 0 * following["batch_norm1d.running_mean"].sum()

    if kind != "tinygrad":
        for transformed in traced_calls()[kind](explicit):
            transformed(params)


def test_memory_is_counted_inside_transformations():
    torch = pytest.importorskip("torch")
    backend = ml.TorchBackend()
    amounts = []

    def total(x):
        amounts.append(backend.get_memory_stats()["allocated"])
        return (x * x).sum()

    torch.func.grad(total)(torch.tensor(X))
    assert amounts[0] >= X.nbytes


def test_states_require_no_gradients():
    torch = pytest.importorskip("torch")
    compiled = ml.compile(normed(), ml.TorchBackend(requires_grad=True), shapes={"x": ["n", 4]})
    params = compiled.randomize_params(seed=0)
    for _ in range(2):
        compiled.evaluate(params, {"x": torch.tensor(X)})["y"].sum().backward()
        assert not any(v.requires_grad for v in compiled.state.values())
    assert all(p.grad is not None for p in params.values())


@pytest.mark.parametrize("devices", [{}, {"a.w": "cpu:0"}])
def test_params_on_other_devices_are_leaves(devices):
    torch = pytest.importorskip("torch")
    model = Model()
    model += Linear(4, name="a")(input="x")
    model += Linear(3, name="b", device="cpu:0")(output="y")
    compiled = ml.compile(
        model, ml.TorchBackend(requires_grad=True), shapes={"x": ["n", 4]}, devices=devices
    )
    params = compiled.randomize_params(seed=0)
    optimizer = torch.optim.SGD(params.values(), lr=0.1)
    compiled.evaluate(params, {"x": torch.tensor(X)})["y"].sum().backward()
    optimizer.step()
    assert all(p.is_leaf and p.grad is not None for p in params.values())


def test_jax_transforms_models_on_several_devices():
    jax = pytest.importorskip("jax")
    model = Model()
    model += Linear(4)(input="x")
    model += Linear(3, device="cpu:0")(output="y")
    compiled = ml.compile(model, ml.JaxBackend(), shapes={"x": ["n", 4]})
    params, x = compiled.randomize_params(seed=0), jax.numpy.asarray(X)

    def call(params, x):
        return compiled.evaluate(params, {"x": x})["y"]

    want = call(params, x)
    np.testing.assert_allclose(jax.jit(call)(params, x), want, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(call, (None, 0))(params, x[None])[0], want, rtol=1e-6)
    found = jax.grad(lambda p: call(p, x).sum())(params)
    near(found, compiled.evaluate_gradients(params, {"x": x}, {"y": jax.numpy.ones((5, 3))}))


@pytest.mark.parametrize("make", [lambda: Linear(3)(input="x", output="y"), normed])
def test_tinygrads_optimizers_train(make):
    torch, tinygrad = pytest.importorskip("torch"), pytest.importorskip("tinygrad")
    optim, helpers = tinygrad.nn.optim, pytest.importorskip("tinygrad.helpers")
    model = Model()
    model |= make() if make is not normed else normed()(x="x", y="y")
    own, other = (
        ml.compile(model, backend, shapes={"x": ["n", 4]})
        for backend in (ml.TinygradBackend(), ml.TorchBackend(requires_grad=True))
    )
    params, theirs = own.randomize_params(seed=0), other.randomize_params(seed=0)
    optimizer, reference = (
        optim.SGD([*params.values()], lr=0.1),
        torch.optim.SGD(theirs.values(), lr=0.1),
    )
    with helpers.Context(TRAINING=1):
        for _ in range(3):
            optimizer.zero_grad()
            loss = (own.evaluate(params, {"x": tinygrad.Tensor(X)})["y"] ** 2).mean().backward()
            loss.realize(*optimizer.schedule_step())
            reference.zero_grad()
            want = (other.evaluate(theirs, {"x": torch.tensor(X)})["y"] ** 2).mean()
            want.backward()
            reference.step()
            assert loss.item() == pytest.approx(want.item(), rel=1e-5)
    near({n: p.numpy() for n, p in params.items()}, {n: p.detach() for n, p in theirs.items()})
    near({n: s.numpy() for n, s in own.state.items()}, other.state)
