"""Functions of elements that MLX lacks, or has only in single precision."""
# ruff: noqa: F821 — some names are those of the other files.

import math

import mlx.core as mx


def _exp(x):
    """The exponential in float64, which `mx.exp` computes in single precision."""
    return mx.power(math.e, x)


def _sin(x):
    """The sine in float64, which `mx.sin` computes in single precision."""
    t = mx.tan(mx.stop_gradient(x) / 2)
    return _with_gradient(2 * t / (1 + t * t), x, lambda x, g: g * _cos(x))


def _cos(x):
    """The cosine in float64, which `mx.cos` computes in single precision."""
    own = mx.stop_gradient(x)
    t = mx.tan(own / 2)
    # π/2 in two parts.
    rest = (1.5707963267948966 - mx.abs(own)) + 6.123233995736766e-17
    y = mx.where(mx.abs(own) < 2, _sin(rest), (1 - t) * (1 + t) / (1 + t * t))
    return _with_gradient(y, x, lambda x, g: -g * _sin(x))


def _tan(x):
    """The tangent in float64, whose gradient MLX computes in single precision."""
    y = mx.tan(mx.stop_gradient(x))
    return _with_gradient(y, x, lambda x, g: g * (1 + _tan(x) * _tan(x)))


def _sigmoid(x):
    """The logistic function in float64."""
    t = _exp(-mx.abs(mx.stop_gradient(x)))
    y = mx.where(x >= 0, 1 / (1 + t), t / (1 + t))
    return _with_gradient(y, x, lambda x, g: g * _sigmoid(x) * _sigmoid(-x))


def _softplus(x):
    """`log(1 + exp(x))` in float64."""
    own = mx.stop_gradient(x)
    y = mx.maximum(own, 0) + mx.log1p(_exp(-mx.abs(own)))
    return _with_gradient(y, x, lambda x, g: g * _sigmoid(x))


def _elu(x, alpha=1.0):
    """x where it is positive, elsewhere `alpha * (exp(x) - 1)`."""
    # At a tie, MLX gives the gradient to the second operand.
    return mx.where(x > 0, x, alpha * mx.expm1(mx.minimum(0, x)))


def _elu_gradient(gradient, x, power, alpha=1.0):
    """The gradient of `_elu`; `power` is `exp(min(0, x))`."""
    return gradient * mx.where(x > 0, 1, alpha * power)


def _silu_gradient(gradient, x, sigmoid):
    """The gradient of silu."""
    return gradient * (sigmoid * (1.0 + x * (1.0 - sigmoid)))


def _mish_gradient(gradient, x, softplus, sigmoid):
    """The gradient of mish."""
    tanh = mx.tanh(softplus)
    return gradient * (tanh + x * (1.0 - tanh * tanh) * sigmoid)


def _floor_div(x, y):
    """The quotient of floats, rounded down."""
    x, y = mx.stop_gradient(x), mx.stop_gradient(y)
    quotient = (x - x % y) / y
    floor = mx.floor(quotient)
    floor = mx.where(quotient - floor > 0.5, floor + 1, floor)
    return mx.where(mx.isfinite(floor), floor, mx.floor(x / y))


def _sinc(x):
    """`sin(π x) / (π x)`, by a series near 0, where the derivative would cancel."""
    y = _wide(x)
    near, whole = mx.abs(y) < 0.5, mx.round(y)
    z = math.pi * mx.where(near, y, 0)
    terms = [(-1) ** i / math.factorial(2 * i + 1) for i in range(11)]
    series = _polynomial(terms, z * z)
    angle = math.pi * (y - whole)
    sine = _sin(angle) if y.dtype == mx.float64 else mx.sin(angle)
    sine = mx.where(whole / 2 == mx.floor(whole / 2), sine, -sine)
    rest = sine / (math.pi * mx.where(near, 1, y))
    return mx.where(near, series, rest).astype(x.dtype)


def _logit(x):
    """`log(x / (1 - x))`, the inverse of the logistic function."""
    own = mx.stop_gradient(x)
    near = (own > 0.25) & (own < 0.75)
    y = mx.where(near, own, 0.5)
    y = mx.where(near, mx.log1p((2 * y - 1) / (1 - y)), mx.log(own / (1 - own)))

    def backward(x, gradient):
        outside = (x < 0) | (x > 1)
        return gradient * mx.where(outside, mx.nan, 1 / (x * (1 - x)))

    return _with_gradient(y, x, backward)


