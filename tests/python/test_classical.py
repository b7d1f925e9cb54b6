"""Classical models compared with scikit-learn: formulas, fitted models, and models that are trained
here to its scores."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import squareform
from sklearn import datasets, manifold, svm
from sklearn.linear_model import LinearRegression
from sklearn.linear_model import LogisticRegression as Fitted
from sklearn.manifold import _t_sne
from sklearn.metrics import pairwise
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import mithril as ml

RNG = np.random.default_rng(8)
X = RNG.standard_normal((7, 3)).astype(np.float32)
Y = RNG.standard_normal((4, 3)).astype(np.float32)


def results(
    block: Any,
    backend: Any,
    params: dict[str, Any],
    inputs: dict[str, Any],
    open_dims: bool = False,
) -> Any:
    """The outputs, and the gradients of the sum of the first by all floats."""
    every = {**params, **inputs}
    model = ml.Model()
    model |= block(**{n: n for n in every}, **{o: o for o in block.outputs})
    dims = {
        n: [
            f"n{d}" if open_dims and n in inputs and i < a.ndim - 1 else d
            for i, d in enumerate(a.shape)
        ]
        for n, a in every.items()
    }
    compiled = ml.compile(model, backend, shapes=dims, trainable_keys=list(every))
    given = {n: backend.array(a) for n, a in every.items()}
    outputs = compiled.evaluate(given, {})
    first = block.outputs[0]
    seed = {first: backend.array(np.ones(outputs[first].shape, np.float32))}
    _, gradients = compiled.evaluate(given, {}, output_gradients=seed)
    to = lambda found: {n: np.asarray(backend.to_numpy(a)) for n, a in found.items()}  # noqa: E731
    return to(outputs), to(gradients)


def by_torch(function: Any, *arrays: Any) -> Any:
    """A function of tensors, and the gradients of its sum."""
    leaves = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
    y = function(*leaves)
    y.sum().backward()
    return y.detach().numpy(), [leaf.grad.numpy() for leaf in leaves]


def near(got: Any, want: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("open_dims", [False, True])
def test_rbf_kernel(open_dims, backend):
    length, sigma = np.float32(1.5), np.float32(0.7)
    outputs, gradients = results(
        ml.RBFKernel(),
        backend,
        {"l_scale": length, "sigma": sigma},
        {"input1": X, "input2": Y},
        open_dims,
    )
    near(outputs["output"], sigma**2 * pairwise.rbf_kernel(X, Y, gamma=1 / (2 * length**2)))
    _, want = by_torch(
        lambda width, s, x, y: s**2 * torch.exp(-(torch.cdist(x, y) ** 2) / (2 * width**2)),
        length,
        sigma,
        X,
        Y,
    )
    for name, gradient in zip(("l_scale", "sigma", "input1", "input2"), want, strict=True):
        near(gradients[name], gradient)


@pytest.mark.parametrize("degree", [1, 3])
def test_polynomial_kernel(degree, backend):
    outputs, gradients = results(
        ml.PolynomialKernel(degree),
        backend,
        {"poly_coef": np.float32(0.5)},
        {"input1": X, "input2": Y},
    )
    near(outputs["output"], pairwise.polynomial_kernel(X, Y, degree, gamma=1, coef0=0.5), 1e-4)
    _, want = by_torch(lambda c, x, y: (x @ y.T + c) ** degree, np.float32(0.5), X, Y)
    for name, gradient in zip(("poly_coef", "input1", "input2"), want, strict=True):
        near(gradients[name], gradient, 2e-4)


@pytest.mark.parametrize("open_dims", [False, True])
def test_distances(open_dims, backend):
    inputs = {"left": X, "right": X[:4]}
    outputs, gradients = results(ml.DistanceMatrix(), backend, {}, inputs, open_dims)
    near(outputs["output"], pairwise.euclidean_distances(X, X[:4]), 1e-5)
    # Distances of 0 have a gradient of 0, as in torch.
    _, want = by_torch(torch.cdist, X, X[:4])
    near(gradients["left"], want[0])
    near(gradients["right"], want[1])
    outputs, _ = results(ml.DistanceMatrix(get_final_distance=False), backend, {}, inputs)
    near(outputs["output"], pairwise.euclidean_distances(X, X[:4], squared=True), 1e-5)
    outputs, _ = results(ml.CartesianDifference(), backend, {}, inputs, open_dims)
    near(outputs["output"], X[:, None] - X[None, :4])


@pytest.mark.parametrize("norm", [1.0, 2.5, 6.0, -1.0])
def test_distances_of_learned_norms(norm, backend):
    params, inputs = {"norm": np.float32(norm)}, {"input1": X, "input2": Y}
    outputs, gradients = results(ml.EncoderDistanceMatrix(), backend, params, inputs)
    order = 5 - abs((norm - 1) % 8 - 4)
    near(outputs["output"], pairwise.pairwise_distances(X, Y, "minkowski", p=order), 1e-5)

    def distances(n: Any, x: Any, y: Any) -> Any:
        p = 5 - torch.abs((n - 1) % 8 - 4)
        return ((x[:, None] - y[None]).abs() ** p).sum(-1) ** (1 / p)

    _, want = by_torch(distances, params["norm"], X, Y)
    for name, gradient in zip(("norm", "input1", "input2"), want, strict=True):
        # The slope of the order changes its sign at the ends of its range.
        if (name, norm) != ("norm", 1.0):
            near(gradients[name], gradient, 1e-4)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("degree", [1, 2, 4])
def test_polynomial_features(degree, bias, backend):
    block = ml.PolynomialFeatures(degree, include_bias=bias)
    outputs, gradients = results(block, backend, {}, {"input": X}, open_dims=True)
    own = PolynomialFeatures(degree, include_bias=bias).fit(X)
    want = own.transform(X)
    assert outputs["output"].shape == want.shape
    near(outputs["output"], want, 1e-4)
    step = 1e-5
    for feature in range(X.shape[1]):
        by = step * np.eye(3)[feature]
        slope = own.transform(X + by) - own.transform(X - by)
        near(gradients["input"][:, feature], slope.sum(1) / (2 * step), 1e-3)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_polynomial_features_of_an_open_width(degree, bias, backend):
    """The values and gradients are those of a known width, for several widths."""
    block = ml.PolynomialFeatures(degree, include_bias=bias)
    opened = ml.compile(block, backend, shapes={"input": ["n", "d"]}, trainable_keys=["input"])
    rng = np.random.default_rng(4)
    for width in (1, 2, 3, 6):
        x = rng.uniform(-1, 1, (4, width)).astype(np.float32)
        params = {"input": backend.array(x)}
        own = PolynomialFeatures(degree, include_bias=bias).fit_transform(x)
        seeds = {"output": backend.array(rng.uniform(-1, 1, own.shape).astype(np.float32))}
        outputs, gradients = opened.evaluate(params, {}, output_gradients=seeds)
        near(backend.to_numpy(outputs["output"]), own, 1e-5)
        shapes = {"input": [4, width]}
        fixed = ml.compile(block, backend, shapes=shapes, trainable_keys=["input"])
        want = backend.to_numpy(fixed.evaluate_gradients(params, {}, seeds)["input"])
        near(backend.to_numpy(gradients["input"]), want, 1e-5)
    model = ml.PolynomialRegression(degree)
    compiled = ml.compile(model, backend, shapes={"input": ["n", "d"]}, inference=True)
    weights = compiled.randomize_params()
    x = rng.uniform(-1, 1, (4, 3)).astype(np.float32)
    outputs = compiled.evaluate(weights, {"input": backend.array(x)})
    w, b = (backend.to_numpy(weights[f"linear.{n}"]) for n in "wb")
    own = PolynomialFeatures(degree, include_bias=False).fit_transform(x)
    near(backend.to_numpy(outputs["output"]), own @ w + b, 1e-5)


def test_decision_function_of_a_support_vector_machine(backend):
    data, target = datasets.load_iris(return_X_y=True)
    data, target = data[:100, :2].astype(np.float32), target[:100]
    fitted = svm.SVC(gamma=0.5, C=2).fit(data, target)
    w, b = fitted.dual_coef_.T.astype(np.float32), fitted.intercept_.astype(np.float32)
    model = ml.Model()
    model |= ml.KernelizedSVM(ml.RBFKernel(), name="svm")(
        input1="input1", input2="input2", output="output"
    )
    vectors = fitted.support_vectors_.astype(np.float32)
    shapes = {"input1": ["n", 2], "input2": list(vectors.shape)}
    compiled = ml.compile(model, backend, shapes=shapes, inference=True)
    ends = {"l_scale": np.float32(1), "sigma": np.float32(1), "w": w, "b": b}
    params = {n: backend.array(ends[n.rsplit(".", 1)[-1]]) for n in compiled.params}
    inputs = {"input1": backend.array(data), "input2": backend.array(vectors)}
    got = backend.to_numpy(compiled.evaluate(params, inputs)["output"])
    near(got[:, 0], fitted.decision_function(data), 1e-4)


def descend(compiled: Any, params: Any, inputs: Any, *, rate: float, steps: int, cost: str) -> Any:
    """Gradient descent with momentum."""
    pace = {n: np.zeros_like(a) for n, a in params.items()}
    ones = np.ones((), next(iter(params.values())).dtype)
    for _ in range(steps):
        _, gradients = compiled.evaluate(params, inputs, output_gradients={cost: ones})
        for name, gradient in gradients.items():
            pace[name] = 0.9 * pace[name] - rate * gradient
            params[name] = (params[name] + pace[name]).astype(ones.dtype)
    return params


def trained(block: Any, loss: Any, x: Any, y: Any, *, decay: float, rate: float, steps: int) -> Any:
    """A function that evaluates the trained model, and its params, from 0."""
    backend = ml.CpuBackend(dtype=ml.float64)
    model = ml.Model()
    model |= block(input="input", output="output")
    training = ml.TrainModel(model)
    training.add_loss(loss, input="output", target="target", reduce_steps=[ml.Mean()])
    if decay:
        training.add_regularization(ml.L2(), decay, input=re.compile(".*w$"))
    shapes = {"input": list(x.shape), "target": list(y.shape)}
    compiled = ml.compile(training, backend, shapes=shapes)
    params = {n: np.zeros_like(a) for n, a in compiled.randomize_params(seed=3).items()}
    inputs = {"input": x, "target": y}
    params = descend(compiled, params, inputs, rate=rate, steps=steps, cost="final_cost")
    alone = ml.compile(block, backend, shapes={"input": list(x.shape)}, inference=True)

    def evaluate(params: Any, x: Any) -> Any:
        own = {n: params[n.rsplit(".", 1)[-1]] for n in alone.params}
        return alone.evaluate(own, {"input": x})

    return evaluate, {n.rsplit(".", 1)[-1]: a for n, a in params.items()}


def scaled(data: Any) -> Any:
    return StandardScaler().fit_transform(data)


def test_logistic_regression_of_iris():
    """Trained here, it has the coefficients of scikit-learn."""
    data, target = datasets.load_iris(return_X_y=True)
    x, y = scaled(data[50:]), (target[50:] == 2).astype(np.float64)[:, None]
    fitted = Fitted(C=1.0, tol=1e-8, max_iter=1000).fit(x, y[:, 0])
    # Its cost is a sum over the samples, and does not regularize the intercept.
    compiled, params = trained(
        ml.LogisticRegression(),
        ml.BinaryCrossEntropy(),
        x,
        y,
        decay=1 / len(x),
        rate=0.1,
        steps=3000,
    )
    near(params["w"][:, 0], fitted.coef_[0], 1e-3)
    near(params["b"], fitted.intercept_, 1e-3)
    outputs = compiled(params, x)
    near(outputs["probs_output"][:, 0], fitted.predict_proba(x)[:, 1], 1e-3)
    score = ((outputs["output"][:, 0] > 0) == y[:, 0]).mean()
    assert score == fitted.score(x, y[:, 0])


def test_linear_support_vector_machine_of_digits():
    """Trained here with squared hinges, it has the score of scikit-learn."""
    data, target = datasets.load_digits(return_X_y=True)
    kept = target < 2
    x, y = data[kept] / 16, np.where(target[kept] == 1, 1.0, -1.0)[:, None]
    fitted = svm.LinearSVC(C=1.0, loss="squared_hinge", intercept_scaling=1e3, max_iter=100_000)
    fitted.fit(x, y[:, 0])
    compiled, params = trained(
        ml.LinearSVM(), ml.QuadHingeLoss(), x, y, decay=1 / len(x), rate=0.05, steps=2000
    )
    outputs = compiled(params, x)
    near(outputs["output"][:, 0], fitted.decision_function(x), 5e-2)
    np.testing.assert_array_equal(outputs["decision_output"][:, 0], fitted.predict(x))


def test_polynomial_regression_of_diabetes():
    data, target = datasets.load_diabetes(return_X_y=True)
    x, y = scaled(data[:, 2:4]), ((target - target.mean()) / target.std())[:, None]
    features = PolynomialFeatures(2, include_bias=False).fit_transform(x)
    fitted = LinearRegression().fit(features, y)
    compiled, params = trained(
        ml.PolynomialRegression(2), ml.SquaredError(), x, y, decay=0.0, rate=0.02, steps=3000
    )
    near(params["w"], fitted.coef_.T, 1e-4)
    near(compiled(params, x)["output"], fitted.predict(features), 1e-4)


def matrix(points: Any) -> Any:
    return pairwise.euclidean_distances(points).astype(np.float32)


@pytest.mark.parametrize("open_dims", [False, True])
def test_stress(open_dims, backend):
    """Its value follows from scikit-learn's raw stress at the embedding that this finds; gradients
    are torch's."""
    own = manifold.MDS(
        2,
        metric="precomputed",
        init="random",
        normalized_stress=False,
        n_init=1,
        random_state=0,
        eps=1e-13,
        max_iter=20_000,
    )
    given = pairwise.euclidean_distances(X.astype(np.float64))
    points = own.fit(given).embedding_
    # It sums each pair once.
    want_stress = np.sqrt(2 * own.stress_ / (given**2).sum())
    inputs = {"distances": given.astype(np.float32), "pred_distances": matrix(points)}
    outputs, gradients = results(ml.MDSCore(), backend, {}, inputs, open_dims)
    near(outputs["output"], want_stress, 1e-4)
    _, want = by_torch(lambda d, p: ((d - p) ** 2).sum().div((d**2).sum()).sqrt(), *inputs.values())
    near(gradients["distances"], want[0])
    near(gradients["pred_distances"], want[1])
    coords = points.astype(np.float32)
    for block, name, source in (
        (ml.MDS(2), "distances", given.astype(np.float32)),
        (ml.MDS(2, input_type="points"), "input", X),
    ):
        outputs, gradients = results(block, backend, {"coords": coords}, {name: source}, open_dims)
        near(outputs["output"], want_stress, 1e-4)
        near(outputs["predicted_coords"], coords)
        _, want = by_torch(
            lambda c, d: ((d - torch.cdist(c, c)) ** 2).sum().div((d**2).sum()).sqrt(),
            coords,
            given,
        )
        near(gradients["coords"], want[0], 1e-4)


