"""Autograd as a backend of Mithril: arrays are NumPy's, and autograd computes gradients. It cannot
trace assignments to elements, so functions of the prelude compute indices of elements."""

from autograd import make_vjp
from autograd.builtins import dict as traced_dict

import mithril as ml


class AutogradBackend(ml.Backend):
    """Runs models as autograd source. Arrays are `numpy.ndarray`."""

    kind, label, module = "autograd", "Autograd", "autograd.numpy"
    base = "numpy"  # the spellings to start from
    imports = {
        "np": "import autograd.numpy as np",
        "numpy": "import numpy",
        "extend": "from autograd import extend",
        "special": "from autograd.scipy import special",
    }
    spellings = {
        **dict.fromkeys(["skew", "grouped_matmul", "grouped_outer", "silu", "sinc", "i0"]),
        **dict.fromkeys(["diagonal", "matrix_power", "scatter_max_along"]),
        **dict.fromkeys(["scatter_min_along", "scatter_mul_along", "fft", "inverse_fft"]),
        **dict.fromkeys(["real_fft", "inverse_real_fft", "conv", "biased_conv"]),
        "broadcast_in_dim": "@full({shape}, {x.number}, dtype={dtype}) if x is number; "
        "_spread({x}, {shape}) if axes is default; _broadcast({x}, {shape}, {axes.tuple})",
        "cast": "_constant({x}).astype({dtype}) if x is float and dtype is integer; "
        "_constant({x}).astype({dtype}) if x is float and dtype is bool; {x}.astype({dtype})",
        "dynamic_update_slice": "_slice_update({x}, "
        "_block({x}, ({starts.number},), {update}.shape), {update})",
        "erf": "special.erf({x}).astype({dtype})",
        "floor_div": "@floor_divide({x}, {y})",
        "pad": "{x} if x is scalar; _pad({x}, {value.number}, {padding})",
        "relu": "@where({x} > 0, {x}, 0)",
        "repeat": "@repeat({x}, {repeats}, axis={axis.front})",
        "reverse": "_flip({x}, {axes})",
        "scatter_add": "_add_at({x}, {updates}, (slice(None),) * {axis.front} + ({indices},))",
        "scatter_add_along": "_add_at({x}, {updates}, _places({indices}, {axis}))",
        "select": "_select({condition}, {yes}, {no})",
        "sigmoid": "special.expit({x}).astype({dtype})",
        "slice_update": "_slice_update({x}, {bounds}, {update})",
        "sort": "{x}[_places(_argsort(_constant({x}), {axis}, {descending}), {axis})]",
        "stop_gradient": "_constant({x})",
        "take": "{x}[{indices}] if axis == 0; _take({x}, {indices}, {axis})",
        "take_along": "{x}[_places({indices}, {axis})]",
        "transpose": "@transpose({x}, numpy.arange({x}.ndim)[[{permutation.args}]])",
    }
    lacks = ("bfloat16", "int4", "uint4", "float8_e4m3fn", "float8_e5m2")

    prelude = """
        _constant = extend.notrace_primitive(lambda x: x)

        def _take(x, indices, axis):
            return x[(slice(None),) * (axis % x.ndim) + (indices,)]

        def _numbers(x):
            return numpy.arange(x.size).reshape(x.shape)

        def _gather(x, more, index):
            return np.concatenate([np.ravel(x), np.ravel(more)])[index]

        def _slice_update(x, slices, update):
            index = _numbers(x)
            index[slices] = x.size + _numbers(update)
            return _gather(x, update, index)

        def _pad(x, value, padding):
            ends = [n + max(n - 1, 0) * by for n, (_, _, by) in zip(x.shape, padding)]
            shape = [max(n + low + high, 0) for n, (low, high, _) in zip(ends, padding)]
            at = [numpy.arange(n) * (by + 1) + low for n, (low, _, by) in zip(x.shape, padding)]
            kept = [(own >= 0) & (own < n) for own, n in zip(at, shape)]
            index = numpy.full(shape, x.size)
            index[numpy.ix_(*map(numpy.compress, kept, at))] = _numbers(x)[numpy.ix_(*kept)]
            return _gather(x, np.reshape(value, (1,)).astype(x.dtype), index)

        def _windows(x, axes, sizes, strides=None, dilations=None):
            ones, axes = (1,) * len(sizes), [axis % x.ndim for axis in axes]
            for axis, n, step, by in zip(axes, sizes, strides or ones, dilations or ones):
                starts = numpy.arange(0, x.shape[axis] - by * (n - 1), step)
                x = _take(x, starts[:, None] + by * numpy.arange(n), axis)
                x = np.moveaxis(x, axis + 1, -1)
            return x

        def _spread(x, shape):
            return x if type(x) in (int, float) else x * numpy.ones(shape, x.dtype)

        def _select(condition, yes, no):
            shape = np.broadcast_shapes(*map(np.shape, (condition, yes, no)))
            return np.where(condition, _spread(yes, shape), _spread(no, shape))

        def _solve(a, b):
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            a, b = (_spread(x, batch + x.shape[-2:]) for x in (a, b))
            return _each_matrix(np.linalg.solve, numpy.full(b.shape, np.nan, b.dtype), a, b)

        def _triangular_solve(a, b, lower, transposed=False, unit_diagonal=False):
            a, one = np.tril(a) if lower else np.triu(a), numpy.eye(a.shape[-1], dtype=a.dtype)
            a = a * (1 - one) + one if unit_diagonal else a
            return _solve(np.swapaxes(a, -2, -1) if transposed else a, b)

        _flip = np.flip
        extend.defvjp(_flip, lambda y, x, axis: lambda gradient: np.flip(gradient, axis))

        def _added(x, updates, index):
            y = numpy.array(x)
            numpy.add.at(y, index, updates)
            return y

        _add_at = extend.primitive(_added)
        extend.defvjp(_add_at, lambda y, *_: lambda g: g, lambda y, x, u, at: lambda g: g[at])
    """

    def from_numpy(self, array):
        return array

    def vjp(self, function, params):
        pullback, results = make_vjp(lambda params: traced_dict(function(params)))(params)
        return results, pullback
