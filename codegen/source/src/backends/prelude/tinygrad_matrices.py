"""Factorisations for tinygrad, with their gradients."""
# ruff: noqa: F821 — some names are those of the other files.

import math

from tinygrad import Tensor, dtypes


def _transposed(x):
    """Matrices with their rows and columns swapped."""
    return x.transpose(-2, -1)


def _identity(n, x):
    """The identity matrix of n rows in the dtype of x."""
    return Tensor.eye(n, dtype=x.dtype)


def _scaled(x):
    """Matrices whose squares are in range, and what they were divided by."""
    largest = x.abs().max((-2, -1), keepdim=True)
    far = (largest > 1e15) | (largest < 1e-15)
    far = far & largest.ne(0) & (largest < math.inf)
    scale = far.where(largest, 1).contiguous()
    return (x / scale).contiguous(), scale


def _cholesky(x):
    """The Cholesky factor; NaN where x is not positive definite."""

    def columns(x):
        n = x.shape[-1]
        rows = Tensor.arange(n).unsqueeze(1)
        factor = x.const_like(0).contiguous()
        for i in range(n):
            own = factor[..., i : i + 1, :]
            column = x[..., :, i : i + 1] - (factor * own).sum(-1, keepdim=True)
            column = column.contiguous()
            pivot = column[..., i : i + 1, :]
            column = column / (pivot > 0).where(pivot, math.nan).sqrt()
            at = Tensor.arange(n).eq(i)
            factor = (at & (rows >= i)).where(column, factor).contiguous()
        nan = _isnan(factor).any((-2, -1), keepdim=True)
        return nan.where(x.const_like(math.nan).tril(), factor)

    def backward(x, factor, gradient):
        inner = (_transposed(factor) @ gradient).tril()
        inner = inner - inner * _identity(x.shape[-1], x) / 2
        half = _triangular_solve(factor, inner + _transposed(inner), True, True)
        return _transposed(_triangular_solve(factor, _transposed(half), True, True)) / 2

    return _custom_gradient(columns, backward, x) if x.numel() else x


def _batch(a, b):
    """a and b with equal axes before those of the matrices."""
    rank = max(a.ndim, b.ndim)
    a = a.reshape((1,) * (rank - a.ndim) + a.shape)
    b = b.reshape((1,) * (rank - b.ndim) + b.shape)
    pairs = zip(a.shape[:-2], b.shape[:-2])
    batch = tuple(n if m == 1 else m for m, n in pairs)
    return a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])


def _triangular_solve(a, b, lower, transposed=False, unit_diagonal=False):
    """The solution of a @ x = b, of a triangle of a; NaN if its diagonal has a 0."""
    a, b = _batch(a, b)
    if a.numel() == 0 or b.numel() == 0:
        return b
    a = a.tril() if lower else a.triu()
    n = a.shape[-1]
    if unit_diagonal:
        a = _unit(a)
    if transposed:
        a, lower = _transposed(a), not lower

    def substitute(a, b):
        a, b = a.contiguous(), b.contiguous()
        pivots = a.diagonal(dim1=-2, dim2=-1)
        zero = pivots.eq(0).any(-1).unsqueeze(-1).unsqueeze(-1)
        x = b.const_like(0).contiguous()
        rows = Tensor.arange(n).unsqueeze(1)
        for i in range(n) if lower else reversed(range(n)):
            own = a[..., i : i + 1, :]
            rest = (b[..., i : i + 1, :] - own @ x) / own[..., i : i + 1]
            x = rows.eq(i).where(rest.contiguous(), x).contiguous()
        return zero.where(math.nan, x)

    def backward(a, b, x, gradient):
        of_b = _triangular_solve(_transposed(a), gradient, not lower)
        of_a = -of_b @ _transposed(x)
        return of_a.tril() if lower else of_a.triu(), of_b

    return _custom_gradient(substitute, backward, a, b)


