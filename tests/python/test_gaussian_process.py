"""Regression with Gaussian processes compared with scikit-learn, and its gradients with PyTorch, on
every backend, with fixed and open dims."""

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import mithril as ml

RNG = np.random.default_rng(3)
L = torch.linalg
SIZES = [(7, 4, 2), (1, 1, 1), (20, 9, 3)]


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def compiled(backend, x, samples, label, named):
    block = ml.GaussianProcessRegression(ml.RBFKernel())
    arrays = {"input": x, "samples": samples, "label": label}
    names = {"input": ["m", "d"], "samples": ["n", "d"], "label": ["n", "t"][: label.ndim]}
    shapes = names if named else {n: list(a.shape) for n, a in arrays.items()}
    model = ml.compile(block, backend, shapes=shapes)
    inputs = {n: backend.array(a) for n, a in arrays.items()}
    return model, inputs


def params_of(model, l_scale, sigma, noise):
    own = {"l_scale": l_scale, "sigma": sigma, "noise": noise}
    return {n: np.float32(own[n.rsplit(".", 1)[-1]]) for n in model.params}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("targets", [None, 1, 3])
@pytest.mark.parametrize("size", SIZES)
def test_predictions_are_those_of_scikit_learn(size, targets, named, backend):
    n, m, features = size
    samples, x = numbers(n, features), numbers(m, features)
    label = numbers(n) if targets is None else numbers(n, targets)
    model, inputs = compiled(backend, x, samples, label, named)
    params = params_of(model, 1.25, 0.75, 0.5)
    outputs = model.evaluate({k: backend.array(v) for k, v in params.items()}, inputs)
    got = {k: np.asarray(backend.to_numpy(v)) for k, v in outputs.items()}
    kernel = ConstantKernel(0.75**2) * RBF(1.25)
    other = GaussianProcessRegressor(kernel, alpha=0.25, optimizer=None)
    other.fit(samples.astype(np.float64), label.astype(np.float64))
    mean, deviation = other.predict(x.astype(np.float64), return_std=True)
    np.testing.assert_allclose(got["output"], mean.reshape(got["output"].shape), 1e-4, 1e-5)
    assert got["output"].shape == (m, *label.shape[1:])
    variance = deviation**2 if deviation.ndim == 1 else deviation[:, 0] ** 2
    np.testing.assert_allclose(got["variance"], variance, 1e-4, 1e-5)
    np.testing.assert_allclose(got["loss"], -other.log_marginal_likelihood_value_, 1e-4)


def torch_loss(samples, label, l_scale, sigma, noise):
    squares = ((samples[:, None] - samples) ** 2).sum(-1)
    kernel = sigma**2 * torch.exp(-squares / (2 * l_scale**2))
    covariance = kernel + noise**2 * torch.eye(len(samples))
    own = torch.distributions.MultivariateNormal(torch.zeros(len(samples)), covariance)
    return -own.log_prob(label)


def test_gradients_of_the_loss_are_those_of_torch(backend):
    samples, x, label = numbers(9, 2), numbers(3, 2), numbers(9)
    model, inputs = compiled(backend, x, samples, label, False)
    params = params_of(model, 1.25, 0.75, 0.5)
    given = {k: backend.array(v) for k, v in params.items()}
    seeds = {"output": np.zeros(3), "variance": np.zeros(3), "loss": np.ones(())}
    seeds = {k: backend.array(v.astype(np.float32)) for k, v in seeds.items()}
    gradients = model.evaluate_gradients(given, inputs, seeds)
    leaves = {k: torch.tensor(v, requires_grad=True) for k, v in params.items()}
    own = {k.rsplit(".", 1)[-1]: v for k, v in leaves.items()}
    torch_loss(torch.tensor(samples), torch.tensor(label), **own).backward()
    for k, leaf in leaves.items():
        np.testing.assert_allclose(backend.to_numpy(gradients[k]), leaf.grad, 2e-4, 1e-5)


@pytest.mark.parametrize("shape", [(6,), (6, 2), (0,), (1,)])
def test_the_loss_is_the_likelihood_of_a_normal_distribution(shape, backend):
    n = shape[0]
    x = numbers(n, n)
    covariance = (x @ x.T + np.eye(n)).astype(np.float32)
    label = numbers(*shape)
    model = ml.compile(
        ml.GaussianProcessLoss(),
        backend,
        shapes={"input": [n, n], "target": list(shape)},
        trainable_keys=["input", "target"],
    )
    params = {"input": backend.array(covariance), "target": backend.array(label)}
    outputs = model.evaluate(params, {})
    leaf = torch.tensor(label, requires_grad=True)
    rows = leaf[None] if leaf.ndim == 1 else leaf.T
    matrix = torch.tensor(covariance, requires_grad=True)
    want = torch.zeros(())
    if n:
        own = torch.distributions.MultivariateNormal(torch.zeros(n), matrix)
        want = -own.log_prob(rows).sum()
    np.testing.assert_allclose(backend.to_numpy(outputs["output"]), want.detach(), 1e-5, 1e-6)
    if not n:
        return
    want.backward()
    seed = {"output": backend.array(np.float32(1))}
    gradients = model.evaluate_gradients(params, {}, seed)
    np.testing.assert_allclose(backend.to_numpy(gradients["target"]), leaf.grad, 2e-4, 1e-5)
    np.testing.assert_allclose(backend.to_numpy(gradients["input"]), matrix.grad, 2e-4, 1e-5)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"input": [3, 4], "target": [3]}, "differ"),
        ({"input": [3, 3], "target": [4]}, "differ"),
        ({"input": [3, 3], "target": [3, 1, 1]}, "have other axes"),
        ({"input": [3, 3], "target": []}, "have other axes"),
    ],
)
def test_mistakes_are_told(shapes, message):
    with pytest.raises(ml.MithrilError, match=message):
        ml.compile(ml.GaussianProcessLoss(), ml.NumpyBackend(), shapes=shapes)
