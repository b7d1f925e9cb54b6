"""Custom operations of the tests: texts of functions, and bodies for each backend."""

from __future__ import annotations

import numpy as np

import mithril as ml

SWISH = """mithril 1

func @swish(%x: tensor<*b x float>) -> (y: tensor<*b x float>) {
  %s = sigmoid(%x)
  %y = mul(%x, %s)
  return %y
}
"""

# A function that calls another one, with two parameters of one symbolic dim.
AFFINE = """mithril 1

func @affine(%x: tensor<*b x n x float>, %w: tensor<n x 3 x float> param,
             %b: tensor<3 x float> param) -> (output: tensor<*b x 3 x float>) {
  %h = matmul(%x, %w)
  %0 = add(%h, %b)
  %1 = call(%0) {callee = @swish}
  return %1
}

func @swish(%x: tensor<*b x float>) -> (y: tensor<*b x float>) {
  %s = sigmoid(%x)
  %y = mul(%x, %s)
  return %y
}
"""


def swish(x):
    return x / (1 + np.exp(-x))


def swish_gradient(x):
    s = 1 / (1 + np.exp(-x))
    return s * (1 + x * (1 - s))


def bodies(**more) -> dict[str, str]:
    return {
        "numpy": "e = np.exp(-x)\nreturn x / (1 + e)",
        "torch": "return F.silu(x)",
        "jax": "return jax.nn.silu(x)",
        # MLX computes `mx.exp` in single precision.
        "mlx": "return x / (1 + mx.power(2.718281828459045, -x))",
        "tinygrad": "return x / (1 + (-x).exp())",
        **more,
    }


GRADIENT = {
    "numpy": """
        s = 1 / (1 + np.exp(-x))
        return output_gradient * (s + output * (1 - s))
    """,
    "torch": "s = torch.sigmoid(x)\nreturn output_gradient * (s + output * (1 - s))",
    "jax": "s = jax.nn.sigmoid(x)\nreturn output_gradient * (s + output * (1 - s))",
    "mlx": """
        s = 1 / (1 + mx.power(2.718281828459045, -x))
        return output_gradient * (s + output * (1 - s))
    """,
    "tinygrad": "s = x.sigmoid()\nreturn output_gradient * (s + output * (1 - s))",
}


C = {
    "c": "for (int64_t i = 0; i < x_size; ++i) output[i] = x[i] / (1 + exp(-x[i]));",
    "gradient": {
        "c": """
            for (int64_t i = 0; i < x_size; ++i) {
                double s = 1 / (1 + exp(-x[i]));
                x_gradient[i] = output_gradient[i] * (s + output[i] * (1 - s));
            }
        """
    },
}


def product() -> ml.Block:
    """A product with two results, of arrays of two dtypes."""
    return ml.custom(
        name="scaled_product",
        shape="(x: [n, k], w: [k, m], scale: i64[]) -> (product: [n, m], scaled: [n, m])",
        numpy="y = x @ w\nreturn y, y * scale",
        torch="y = x @ w\nreturn y, y * scale",
        jax="y = x @ w\nreturn y, y * scale",
        mlx="y = x @ w\nreturn y, y * scale",
        tinygrad="y = x @ w\nreturn y, y * scale",
        gradient=dict.fromkeys(
            ("numpy", "torch", "jax", "mlx", "tinygrad"),
            """
            g = product_gradient + scaled_gradient * scale
            return g @ w.T, x.T @ g
            """,
        ),
    )