def divergence(points: Any, perplexity: float, embedded: Any) -> Any:
    """scikit-learn's divergence and its gradient."""
    squares = pairwise.euclidean_distances(points, squared=True).astype(np.float32)
    joint = _t_sne._joint_probabilities(squares, perplexity, 0)
    flat = embedded.astype(np.float64).ravel()
    freedom = max(embedded.shape[1] - 1, 1)
    value, slope = _t_sne._kl_divergence(flat, joint, freedom, *embedded.shape)
    return squareform(joint), value, slope.reshape(embedded.shape)


IRIS = datasets.load_iris().data[::5].astype(np.float32)


@pytest.mark.parametrize("open_dims", [False, True])
@pytest.mark.parametrize("perplexity", [2.0, 10.0])
def test_divergence_of_neighbours(perplexity, open_dims, backend):
    coords = RNG.standard_normal((len(IRIS), 2)).astype(np.float32)
    joint, value, slope = divergence(IRIS, perplexity, coords)
    params = {"coords": coords}
    for block, name, source in (
        (ml.TSNE(2, perplexity=perplexity), "distances", matrix(IRIS)),
        (ml.TSNE(2, input_type="points", perplexity=perplexity), "input", IRIS),
        (ml.TSNE(2, calculate_p_joint=False), "p_joint", joint.astype(np.float32)),
    ):
        # scikit-learn stops its search of the widths early.
        outputs, gradients = results(block, backend, params, {name: source}, open_dims)
        near(outputs["output"], value, 1e-4)
        near(gradients["coords"], slope, 1e-4)
    inputs = {"distances": matrix(IRIS), "pred_distances": matrix(coords)}
    outputs, _ = results(ml.TSNECore(perplexity), backend, {}, inputs, open_dims)
    near(outputs["output"], value, 1e-4)
    inputs = {"p_joint": joint.astype(np.float32), "pred_distances": matrix(coords)}
    outputs, _ = results(ml.TSNECore(calculate_p_joint=False), backend, {}, inputs, open_dims)
    near(outputs["output"], value, 1e-4)