def _unit(a):
    """a with ones on its diagonal."""
    rows = Tensor.arange(a.shape[-1])
    return rows.unsqueeze(1).eq(rows).where(1, a)


def _eliminate(a, b):
    """The upper triangle of a by elimination with row exchanges, b with the same steps,
    and the sign of the exchanges."""
    n = a.shape[-1]
    rows = Tensor.arange(n).unsqueeze(1)
    both = a.cat(b, dim=-1).contiguous()
    sign = a[..., 0, 0].const_like(1).contiguous()
    for i in range(n):
        column = both[..., :, i : i + 1].abs()
        best = (rows < i).where(-1.0, _isnan(column).where(math.inf, column))
        best = best.argmax(-2).unsqueeze(-1).contiguous()
        first, found = rows.eq(i), rows.eq(best)
        pivot = found.where(both, 0).sum(-2, keepdim=True).contiguous()
        own = both[..., i : i + 1, :]
        both = first.where(pivot, found.where(own, both)).contiguous()
        sign = best.squeeze(-1).squeeze(-1).eq(i).where(sign, -sign).contiguous()
        at = pivot[..., i : i + 1]
        factors = (rows > i).where(both[..., :, i : i + 1] / at.eq(0).where(1, at), 0)
        both = (both - factors * pivot).contiguous()
    return both[..., :n], both[..., n:], sign


def _solve(a, b):
    """The solution of a @ x = b by elimination; NaN where a is singular."""
    a, b = _batch(a, b)
    if a.numel() == 0 or b.numel() == 0:
        return b

    def eliminate(a, b):
        upper, y, _ = _eliminate(a, b)
        return _triangular_solve(upper, y, False)

    def backward(a, b, x, gradient):
        of_b = _solve(_transposed(a), gradient)
        return -of_b @ _transposed(x), of_b

    return _custom_gradient(eliminate, backward, a, b)


def _inverse_of_transpose(x):
    """The inverse of each matrix, transposed."""
    return _transposed(_solve(x, _identity(x.shape[-1], x)))


def _pivots(x):
    """The sign of the order of rows of an elimination, and its pivots."""
    if x.numel() == 0:
        ones = Tensor.ones(x.shape[:-1], dtype=x.dtype)
        return Tensor.ones(x.shape[:-2], dtype=x.dtype), ones
    upper, _, sign = _eliminate(x, x[..., :0])
    return sign, upper.diagonal(dim1=-2, dim2=-1)


def _det(x):
    """The determinant of each matrix."""

    def product(x):
        sign, pivots = _pivots(x)
        return sign * pivots.prod(-1)

    def backward(x, det, gradient):
        return (gradient * det).unsqueeze(-1).unsqueeze(-1) * _inverse_of_transpose(x)

    return _custom_gradient(product, backward, x)


def _slogdet(x):
    """The sign of the determinant, and the logarithm of its magnitude."""
    sign, pivots = _pivots(x.detach())
    sign = sign * _sign(pivots).prod(-1)

    def magnitude(x):
        return _pivots(x)[1].abs().log().sum(-1)

    def backward(x, log, gradient):
        return gradient.unsqueeze(-1).unsqueeze(-1) * _inverse_of_transpose(x)

    return sign, _custom_gradient(magnitude, backward, x)


def _reflected(r):
    """An orthogonal matrix q, and the triangle `_transposed(q) @ r`, by reflections."""
    rows, count = r.shape[-2:]
    index = Tensor.arange(rows)
    q = _identity(rows, r).expand(*r.shape[:-2], rows, rows).contiguous()
    for i in range(min(rows - 1, count)):
        own = (index >= i).where(r[..., :, i], 0).contiguous()
        rest = (index > i).where(own, 0).square().sum(-1, keepdim=True)
        head = own[..., i : i + 1]
        norm = (head.square() + rest).sqrt().contiguous()
        active = rest.ne(0)
        first = head + (head < 0).where(-norm, norm)
        v = index.eq(i).where(1, own / active.where(first, 1)).unsqueeze(-1)
        scale = active.where(first / (head < 0).where(-norm, norm), 0)
        w = (scale.unsqueeze(-1) * v).contiguous()
        v = (index >= i).unsqueeze(-1).where(v, 0).contiguous()
        w = (index >= i).unsqueeze(-1).where(w, 0).contiguous()
        r = (r - w * (_transposed(v) @ r)).contiguous()
        q = (q - (q @ v) * _transposed(w)).contiguous()
    return q, r


