"""Factorisations for MLX, with their gradients."""
# ruff: noqa: F821 — some names are those of the other files.

import mlx.core as mx


def _transposed(x):
    """Matrices with their rows and columns swapped."""
    return mx.swapaxes(x, -2, -1)


def _cholesky(x):
    """The Cholesky factor; NaN where x is not positive definite."""
    if x.size == 0:
        return x
    x_ = mx.stop_gradient(x)
    factor = mx.tril(mx.linalg.cholesky(x_, stream=mx.cpu))
    # LAPACK leaves the pivot at which it fails.
    right = mx.all(mx.diagonal(factor, axis1=-2, axis2=-1) > 0, axis=-1)
    factor = mx.where(
        right[..., None, None], factor, mx.tril(mx.full(x.shape, mx.nan, dtype=x.dtype))
    )

    def backward(x, gradient):
        factor = _cholesky(x)
        inner = mx.tril(_transposed(factor) @ gradient)
        eye = mx.eye(x.shape[-1], dtype=x.dtype)
        inner = inner - inner * eye / 2
        half = _triangular_solve(factor, inner + _transposed(inner), True, True)
        return _transposed(_triangular_solve(factor, _transposed(half), True, True)) / 2

    return _with_gradient(factor, x, backward)


def _triangular_solve(a, b, lower, transposed=False, unit_diagonal=False):
    """The solution of a @ x = b, of a triangle of a; NaN if its diagonal has a 0."""
    batch = mx.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if a.size == 0 or b.size == 0:
        return mx.zeros((*batch, *b.shape[-2:]), dtype=b.dtype)
    a = mx.tril(a) if lower else mx.triu(a)
    eye = mx.eye(a.shape[-1], dtype=a.dtype)
    if unit_diagonal:
        a = a * (1 - eye) + eye
    if transposed:
        a, lower = _transposed(a), not lower

    def substitute(a, b):
        # MLX raises an error for a 0 on the diagonal.
        zero = (a == 0) & (eye == 1)
        a, b = mx.where(zero, 1, a), mx.broadcast_to(b, (*batch, *b.shape[-2:]))
        a = mx.broadcast_to(a, (*batch, *a.shape[-2:]))
        x = mx.linalg.solve_triangular(a, b, upper=not lower, stream=mx.cpu)
        return mx.where(mx.any(zero, axis=(-2, -1), keepdims=True), mx.nan, x)

    def backward(operands, gradient, x):
        a, b = operands
        of_b = _triangular_solve(_transposed(a), gradient, not lower)
        of_a = -of_b @ _transposed(x)
        of_a = mx.tril(of_a) if lower else mx.triu(of_a)
        return _sum_to(of_a, a.shape), _sum_to(of_b, b.shape)

    solve = mx.custom_function(substitute)
    solve.vjp(backward)
    return solve(a, b)


def _solve(a, b):
    """The solution of a @ x = b by elimination; NaN where a is singular."""
    batch = mx.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if a.size == 0 or b.size == 0:
        return mx.zeros((*batch, *b.shape[-2:]), dtype=b.dtype)

    def eliminate(a, b):
        rows, lower, upper = mx.linalg.lu(a, stream=mx.cpu)
        order = mx.expand_dims(mx.argsort(rows, axis=-1), -1)
        b = mx.broadcast_to(b, (*batch, *b.shape[-2:]))
        order = mx.broadcast_to(order, b.shape)
        y = _triangular_solve(lower, mx.take_along_axis(b, order, axis=-2), True)
        return _triangular_solve(upper, y, False)

    def backward(operands, gradient, x):
        a, b = operands
        of_b = _solve(_transposed(a), gradient)
        return _sum_to(-of_b @ _transposed(x), a.shape), _sum_to(of_b, b.shape)

    solve = mx.custom_function(eliminate)
    solve.vjp(backward)
    return solve(a, b)


def _inverse_of_transpose(x):
    """The inverse of each matrix, transposed."""
    return _transposed(_solve(x, mx.eye(x.shape[-1], dtype=x.dtype)))


def _det(x):
    """The determinant of each matrix."""
    sign, pivots = _pivots(x)

    def backward(x, gradient):
        return (gradient * _det(x))[..., None, None] * _inverse_of_transpose(x)

    return _with_gradient(sign * mx.prod(pivots, axis=-1), x, backward)


def _slogdet(x):
    """The sign of the determinant, and the logarithm of its magnitude."""
    sign, pivots = _pivots(x)
    sign = sign * mx.prod(_sign(pivots), axis=-1)

    def backward(x, gradient):
        return gradient[..., None, None] * _inverse_of_transpose(x)

    log = mx.sum(mx.log(mx.abs(pivots)), axis=-1)
    return sign, _with_gradient(log, x, backward)


def _pivots(x):
    """The sign of the order of rows of an elimination, and its pivots."""
    if x.size == 0:
        return mx.ones(x.shape[:-2], dtype=x.dtype), mx.ones(
            x.shape[:-1], dtype=x.dtype
        )
    rows, _, upper = mx.linalg.lu(mx.stop_gradient(x), stream=mx.cpu)
    inversions = mx.triu(rows[..., :, None] > rows[..., None, :], 1)
    odd = mx.sum(inversions, axis=(-2, -1)) % 2
    return (1 - 2 * odd).astype(x.dtype), mx.diagonal(upper, axis1=-2, axis2=-1)


