"""Functions of elements that tinygrad lacks, or has with few digits."""
# ruff: noqa: F821 — some names are those of the other files.

import math

from tinygrad import dtypes


def _polynomial(coefficients, x):
    """The polynomial with these coefficients, the constant one first."""
    y = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        y = y * x + coefficient
    return y


def _wide(x):
    """x in at least single precision."""
    return x.float() if x.dtype in (dtypes.half, dtypes.bfloat16) else x


def _sign(x):
    """The sign; NaN of NaN."""
    return _isnan(x).where(x.detach(), x.sign())


def _relu(x):
    """x where it is positive, elsewhere 0; NaN of NaN, which `x.relu()` loses."""
    return (x > 0).where(x, x.detach().maximum(0))


def _sigmoid(x):
    """The logistic function, without overflow: tinygrad's own one has a gradient of
    NaN where an exponential overflows."""
    positive = x > 0
    t = positive.where(-x, x).exp()
    return positive.where(1, t) / (1 + t)


def _round(x):
    """The nearest integer; halves round to even."""
    whole = x.abs() >= 2.0 ** dtypes.finfo(x.dtype)[1]
    near = x.trunc()
    rest = (x - near).abs()
    odd = (near / 2).trunc() * 2 != near
    away = (rest > 0.5) | (rest.eq(0.5) & odd)
    return whole.where(x, away.where(near + (x < 0).where(-1.0, 1.0), near))


def _elu(x, alpha=1.0):
    """x where it is positive, elsewhere `alpha * (exp(x) - 1)`."""
    positive = x > 0
    return positive.where(x, alpha * _expm1(positive.where(0, x)))


def _mish(x):
    """`x * tanh(softplus(x))`."""
    y = _wide(x)
    e = y.clip(max_=20).exp()
    part = e * (e + 2)
    return (y > 20).where(y, y * (part / (part + 2))).cast(x.dtype)


def _logit(x):
    """`log(x / (1 - x))`, the inverse of the logistic function."""
    y = _wide(x)
    near = (y > 0.25) & (y < 0.75)
    middle = near.where(y, 0.5)
    rest = near.where(0.5, y)
    small = _log1p((2 * middle - 1) / (1 - middle))
    value = near.where(small, rest.log() - (1 - rest).log())
    inside = (y >= 0) & (y <= 1)
    return inside.where(value, inside.where(0, y) * math.nan).cast(x.dtype)


def _at_most(x, y):
    """`x <= y`; False if one of them is NaN."""
    return (x < y) | x.eq(y)


def _isnan(x):
    """Whether elements are NaN; `x.isnan()` is wrong for a NaN that `where` chose."""
    return _at_most(x, math.inf).logical_not()


def _xlogy(x, y):
    """`x * log(y)`; 0 if x is 0."""
    shape = (x + y).shape

    def product(x, y):
        zero = x.eq(0)
        z = zero.where(0, x * zero.where(1, y).log())
        return _isnan(y).where(math.nan, z)

    def backward(x, y, z, gradient):
        zero = x.eq(0)
        none = zero & ((y < 0) | y.eq(0))
        of_x = none.where(0, none.where(1, y).log())
        of_y = zero.where(0, x / zero.where(1, y))
        return gradient * of_x, gradient * of_y

    return _custom_gradient(product, backward, x.expand(shape), y.expand(shape))


def _sinc(x):
    """`sin(π x) / (π x)`, and 1 at 0."""

    def parts(x):
        """x, its angle from the nearest integer, and the sign there."""
        y = _wide(x)
        whole = _round(y)
        odd = ((whole / 2).floor() * 2).ne(whole)
        return y, math.pi * (y - whole), odd.where(-1.0, 1.0)

    def ratio(x):
        y, angle, sign = parts(x)
        zero = y.abs() < 1e-20
        z = sign * angle.sin() / (math.pi * zero.where(1, y))
        return zero.where(1, z).cast(x.dtype)

    def backward(x, z, gradient):
        y, angle, sign = parts(x)
        near = y.abs() < 0.5
        # A series where cos(π x) and the ratio are nearly equal.
        terms = [(-1) ** i * 2 * i / math.factorial(2 * i + 1) for i in range(1, 13)]
        small = near.where(math.pi * y, 0)
        series = math.pi * small * _polynomial(terms, small.square())
        rest = (sign * _cos(angle) - _wide(z)) / near.where(1, y)
        return gradient * near.where(series, rest).cast(x.dtype)

    return _custom_gradient(ratio, backward, x)