def test_equal_and_distant_samples(backend):
    """Rows without a width of the wanted entropy are finite."""
    points = np.float32([[0, 0], [0, 0], [0, 0], [1e3, 0], [0, 1e-3]])
    coords = RNG.standard_normal((5, 2)).astype(np.float32)
    for perplexity in (1.5, 30.0):
        block = ml.TSNE(2, input_type="points", perplexity=perplexity)
        outputs, gradients = results(block, backend, {"coords": coords}, {"input": points})
        assert np.isfinite(outputs["output"]) and np.isfinite(gradients["coords"]).all()
        assert outputs["output"] >= 0


def test_embedding_by_gradient_descent():
    """Trained here from scikit-learn's start, it ends at least as near as scikit-learn."""
    start = 1e-2 * np.random.default_rng(0).standard_normal((len(IRIS), 2))
    own = manifold.TSNE(2, perplexity=5, init=start.astype(np.float32), method="exact")
    own.fit(IRIS)
    backend = ml.CpuBackend(dtype=ml.float64)
    block = ml.TSNE(2, input_type="points", perplexity=5)
    compiled = ml.compile(block, backend, shapes={"input": list(IRIS.shape)})
    (name,) = compiled.params
    inputs = {"input": IRIS.astype(np.float64)}
    params = descend(compiled, {name: start}, inputs, rate=10.0, steps=1000, cost="output")
    assert compiled.evaluate(params, inputs)["output"] <= own.kl_divergence_ + 0.05


