"""Functions of two or three elements."""

from __future__ import annotations

import torch

from .row import BOOL, INT, M, V, row

ROWS = {
    "Xlogy": row(torch.xlogy),
    "Add": row(torch.add),
    "Subtract": row(torch.sub),
    "Multiply": row(torch.mul),
    "Divide": row(torch.div),
    "FloorDivide": row(lambda x, y: torch.div(x, y, rounding_mode="floor")),
    "Modulo": row(torch.remainder),
    "Power": row(torch.pow),
    "Atan2": row(torch.atan2),
    "Minimum": row(torch.minimum),
    "Maximum": row(torch.maximum),
    "Equal": row(torch.eq),
    "NotEqual": row(torch.ne),
    "Greater": row(torch.gt),
    "GreaterEqual": row(torch.ge),
    "Less": row(torch.lt),
    "LessEqual": row(torch.le),
    "LogicalAnd": row(torch.logical_and, M, V, dtypes=BOOL),
    "LogicalOr": row(torch.logical_or, M, V, dtypes=BOOL),
    "LogicalXor": row(torch.logical_xor, M, V, dtypes=BOOL),
    "BitwiseAnd": row(torch.bitwise_and, M, V, dtypes=INT),
    "BitwiseOr": row(torch.bitwise_or, M, V, dtypes=INT),
    "BitwiseXor": row(torch.bitwise_xor, M, V, dtypes=INT),
    "ShiftLeft": row(torch.bitwise_left_shift, M, V, dtypes=INT),
    "ShiftRight": row(torch.bitwise_right_shift, M, V, dtypes=INT),
    "Where": row(torch.where),
}
