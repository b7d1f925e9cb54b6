"""Functions for all frameworks. A file contains those that it calls."""


def _declared(results, place, *shapes):
    """Checks that the results of a custom operation have the declared shapes."""
    several = len(shapes) > 1 and isinstance(results, (tuple, list))
    actual = [_shape_of(result) for result in (results if several else [results])]
    fits = len(actual) == len(shapes) and all(
        isinstance(have, tuple)
        and len(have) == len(want)
        and all(size in (None, own) for own, size in zip(have, want))
        for have, want in zip(actual, shapes)
    )
    if not fits:
        got = ", ".join(map(str, actual))
        expected = ", ".join(str(tuple(shape)) for shape in shapes)
        raise _ShapeError(
            "Incompatible shapes: a custom operation did not return the declared shapes"
            f"\n  where: {place}\n  got: {got}\n  expected: {expected}"
        )
    return results


def _returns(place, declared):
    """Checks that a custom operation returns the declared dtypes, by the result."""

    def checked(function):
        def call(*operands):
            results = function(*operands)
            several = len(declared) > 1 and isinstance(results, (tuple, list))
            each = results if several else [results]
            for (name, dtypes), result in zip(declared.items(), each):
                _check_dtype(place, name, result, dtypes)
            return results

        return call

    return checked


def _check_dtype(place, name, result, dtypes):
    """Checks that a result has a declared dtype, or one of two."""
    dtypes = dtypes if isinstance(dtypes, tuple) else (dtypes,)
    # The check of shapes refuses what is no array.
    if hasattr(result, "dtype") and not _has_dtype(result, dtypes):
        got = _dtype_name(result.dtype)
        expected = " or ".join(map(_dtype_name, dtypes))
        raise _ShapeError(
            "Incompatible dtypes: a custom operation did not return the declared dtype"
            f"\n  where: {place}\n  got: {got} for `{name}`\n  expected: {expected}"
            f"\n  hint: cast `{name}` to {expected} in the body"
        )


def _has_dtype(result, dtypes):
    """Whether an array has one of these dtypes."""
    return any(result.dtype == dtype for dtype in dtypes)


def _dtype_name(dtype):
    """The name of a dtype in its framework."""
    return getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]


class _ShapeError(ValueError):
    """Arrays of other shapes or dtypes than declared."""

    code = "E0202"


def _shape_of(result):
    """The shape of an array, or the name of the type if it is not an array."""
    return tuple(result.shape) if hasattr(result, "shape") else type(result).__name__