def test_small_blocks(backend):
    square = RNG.standard_normal((2, 4, 4)).astype(np.float32)
    outputs, gradients = results(ml.TransposedDiagonal(), backend, {}, {"input": square})
    near(outputs["output"], np.diagonal(square, axis1=1, axis2=2)[..., None])
    near(gradients["input"], np.broadcast_to(np.eye(4), (2, 4, 4)))
    compiled = ml.compile(ml.EyeComplement(3), backend)
    near(backend.to_numpy(compiled.evaluate({}, {})["output"]), 1 - np.eye(3))
    x = np.float32([-9, -3.5, 0, 1, 3, 5, 6, 100])
    outputs, _ = results(ml.NormModifier(), backend, {}, {"input": x})
    # The triangle wave by its Fourier-free definition: distances to the nearest 1 modulo 8.
    near(outputs["output"], 1 + np.abs((x - 1) - 8 * np.round((x - 1) / 8)))


@pytest.mark.parametrize(
    ("block", "shapes", "message"),
    [
        (ml.RBFKernel(), {"input1": [3], "input2": [4, 3]}, "samples are rows of a matrix"),
        (ml.PolynomialFeatures(13), {"input": [3, "d"]}, "needs a known last dim"),
        (ml.PolynomialFeatures(20), {"input": [3, 40]}, "has too many"),
        (ml.TSNECore(), {"distances": [3, 3], "pred_distances": [3, 4]}, "of all pairs of samples"),
        (ml.TSNECore(), {"distances": [3], "pred_distances": [3, 3]}, "of all pairs of samples"),
    ],
)
def test_mistakes_are_told(block, shapes, message):
    with pytest.raises(ml.MithrilError, match=message):
        ml.compile(block, ml.NumpyBackend(), shapes=shapes)


def test_a_kernel_without_two_inputs():
    with pytest.raises(ml.MithrilError, match="has no terminal `input1`"):
        ml.KernelizedSVM(ml.Relu())