def _qr(x):
    """The factors q and r of x."""
    rows, count = x.shape[-2:]
    size = min(rows, count)
    if x.numel() == 0:
        q = Tensor.eye(rows, size, dtype=x.dtype).expand(*x.shape[:-1], size)
        return q, Tensor.zeros(*x.shape[:-2], size, count, dtype=x.dtype)

    def reflect(x):
        r, unit = _scaled(x)
        q, r = _reflected(r)
        return q[..., :size], r[..., :size, :].triu() * unit

    def whole(first, rest):
        return first.cat(rest, dim=-1) if count > size else first

    def backward(x, q, r, of_q, of_r):
        behind = of_r[..., size:]
        own = of_q
        if count > size:
            own = own + x[..., size:] @ _transposed(behind)
        inner = of_r[..., :size] @ _transposed(r[..., :size]) - _transposed(q) @ own
        first = _of_square(q, r[..., :size], inner, own)
        return whole(first, q @ behind)

    return _custom_gradient(reflect, backward, x)


def _of_square(q, r, inner, of_q):
    """`(of_q + q s) r⁻ᵀ`: s is symmetric with the upper triangle of `inner`."""
    symmetric = inner.triu() + _transposed(inner.triu(1))
    total = of_q + q @ symmetric
    return _transposed(_triangular_solve(r, _transposed(total), False))


def _gaps(values):
    """Differences of values, and ones on the diagonal."""
    return _unit(values.unsqueeze(-2) - values.unsqueeze(-1))


def _rotated(x):
    """x @ v and v, an orthogonal matrix for which the columns of x @ v are orthogonal:
    Jacobi rotations of pairs of columns."""
    rows, count = x.shape[-2:]
    identity = _identity(count, x).expand(*x.shape[:-2], count, count)
    both = x.cat(identity, dim=-2)
    half = (count + 1) // 2
    both = both.pad([(0, 0)] * (x.ndim - 1) + [(0, 2 * half - count)]).contiguous()
    sweeps = (6 if x.dtype.itemsize < 8 else 8) + count.bit_length()
    for _ in range(sweeps * (2 * half - 1) if count > 1 else 0):
        left, right = both[..., :half], both[..., half:]
        a, b = left[..., :rows, :], right[..., :rows, :]
        mixed = (a * b).sum(-2, keepdim=True).contiguous()
        sizes = [y.square().sum(-2, keepdim=True).contiguous() for y in (a, b)]
        apart = mixed.ne(0)
        tau = (sizes[1] - sizes[0]) / (2 * apart.where(mixed, 1))
        sign = (tau < 0).where(-1.0, 1.0)
        tangent = apart.where(sign / (tau.abs() + (1 + tau.square()).sqrt()), 0)
        cos = (1 + tangent.square()).sqrt().reciprocal().contiguous()
        sin = (cos * tangent).contiguous()
        left, right = left * cos - right * sin, left * sin + right * cos
        # The first column stays, the others move on by one place.
        parts = [left[..., :1], right[..., :1], left[..., 1 : half - 1]]
        parts += [right[..., 1:], left[..., half - 1 :]]
        if half == 1:
            parts = [left, right]
        both = Tensor.cat(*(p for p in parts if p.shape[-1]), dim=-1).contiguous()
    return both[..., :rows, :count], both[..., rows:, :count]


