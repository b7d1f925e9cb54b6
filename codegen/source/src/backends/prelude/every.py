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


class _ShapeError(ValueError):
    """Arrays of other shapes than declared."""

    code = "E0202"


def _shape_of(result):
    """The shape of an array, or the name of the type if it is not an array."""
    return tuple(result.shape) if hasattr(result, "shape") else type(result).__name__
