"""Random numbers for MLX."""
# ruff: noqa: F821 — some names are those of the other files.

import math

import mlx.core as mx


def _threefry(key, high, low):
    """Encrypts counters of two words: Threefry-2x32-20 (Salmon et al. 2011)."""
    keys = [key[:1], key[1:], key[:1] ^ key[1:] ^ 0x1BD11BDA]
    x, y = high + keys[0], low + keys[1]
    for i in range(20):
        bits = (13, 15, 26, 6, 17, 29, 16, 24)[i % 8]
        x = x + y
        y = (y << bits | y >> (32 - bits)) ^ x
        if i % 4 == 3:
            n = i // 4 + 1
            x, y = x + keys[n % 3], y + keys[(n + 1) % 3] + n
    return x, y


def _key_split(key, count=2):
    """`count` new keys derived from `key`, as rows."""
    low = mx.arange(count, dtype=mx.uint32)
    return mx.stack(_threefry(key, mx.zeros_like(low), low), axis=1)


def _key_fold(key, data):
    """A new key derived from `key` and a number."""
    low = mx.array([data], dtype=mx.uint32)
    return mx.concatenate(_threefry(key, mx.zeros_like(low), low))


def _random_bits(key, shape, dtype):
    """Uniform unsigned integers."""
    counts = mx.arange(math.prod(shape), dtype=mx.uint64)
    high, low = _threefry(
        key, (counts >> 32).astype(mx.uint32), counts.astype(mx.uint32)
    )
    if dtype.size == 8:
        return (high.astype(mx.uint64) << 32 | low).reshape(shape)
    return (high ^ low).astype(dtype).reshape(shape)


def _uniform(key, shape, dtype, low=0.0, high=1.0):
    """Uniform floats in [low, high)."""
    digits = -round(math.log2(mx.finfo(dtype).eps))
    width = 8 if digits < 8 else dtype.size * 8
    bits = _random_bits(key, shape, getattr(mx, f"uint{width}"))
    # Graphics processors lack float64.
    with mx.stream(mx.cpu):
        unit = (bits >> (width - digits)).astype(mx.float64) * 2.0**-digits
        low, high = mx.array(low, dtype=dtype), mx.array(high, dtype=dtype)
        if width < 32:
            return mx.maximum(unit.astype(dtype) * (high - low) + low, low)
        scaled = unit * (high - low).astype(mx.float64) + low.astype(mx.float64)
        return mx.maximum(scaled.astype(dtype), low)


def _normal(key, shape, dtype):
    """Standard normal floats, from uniform floats by the inverse error function."""
    low = mx.finfo(dtype).eps / 2 - 1
    u = _uniform(key, shape, dtype, low, 1.0)
    root = mx.array(math.sqrt(2), dtype=dtype)
    if dtype == mx.float64:
        return root * _erf_inv(u)
    return root * mx.erfinv(u.astype(mx.float32)).astype(dtype)


def _folded(key, data):
    """A new key from MLX's generator, derived from `key` and a number."""
    return mx.random.split(key ^ mx.array([0, data], dtype=mx.uint32), 1)[0]


def _bits(key, shape, dtype):
    """Uniform unsigned integers from MLX's generator."""
    words = mx.random.split(key, math.prod(shape))
    if dtype.size == 8:
        high, low = words[:, 0].astype(mx.uint64), words[:, 1].astype(mx.uint64)
        return (high << 32 | low).reshape(shape)
    return words[:, 0].astype(dtype).reshape(shape)