def _qr(x):
    """The factors q and r of x."""
    rows, count = x.shape[-2:]
    size = min(rows, count)
    if x.size == 0:
        q = mx.broadcast_to(mx.eye(rows, size, dtype=x.dtype), (*x.shape[:-1], size))
        return q, mx.zeros((*x.shape[:-2], size, count), dtype=x.dtype)
    q, r = mx.linalg.qr(mx.stop_gradient(x), stream=mx.cpu)

    def whole(first, rest):
        return mx.concatenate([first, rest], axis=-1) if count > size else first

    def of_q(x, gradient):
        q, r = _qr(x)
        inner = -_transposed(q) @ gradient
        first = _of_square(q, r[..., :size], inner, gradient)
        return whole(first, mx.zeros_like(x[..., size:]))

    def of_r(x, gradient):
        q, r = _qr(x)
        behind = gradient[..., size:]
        own = x[..., size:] @ _transposed(behind) if count > size else mx.zeros_like(q)
        inner = gradient[..., :size] @ _transposed(r[..., :size]) - _transposed(q) @ own
        return whole(_of_square(q, r[..., :size], inner, own), q @ behind)

    return _with_gradient(q, x, of_q), _with_gradient(r, x, of_r)


def _of_square(q, r, inner, of_q):
    """`(of_q + q s) r⁻ᵀ`: s is symmetric with the upper triangle of `inner`."""
    symmetric = mx.triu(inner) + _transposed(mx.triu(inner, 1))
    total = of_q + q @ symmetric
    return _transposed(_triangular_solve(r, _transposed(total), False))


def _gaps(values):
    """Differences of values, and ones on the diagonal."""
    differences = values[..., None, :] - values[..., :, None]
    return differences + mx.eye(values.shape[-1], dtype=values.dtype)


def _finite(x):
    """Which matrices are finite, and x with zeros in place of the others.

    LAPACK fails for the others, or gives numbers that vary.
    """
    own = mx.stop_gradient(x)
    finite = mx.all(mx.isfinite(own), axis=(-2, -1), keepdims=True)
    return finite, mx.where(finite, own, 0)


def _eigh(x):
    """The eigenvalues in ascending order, and the eigenvectors in columns."""
    if x.size == 0:
        return mx.zeros(x.shape[:-1], dtype=x.dtype), x
    finite, own = _finite(mx.tril(x))
    values, vectors = mx.linalg.eigh(own, "L", stream=mx.cpu)
    values = mx.where(finite[..., 0], values, mx.nan)
    vectors = mx.where(finite, vectors, mx.nan)

    def of_values(x, gradient):
        vectors = _eigh(x)[1]
        return vectors * gradient[..., None, :] @ _transposed(vectors)

    def of_vectors(x, gradient):
        values, vectors = _eigh(x)
        inner = _transposed(vectors) @ gradient
        inner = (inner - _transposed(inner)) / 2 / _gaps(values)
        return vectors @ inner @ _transposed(vectors)

    values = _with_gradient(values, x, of_values)
    return values, _with_gradient(vectors, x, of_vectors)


def _svd(x):
    """The left singular vectors, the singular values, and the right ones in rows."""
    rows, count = x.shape[-2:]
    size = min(rows, count)
    if x.size == 0:
        left = mx.broadcast_to(mx.eye(rows, size, dtype=x.dtype), (*x.shape[:-1], size))
        right = mx.eye(size, count, dtype=x.dtype)
        right = mx.broadcast_to(right, (*x.shape[:-2], size, count))
        return left, mx.zeros((*x.shape[:-2], size), dtype=x.dtype), right
    finite, own = _finite(x)
    u, s, vh = mx.linalg.svd(own, stream=mx.cpu)
    u = mx.where(finite, u[..., :size], mx.nan)
    s = mx.where(finite[..., 0], s, mx.nan)
    vh = mx.where(finite, vh[..., :size, :], mx.nan)

    def of_u(x, gradient):
        u, s, vh = _svd(x)
        inner = _transposed(u) @ gradient
        inner = (inner - _transposed(inner)) / _gaps(s * s) * s[..., None, :]
        own = u @ inner @ vh
        if rows == size:
            return own
        rest = gradient - u @ (_transposed(u) @ gradient)
        return own + rest / s[..., None, :] @ vh

    def of_s(x, gradient):
        u, _, vh = _svd(x)
        return u * gradient[..., None, :] @ vh

    def of_vh(x, gradient):
        u, s, vh = _svd(x)
        inner = vh @ _transposed(gradient)
        inner = (inner - _transposed(inner)) / _gaps(s * s) * s[..., :, None]
        own = u @ inner @ vh
        if count == size:
            return own
        rest = gradient - gradient @ _transposed(vh) @ vh
        return own + u / s[..., None, :] @ rest

    pairs = zip((u, s, vh), (of_u, of_s, of_vh))
    return tuple(_with_gradient(part, x, backward) for part, backward in pairs)