def _xlogy(x, y):
    """`x * log(y)`; 0 if x is 0."""

    def product(x, y):
        zero = x == 0
        z = mx.where(zero, 0, x * mx.log(mx.where(zero, 1, y)))
        return mx.where(mx.isnan(y), mx.nan, z)

    def backward(operands, gradient, _):
        x, y = operands
        zero = x == 0
        none = zero & (y <= 0)
        of_x = mx.where(none, 0, mx.log(mx.where(none, 1, y)))
        of_y = mx.where(zero, 0, x / mx.where(zero, 1, y))
        return gradient * of_x, gradient * of_y

    found = mx.custom_function(product)
    found.vjp(backward)
    return found(*mx.broadcast_arrays(x, y))


def _erf(x):
    """The error function in float64, which `mx.erf` computes in single precision."""
    erf = mx.custom_function(_erf_series)

    def backward(x, gradient, _):
        return gradient * 1.1283791670955126 * _exp(-x * x)

    erf.vjp(backward)
    return erf(x)


def _erf_series(x):
    """The error function: a series in x², or 1 minus the exponential of a series."""
    a = mx.abs(x)
    small = a + a * _polynomial(_ERF_SMALL, a * a)
    t = mx.minimum(a, 5.95)
    large = -mx.expm1(-(t + t * _polynomial(_ERF_TAIL, t)))
    y = mx.where(a < 0.9277, small, large)
    return mx.where(x < 0, -y, mx.where(mx.isnan(x), x, y))


def _polynomial(coefficients, x):
    """The polynomial with these coefficients, the constant one first."""
    y = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        y = y * x + coefficient
    return y


_ERF_SMALL = [
    0.1283791670955126,
    -0.3761263890318371,
    0.11283791670952735,
    -0.02686617064461161,
    0.005223977619601503,
    -0.0008548326635617768,
    0.00012055316627147659,
    -1.4925195173917952e-05,
    1.645362788946697e-06,
    -1.6260578187273512e-07,
    1.3967153516885343e-08,
    -8.301815886140349e-10,
]

_ERF_TAIL = [
    0.1283792763856883,
    0.6366186040332523,
    0.10277849116227808,
    -0.01914706593915099,
    -0.00016771448840846142,
    0.0016269336163829671,
    -0.0005000859830961652,
    -6.73911654714198e-05,
    0.00014258650685787953,
    -8.28859100508883e-05,
    3.2715069741318556e-05,
    -9.992691916409102e-06,
    2.4654190795604372e-06,
    -4.989755003039335e-07,
    8.305818685841505e-08,
    -1.1305209776995166e-08,
    1.2412361653110103e-09,
    -1.0736344822044805e-10,
    7.026490092865505e-12,
    -3.219525572826145e-13,
    8.419738510318779e-15,
    -4.8061290876071665e-18,
    -7.047464629756686e-18,
    1.5823932559816072e-19,
]


def _erf_inv(x):
    """The inverse error function in float64 by Giles' approximation."""
    own = mx.stop_gradient(x)
    w = -mx.log1p(-own * own)
    root = mx.sqrt(w)
    near = _polynomial(_ERF_INV_NEAR, w - 3.125)
    middle = _polynomial(_ERF_INV_MIDDLE, root - 3.25)
    far = _polynomial(_ERF_INV_FAR, root - 5)
    y = own * mx.where(w < 6.25, near, mx.where(w < 16, middle, far))
    y = mx.where(mx.abs(own) == 1, own * mx.inf, y)

    def backward(x, gradient):
        y = _erf_inv(x)
        return gradient * 0.886226925452758 * _exp(y * y)

    return _with_gradient(y, x, backward)


_ERF_INV_NEAR = [
    1.6536545626831027,
    0.24015818242558962,
    -0.0060336708714301491,
    -0.000740702534166267,
    0.00018673420803405714,
    -1.3882523362786469e-05,
    -1.3654692000834679e-06,
    4.2347877827932404e-07,
    -2.9070369957882005e-08,
    -4.1126339803469837e-09,
    1.0512122733215323e-09,
    -5.4154120542946279e-11,
    -1.2975133253453532e-11,
    2.6335093153082323e-12,
    -8.1519341976054722e-14,
    -4.0545662729752069e-14,
    6.6376381343583238e-15,
    2.0972767875968562e-17,
    -1.3331716628546209e-16,
    1.1157877678025181e-17,
    1.28584807152564e-18,
    -1.6850591381820166e-19,
    -3.64441206401782e-21,
]