def _floor_div(x, y):
    """The quotient of floats, rounded down."""
    return (x / y).floor()


def _mod(x, y):
    """The remainder of `_floor_div`, with the sign of y."""
    rest = x - y * (x / y).trunc()
    return (rest.ne(0) & (rest < 0).ne(y < 0)).where(rest + y, rest)


def _integer_div(x, y):
    """The quotient rounded down; -1 if y is 0."""
    # Processors stop at these.
    zero, inverse = y.eq(0), y.eq(-1)
    safe = (zero | inverse).where(1, y)
    return zero.where(-1, inverse.where(-x, x // safe)).cast(x.dtype)


def _integer_mod(x, y):
    """The remainder of `_integer_div`, with the sign of y."""
    return (x - _integer_div(x, y) * y).cast(x.dtype)


def _integer_pow(x, y):
    """The power of integers by repeated squares; 0 or ±1 for negative exponents."""
    x, y = x * y.const_like(1), y * x.const_like(1)
    parts = [y, x, x.const_like(1)]
    for i in range(x.dtype.bitsize):
        rest, square, power = parts
        parts = [rest >> 1, square * square, power * (rest & 1).ne(0).where(square, 1)]
        # The expressions of all bits would take minutes to compile.
        parts = [part.contiguous() for part in parts] if i % 4 == 3 else parts
    power = parts[2]
    inverse = x.eq(1).where(1, x.eq(-1).where((y & 1).ne(0).where(-1, 1), 0))
    return (y < 0).where(inverse, power).cast(x.dtype)


def _shift_left(x, y):
    """x shifted left; 0 if y is the width or more."""
    out = (y < 0) | (y >= x.dtype.bitsize)
    return out.where(0, x << out.where(0, y)).cast(x.dtype)


def _shift_right(x, y):
    """x shifted right; copies of the sign if y is the width or more."""
    out = (y < 0) | (y >= x.dtype.bitsize)
    return (x >> out.where(x.dtype.bitsize - 1, y)).cast(x.dtype)


def _expm1(x):
    """`exp(x) - 1`, precise near 0."""
    near = x.abs() < 0.35
    series = [1 / math.factorial(i) for i in range(1, 14)]
    small = near.where(_wide(x), 0)
    return near.where((small * _polynomial(series, small)).cast(x.dtype), x.exp() - 1)


def _log1p(x):
    """`log(1 + x)`, precise near 0."""
    near = (x > -0.25) & (x < 0.3)
    small = near.where(_wide(x), 0)
    ratio = small / (small + 2)
    series = [2 / i for i in range(1, 22, 2)]
    value = ratio * _polynomial(series, ratio * ratio)
    return near.where(value.cast(x.dtype), (near.where(0, x) + 1).log())


def _cos(x):
    """The cosine."""
    near = x.abs() < 0.8
    square = near.where(_wide(x), 0).square()
    series = [(-1) ** i / math.factorial(2 * i) for i in range(10)]
    # The half angle keeps the digits of large angles.
    half = (_wide(x) / 2).sin()
    value = near.where(_polynomial(series, square), 1 - 2 * half * half)
    return value.cast(x.dtype)


def _tan(x):
    """The tangent."""
    return (_wide(x).sin() / _cos(_wide(x))).cast(x.dtype)


def _sinh(x):
    """The hyperbolic sine."""
    y = _wide(x)
    far = y.abs() > 1
    e = _expm1(far.where(0, y))
    near = e * (e + 2) / (2 * e + 2)
    large = ((y.abs() - math.log(2)).exp() - (-y.abs() - math.log(2)).exp()).cast(
        y.dtype
    )
    return far.where((y < 0).where(-large, large), near).cast(x.dtype)


def _tanh(x):
    """The hyperbolic tangent; near 0, `x.tanh()` loses all digits."""
    e = _expm1(2 * _wide(x).clip(-20, 20))
    return (e / (e + 2)).cast(x.dtype)


def _atan(x):
    """The angle whose tangent is x."""
    # Two half angles, then a series.
    y = _wide(x)
    far = y.abs() > 1
    t = far.where(1 / far.where(y, 1), y)
    for _ in range(2):
        t = t / (1 + (1 + t * t).sqrt())
    series = [(-1) ** i / (2 * i + 1) for i in range(13)]
    angle = 4 * t * _polynomial(series, t * t)
    angle = far.where((y < 0).where(-math.pi / 2, math.pi / 2) - angle, angle)
    return angle.cast(x.dtype)


def _atan2(y, x):
    """The angle of the point (x, y)."""
    wide_y, wide_x = _wide(y), _wide(x)
    steep = wide_y.abs() > wide_x.abs()
    both = wide_x.isinf() & wide_y.isinf()
    origin = wide_x.eq(0) & wide_y.eq(0)
    top, bottom = steep.where(wide_x, wide_y), steep.where(wide_y, wide_x)
    ratio = origin.where(0, top / origin.where(1, bottom))
    ratio = both.where((wide_x < 0).ne(wide_y < 0).where(-1.0, 1.0), ratio)
    angle = _atan(ratio)
    below = wide_y < 0
    steep_angle = below.where(-math.pi / 2, math.pi / 2) - angle
    flat_angle = (wide_x < 0).where(angle + below.where(-math.pi, math.pi), angle)
    return steep.where(steep_angle, flat_angle).cast(x.dtype)


def _asin(x):
    """The angle from -π/2 to π/2 whose sine is x."""
    y = _wide(x)
    angle = _half_angle(y)
    return (
        (y.abs() > 0.5)
        .where((y < 0).where(-1.0, 1.0) * (math.pi / 2), 0)
        .add(angle)
        .cast(x.dtype)
    )


def _half_angle(y):
    """asin(y) without ±π/2 if |y| > 0.5."""
    far = y.abs() > 0.5
    root = ((1 - y.abs()) / 2).sqrt()
    s = far.where((y < 0).where(root, -root), far.where(0, y))
    c = (1 - s * s).sqrt()
    angle = _atan(s / c)
    return far.where(2 * angle, angle)


def _acos(x):
    """The angle from 0 to π whose cosine is x."""
    y = _wide(x)
    angle = _half_angle(y)
    far = y.abs() > 0.5
    start = far.where((y < 0).where(math.pi, 0.0), math.pi / 2)
    return (start - angle).cast(x.dtype)


def _erf(x):
    """The error function: a series in x², or 1 minus the exponential of a series.

    `x.erf()`, and so `x.gelu("none")`, has an absolute error of 1e-7.
    """
    wide = _wide(x)
    near = wide.abs() < 0.9277
    small = near.where(wide, 0)
    inner = small + small * _polynomial(_ERF_SMALL, small * small)
    t = near.where(1, wide.abs().clip(0, 5.95))
    outer = -_expm1(-(t + t * _polynomial(_ERF_TAIL, t)))
    outer = (wide < 0).where(-outer, _isnan(wide).where(wide, outer))
    return near.where(inner, outer).cast(x.dtype)


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
    """The inverse error function by Giles' approximation."""
    w = -_log1p(-x * x)
    root = w.sqrt()
    near = _polynomial(_ERF_INV_NEAR, w - 3.125)
    middle = _polynomial(_ERF_INV_MIDDLE, root - 3.25)
    far = _polynomial(_ERF_INV_FAR, root - 5)
    y = x * (w < 6.25).where(near, (w < 16).where(middle, far))
    return x.abs().eq(1).where(x * math.inf, y)


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