def _ordered(x, order):
    """The columns of x in another order."""
    return x.gather(-1, order.unsqueeze(-2).expand(x.shape))


def _eigh(x):
    """The eigenvalues in ascending order, and the eigenvectors in columns."""
    if x.numel() == 0:
        return Tensor.zeros(x.shape[:-1], dtype=x.dtype), x

    def rotate(x):
        finite = (x.abs() < math.inf).all((-2, -1), keepdim=True)
        # Of the lower triangle.
        own, unit = _scaled(finite.where(x.tril() + _transposed(x.tril(-1)), 0))
        bound = own.abs().sum(-1).max(-1).unsqueeze(-1).unsqueeze(-1)
        vectors = _rotated(own + bound * _identity(x.shape[-1], x))[1].contiguous()
        values = (vectors * (own @ vectors)).sum(-2).contiguous()
        values, order = values.sort(-1)
        vectors = _ordered(vectors, order)
        nan = x.const_like(math.nan)
        values = values * unit.squeeze(-1)
        return finite.squeeze(-1).where(values, math.nan), finite.where(vectors, nan)

    def backward(x, values, vectors, of_values, of_vectors):
        inner = _transposed(vectors) @ of_vectors
        inner = (inner - _transposed(inner)) / 2 / _gaps(values)
        inner = inner + _identity(x.shape[-1], x) * of_values.unsqueeze(-2)
        return vectors @ inner @ _transposed(vectors)

    return _custom_gradient(rotate, backward, x)


def _svd(x):
    """The left singular vectors, the singular values, and the right ones in rows."""
    rows, count = x.shape[-2:]
    size = min(rows, count)
    if x.numel() == 0:
        left = Tensor.eye(rows, size, dtype=x.dtype).expand(*x.shape[:-1], size)
        right = Tensor.eye(size, count, dtype=x.dtype)
        right = right.expand(*x.shape[:-2], size, count)
        return left, Tensor.zeros(*x.shape[:-2], size, dtype=x.dtype), right

    def rotate(x):
        finite = (x.abs() < math.inf).all((-2, -1), keepdim=True)
        own, unit = _scaled(finite.where(x if rows >= count else _transposed(x), 0))
        turned, v = _rotated(own)
        turned = turned.contiguous()
        s, order = turned.square().sum(-2).sqrt().contiguous().sort(-1, descending=True)
        order = order.contiguous()
        turned, v = _ordered(turned, order), _ordered(v, order)
        scale = s.unsqueeze(-2)
        # Of nearly no length, columns have no direction of their own.
        epsilon = 2.0 ** -dtypes.finfo(x.dtype)[1]
        none = (scale <= epsilon * scale[..., :1]).contiguous()
        u = none.where(0, turned / none.where(1, scale)).contiguous()
        u = none.where(_reflected(u)[0][..., :size], u)
        u, v = (u, v) if rows >= count else (v, u)
        parts = (u, s.unsqueeze(-1) * unit, _transposed(v))
        u, s, vh = (finite.where(part, math.nan) for part in parts)
        return u, s.squeeze(-1), vh

    def backward(x, u, s, vh, of_u, of_s, of_vh):
        gaps = _gaps(s * s)
        inner = _transposed(u) @ of_u
        inner = (inner - _transposed(inner)) / gaps * s.unsqueeze(-2)
        other = vh @ _transposed(of_vh)
        other = (other - _transposed(other)) / gaps * s.unsqueeze(-1)
        own = inner + other + _identity(size, x) * of_s.unsqueeze(-2)
        total = u @ own @ vh
        if rows > size:
            rest = of_u - u @ (_transposed(u) @ of_u)
            total = total + rest / s.unsqueeze(-2) @ vh
        if count > size:
            rest = of_vh - of_vh @ _transposed(vh) @ vh
            total = total + u / s.unsqueeze(-2) @ rest
        return total

    return _custom_gradient(rotate, backward, x)
