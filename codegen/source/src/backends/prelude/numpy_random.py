"""Random numbers of a key, as JAX draws them, and NumPy's own. A file contains those
functions that it calls."""

import math

import numpy as np


def _threefry(key, high, low):
    """Encrypts counters of two words: Threefry-2x32-20 (Salmon et al. 2011)."""
    keys = [key[:1], key[1:], key[:1] ^ key[1:] ^ np.uint32(0x1BD11BDA)]
    x, y = high + keys[0], low + keys[1]
    for i in range(20):
        bits = (13, 15, 26, 6, 17, 29, 16, 24)[i % 8]
        x = x + y
        y = (y << bits | y >> (32 - bits)) ^ x
        if i % 4 == 3:
            n = i // 4 + 1
            x, y = x + keys[n % 3], y + keys[(n + 1) % 3] + np.uint32(n)
    return x, y


def _key_split(key, count=2):
    """`count` new keys derived from `key`, as rows."""
    low = np.arange(count, dtype=np.uint32)
    return np.stack(_threefry(key, np.zeros_like(low), low), axis=1)


def _key_fold(key, data):
    """A new key derived from `key` and a number."""
    low = np.array([data], dtype=np.uint32)
    return np.concatenate(_threefry(key, np.zeros_like(low), low))


def _random_bits(key, shape, dtype):
    """Uniform unsigned integers."""
    counts = np.arange(math.prod(shape), dtype=np.uint64)
    high, low = _threefry(
        key, (counts >> 32).astype(np.uint32), counts.astype(np.uint32)
    )
    if np.dtype(dtype).itemsize == 8:
        return (high.astype(np.uint64) << 32 | low).reshape(shape)
    return (high ^ low).astype(dtype).reshape(shape)


def _uniform(key, shape, dtype, low=0.0, high=1.0):
    """Uniform floats in [low, high)."""
    digits = _digits(dtype)
    width = 8 if digits < 8 else np.dtype(dtype).itemsize * 8
    bits = _random_bits(key, shape, f"uint{width}")
    unit = (bits >> (width - digits)).astype(np.float64) * 2.0**-digits
    low, high = dtype(low), dtype(high)
    if width < 32:
        return np.maximum(unit.astype(dtype) * (high - low) + low, low)
    return np.maximum((unit * np.float64(high - low) + low).astype(dtype), low)


def _digits(dtype):
    """The number of explicit mantissa bits of a float dtype."""
    return -round(math.log2(float(np.nextafter(dtype(1), dtype(2))) - 1))


def _normal(key, shape, dtype):
    """Standard normal floats, from uniform floats by the inverse error function."""
    low = 2.0 ** -(_digits(dtype) + 1) - 1
    u = _uniform(key, shape, dtype, low, 1.0)
    work = np.float64 if dtype == np.float64 else np.float32
    return dtype(math.sqrt(2)) * _erf_inv(u.astype(work)).astype(dtype)


def _bits(key, shape, dtype):
    """Uniform unsigned integers from NumPy's generator."""
    high = np.iinfo(dtype).max
    return np.random.default_rng(key).integers(0, high, shape, dtype, endpoint=True)


def _rand(key, shape, dtype, low=0.0, high=1.0):
    """Uniform floats in [low, high) from NumPy's generator."""
    low, high = dtype(low), dtype(high)
    x = np.random.default_rng(key).random(shape) * np.float64(high - low) + low
    x = x.astype(dtype)
    return np.where(x < high, x, low)  # x may be rounded up to `high`


def _randn(key, shape, dtype):
    """Standard normal floats from NumPy's generator."""
    return np.random.default_rng(key).standard_normal(shape).astype(dtype)


def _erf_inv(x):
    """The inverse error function by Giles' approximation."""
    w = -np.log1p(-x * x)
    root = np.sqrt(w)
    if x.dtype == np.float64:
        near = np.polyval(_ERF_INV_NEAR_64, w - 3.125)
        middle = np.polyval(_ERF_INV_MIDDLE_64, root - 3.25)
        far = np.polyval(_ERF_INV_FAR_64, root - 5)
        return x * np.where(w < 6.25, near, np.where(w < 16, middle, far))
    near = np.polyval(_ERF_INV_NEAR, w - np.float32(2.5))
    return x * np.where(w < 5, near, np.polyval(_ERF_INV_FAR, root - np.float32(3)))


_ERF_INV_NEAR = np.array(
    [
        2.81022636e-08,
        3.43273939e-07,
        -3.5233877e-06,
        -4.39150654e-06,
        0.00021858087,
        -0.00125372503,
        -0.00417768164,
        0.246640727,
        1.50140941,
    ],
    dtype=np.float32,
)

_ERF_INV_FAR = np.array(
    [
        -0.000200214257,
        0.000100950558,
        0.00134934322,
        -0.00367342844,
        0.00573950773,
        -0.0076224613,
        0.00943887047,
        1.00167406,
        2.83297682,
    ],
    dtype=np.float32,
)

_ERF_INV_NEAR_64 = np.array(
    [
        -3.64441206401782e-21,
        -1.6850591381820166e-19,
        1.28584807152564e-18,
        1.1157877678025181e-17,
        -1.3331716628546209e-16,
        2.0972767875968562e-17,
        6.6376381343583238e-15,
        -4.0545662729752069e-14,
        -8.1519341976054722e-14,
        2.6335093153082323e-12,
        -1.2975133253453532e-11,
        -5.4154120542946279e-11,
        1.0512122733215323e-09,
        -4.1126339803469837e-09,
        -2.9070369957882005e-08,
        4.2347877827932404e-07,
        -1.3654692000834679e-06,
        -1.3882523362786469e-05,
        0.00018673420803405714,
        -0.000740702534166267,
        -0.0060336708714301491,
        0.24015818242558962,
        1.6536545626831027,
    ],
    dtype=np.float64,
)

_ERF_INV_MIDDLE_64 = np.array(
    [
        2.2137376921775787e-09,
        9.0756561938885391e-08,
        -2.7517406297064545e-07,
        1.8239629214389228e-08,
        1.5027403968909828e-06,
        -4.013867526981546e-06,
        2.9234449089955446e-06,
        1.2475304481671779e-05,
        -4.7318229009055734e-05,
        6.8284851459573175e-05,
        2.4031110387097894e-05,
        -0.00035503752036284748,
        0.0009532893797373805,
        -0.0016882755560235047,
        0.0024914420961078508,
        -0.0037512085075692412,
        0.0053709145535900636,
        1.0052589676941592,
        3.0838856104922208,
    ],
    dtype=np.float64,
)

_ERF_INV_FAR_64 = np.array(
    [
        -2.7109920616438573e-11,
        -2.5556418169965252e-10,
        1.5076572693500548e-09,
        -3.789465440126737e-09,
        7.61570120807834e-09,
        -1.496002662714924e-08,
        2.9147953450901081e-08,
        -6.7711997758452339e-08,
        2.2900482228026655e-07,
        -9.9298272942317e-07,
        4.5260625972231537e-06,
        -1.9681778105531671e-05,
        7.5995277030017761e-05,
        -0.00021503011930044477,
        -0.00013871931833623122,
        1.0103004648645344,
        4.8499064014085844,
    ],
    dtype=np.float64,
)
