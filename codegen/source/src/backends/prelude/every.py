"""Functions that every framework uses; files are given the ones they call."""


def _declared(results, place, *shapes):
    """The results of a custom operation, whose shapes are those that it declares."""
    several = len(shapes) > 1 and isinstance(results, (tuple, list))
    given = [_shape_of(result) for result in (results if several else [results])]
    fits = len(given) == len(shapes) and all(
        isinstance(have, tuple)
        and len(have) == len(want)
        and all(size in (None, own) for own, size in zip(have, want))
        for have, want in zip(given, shapes)
    )
    if not fits:
        got = ", ".join(map(str, given))
        expected = ", ".join(str(tuple(shape)) for shape in shapes)
        raise _ShapeError(
            "Incompatible shapes: a custom operation gives other arrays than declared"
            f"\n  where: {place}\n  got: {got}\n  expected: {expected}"
        )
    return results


class _ShapeError(ValueError):
    """Arrays of other shapes than declared."""

    code = "E0202"


def _shape_of(result):
    """The shape of an array, or the name of another type."""
    return tuple(result.shape) if hasattr(result, "shape") else type(result).__name__