_ERF_INV_MIDDLE = [
    3.0838856104922208,
    1.0052589676941592,
    0.0053709145535900636,
    -0.0037512085075692412,
    0.0024914420961078508,
    -0.0016882755560235047,
    0.0009532893797373805,
    -0.00035503752036284748,
    2.4031110387097894e-05,
    6.8284851459573175e-05,
    -4.7318229009055734e-05,
    1.2475304481671779e-05,
    2.9234449089955446e-06,
    -4.013867526981546e-06,
    1.5027403968909828e-06,
    1.8239629214389228e-08,
    -2.7517406297064545e-07,
    9.0756561938885391e-08,
    2.2137376921775787e-09,
]

_ERF_INV_FAR = [
    4.8499064014085844,
    1.0103004648645344,
    -0.00013871931833623122,
    -0.00021503011930044477,
    7.5995277030017761e-05,
    -1.9681778105531671e-05,
    4.5260625972231537e-06,
    -9.9298272942317e-07,
    2.2900482228026655e-07,
    -6.7711997758452339e-08,
    2.9147953450901081e-08,
    -1.496002662714924e-08,
    7.61570120807834e-09,
    -3.789465440126737e-09,
    1.5076572693500548e-09,
    -2.5556418169965252e-10,
    -2.7109920616438573e-11,
]


def _fourier(real, imaginary, n=None, axis=-1, norm="backward", inverse=False):
    """The Fourier transform in float64, which `mx.fft` lacks: a product of matrices."""
    n = real.shape[axis] if n is None else n
    cos, sin = _turns(n, n, n, inverse)
    real = _resized(real, n, axis)
    first, second = real @ cos, real @ sin
    if imaginary is not None:
        imaginary = _resized(imaginary, n, axis)
        first, second = first - imaginary @ sin, second + imaginary @ cos
    scale = _norm_factor(n, norm, inverse)
    return mx.moveaxis(first * scale, -1, axis), mx.moveaxis(second * scale, -1, axis)


def _real_fourier(x, n=None, axis=-1, norm="backward"):
    """The first half of the Fourier transform of real numbers in float64."""
    n = x.shape[axis] if n is None else n
    cos, sin = _turns(n, n, n // 2 + 1, False)
    x, scale = _resized(x, n, axis), _norm_factor(n, norm, False)
    return [mx.moveaxis(x @ part * scale, -1, axis) for part in (cos, sin)]


def _inverse_real_fourier(real, imaginary, n=None, axis=-1, norm="backward"):
    """The inverse of `_real_fourier`."""
    n = 2 * real.shape[axis] - 2 if n is None else n
    half = n // 2 + 1
    cos, sin = _turns(n, half, n, True)
    # The elements that are left out are the conjugates of those between the ends.
    weights = [1 if i == 0 or 2 * i == n else 2 for i in range(half)]
    weights = mx.array(weights, dtype=real.dtype)[:, None] * _norm_factor(n, norm, True)
    y = _resized(real, half, axis) @ (cos * weights)
    if imaginary is not None:
        y = y - _resized(imaginary, half, axis) @ (sin * weights)
    return mx.moveaxis(y, -1, axis)


def _turns(n, rows, columns, inverse):
    """The matrices of cosines and sines of the products of indices, in parts of n."""
    turns = mx.arange(rows, dtype=mx.int64)[:, None] * mx.arange(
        columns, dtype=mx.int64
    )
    angles = (turns % n).astype(mx.float64) * (2 * math.pi / n)
    return _cos(angles), _sin(angles) if inverse else -_sin(angles)


def _resized(x, n, axis):
    """x with `axis` moved to the end, and cut or padded with zeros to n elements."""
    x = mx.moveaxis(x, axis, -1)[..., :n]
    return mx.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n - x.shape[-1])])


def _norm_factor(n, norm, inverse):
    """The factor of a transform of n elements."""
    if norm == "ortho":
        return n**-0.5
    return 1 / n if (norm == "forward") != inverse else 1.0
