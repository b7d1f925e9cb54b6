"""Evaluates the op table's scalar expressions in hundreds of digits."""

import mpmath
from mpmath import mp

# Enough digits for 1 + x where x is the smallest normal double.
mp.dps = 340


def remainder(x, y):
    """The remainder with the sign of `y`."""
    return x - y * mpmath.floor(x / y)


def power(x, y):
    """The power; NaN if it is not a real number."""
    return x**y if x >= 0 or y == mpmath.floor(y) else mpmath.nan


def real(function):
    """Wraps a function to return NaN outside its domain, where mpmath returns a complex number."""

    def checked(x):
        y = function(x)
        return mpmath.nan if isinstance(y, mpmath.mpc) else y

    return checked


PRIMITIVES = {
    "neg": lambda x: -x,
    "abs": abs,
    "sign": mpmath.sign,
    "floor": mpmath.floor,
    "ceil": mpmath.ceil,
    "round": mpmath.nint,
    "exp": mpmath.exp,
    "expm1": mpmath.expm1,
    "log": real(mpmath.log),
    "log1p": real(mpmath.log1p),
    "sqrt": real(mpmath.sqrt),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "asin": real(mpmath.asin),
    "acos": real(mpmath.acos),
    "atan": mpmath.atan,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "is_nan": mpmath.isnan,
    "is_inf": mpmath.isinf,
    "not": lambda x: not x,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "floor_div": lambda x, y: mpmath.floor(x / y),
    "mod": remainder,
    "pow": power,
    "atan2": mpmath.atan2,
    "min": min,
    "max": max,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "and": lambda x, y: x and y,
    "or": lambda x, y: x or y,
    "xor": lambda x, y: x != y,
    "select": lambda x, y, z: y if x else z,
    "cast": mpmath.mpf,
}


def value(expression, operands):
    """The value of an expression, whose nodes are in topological order; NaN if there is none."""
    values = []
    for node in expression:
        if isinstance(node, str):
            values.append(mpmath.mpf(node))
        elif isinstance(node, dict):
            values.append(mpmath.mpf(float(operands[node["operand"]])))
        else:
            name, places = node
            try:
                values.append(PRIMITIVES[name](*(values[i] for i in places)))
            except (ZeroDivisionError, ValueError, OverflowError):
                return mpmath.nan
    return values[-1]
