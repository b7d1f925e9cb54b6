"""Random numbers from keys in PyTorch. A file contains the functions that it calls."""

import hashlib
import math

import torch


def _threefry(key, high, low):
    """Encrypts counters of two words: Threefry-2x32-20 (Salmon et al. 2011)."""
    mask = 0xFFFFFFFF
    first, second = key.to(torch.int64).unbind()
    keys = [first, second, first ^ second ^ 0x1BD11BDA]
    x, y = (high + keys[0]) & mask, (low + keys[1]) & mask
    for i in range(20):
        bits = (13, 15, 26, 6, 17, 29, 16, 24)[i % 8]
        x = (x + y) & mask
        y = ((y << bits | y >> (32 - bits)) & mask) ^ x
        if i % 4 == 3:
            n = i // 4 + 1
            x, y = (x + keys[n % 3]) & mask, (y + keys[(n + 1) % 3] + n) & mask
    return x, y


def _key_split(key, count=2):
    """`count` new keys derived from `key`, as rows."""
    low = torch.arange(count, dtype=torch.int64, device=key.device)
    return torch.stack(_threefry(key, torch.zeros_like(low), low), dim=1).to(
        torch.uint32
    )


def _key_fold(key, data):
    """A new key derived from `key` and a number."""
    low = torch.tensor([data], dtype=torch.int64, device=key.device)
    return torch.cat(_threefry(key, torch.zeros_like(low), low)).to(torch.uint32)


def _words(key, shape, width):
    """Random words of up to 32 bits, or their two halves, as int64."""
    counts = torch.arange(math.prod(shape), dtype=torch.int64, device=key.device)
    high, low = _threefry(key, counts >> 32, counts & 0xFFFFFFFF)
    if width == 64:
        return high.reshape(shape), low.reshape(shape)
    return ((high ^ low) & (2**width - 1)).reshape(shape)


def _random_bits(key, shape, dtype):
    """Uniform unsigned integers."""
    width = torch.iinfo(dtype).bits
    if width == 64:
        high, low = _words(key, shape, width)
        return (high << 32 | low).view(dtype)
    return _words(key, shape, width).to(dtype)


def _uniform(key, shape, dtype, low=0.0, high=1.0):
    """Uniform floats in [low, high)."""
    digits = -int(math.log2(torch.finfo(dtype).eps))
    width = 8 if digits < 8 else torch.finfo(dtype).bits
    low = torch.tensor(low, dtype=dtype, device=key.device)
    span = torch.tensor(high, dtype=dtype, device=key.device) - low
    if width == 64:
        high, rest = _words(key, shape, width)
        unit = (high << 20 | rest >> 12).to(torch.float64) * 2.0**-digits
    else:
        unit = (_words(key, shape, width) >> (width - digits)).to(
            torch.float64
        ) * 2.0**-digits
    if width < 32:
        return torch.maximum(unit.to(dtype) * span + low, low)
    return torch.maximum((unit * span.to(torch.float64) + low).to(dtype), low)


def _normal(key, shape, dtype):
    """Standard normal floats, from uniform floats by the inverse error function."""
    u = _uniform(key, shape, dtype, torch.finfo(dtype).eps / 2 - 1, 1.0)
    work = torch.float64 if dtype == torch.float64 else torch.float32
    root = torch.tensor(math.sqrt(2), dtype=dtype, device=key.device)
    return root * torch.erfinv(u.to(work)).to(dtype)


def _key_words(key):
    """The words of a key as Python numbers, read from the device once."""
    return key if isinstance(key, tuple) else tuple(key.tolist())


def _generator(key, device="cpu"):
    """A PyTorch generator, seeded by the words of a key."""
    words = str(list(_key_words(key))).encode()
    seed = hashlib.blake2b(words, digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(seed, "little") >> 1)


def _keys(key, count, device="cpu"):
    """`count` new keys derived from `key`, as rows."""
    return _bits(key, (count, 2), torch.uint32, device)


def _bits(key, shape, dtype, device="cpu"):
    """Uniform unsigned integers from PyTorch's generator."""
    generator = _generator(key, device)
    low, high = torch.randint(2**32, (2, *shape), generator=generator, device=device)
    width = torch.iinfo(dtype).bits
    if width == 64:
        return (high << 32 | low).view(dtype)
    return (low & (2**width - 1)).to(dtype)


def _rand(key, shape, dtype, low, high, device="cpu"):
    """Uniform floats in [low, high) from PyTorch's generator."""
    x = torch.empty(shape, dtype=dtype, device=device)
    x = x.uniform_(low, high, generator=_generator(key, device))
    return torch.where(x < high, x, low)  # x may be rounded up to `high`
