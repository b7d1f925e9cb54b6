//! Rows of known sizes that are not multiples of a vector, of every dtype: what is behind them
//! stays as it is.

mod machine;

use machine::{check, f};
use mithril_ir::dtype::DType;

/// One lane over, one too few, and less than a vector.
const WIDTHS: [usize; 6] = [1, 3, 17, 31, 33, 65];

/// Functions of rows of dtype `T` and width `N`, of which `M` is the dtype of a mean.
const FUNCTIONS: [(&str, &str); 7] = [
    ("%0: t<3 x N x T> \"x\") -> (y: t<3 x N x T>)", "  %1 = add(%0, %0)\n  return %1"),
    (
        "%0: t<2 x 4 x N x T> \"x\") -> (y: t<2 x N x T>)",
        "  %1 = max(%0) {axes = [1]}\n  return %1",
    ),
    (
        "%0: t<2 x 4 x N x T> \"x\") -> (y: t<2 x N x T>)",
        "  %1 = sum(%0) {axes = [1]}\n  return %1",
    ),
    (
        "%0: t<N x 3 x T> \"x\") -> (y: t<3 x N x T>)",
        "  %1 = transpose(%0) {permutation = [1, 0]}\n  %2 = add(%1, %1)\n  return %2",
    ),
    (
        "%0: t<3 x N x T> \"x\") -> (y: t<3 x N x T>)",
        "  %1 = reverse(%0) {axes = [1]}\n  return %1",
    ),
    (
        "%0: t<5 x N x T> \"x\", %1: t<3 x i64> \"i\") -> (y: t<3 x N x T>)",
        "  %2 = take(%0, %1) {axis = 0}\n  return %2",
    ),
    (
        "%0: t<3 x N x T> \"x\", %1: t<3 x N x T> \"y\") -> (z: t<3 x N x bool>)",
        "  %2 = lt(%0, %1)\n  return %2",
    ),
];

#[test]
fn nothing_after_a_row_is_written() {
    let dtypes = DType::ALL.iter().filter(|d| !d.is_storage_only() && d.bits() >= 8);
    for dtype in dtypes.filter(|d| **d != DType::Bool) {
        for (signature, body) in FUNCTIONS {
            for width in WIDTHS {
                let own = |text: &str| {
                    text.replace("N x", &format!("{width} x"))
                        .replace("x T>", &format!("x {}>", dtype.name()))
                };
                check(&f(&own(signature), body), &[]);
            }
        }
    }
}

#[test]
fn conversions_write_nothing_after_a_row() {
    for from in DType::ALL.iter().filter(|d| !d.is_storage_only()) {
        for to in DType::ALL.iter().filter(|d| !d.is_storage_only()) {
            for width in [1, 17, 33] {
                let signature =
                    format!("%0: t<3 x {width} x {from}> \"x\") -> (y: t<3 x {width} x {to}>)");
                check(
                    &f(&signature, &format!("  %1 = cast(%0) {{dtype = {to}}}\n  return %1")),
                    &[],
                );
            }
        }
    }
}

#[test]
fn half_sums_and_products_write_nothing_after_a_row() {
    for dtype in ["bf16", "f16"] {
        for width in WIDTHS {
            let own = |text: &str| text.replace('N', &width.to_string()).replace('T', dtype);
            let softmax = own("%0: t<3 x N x T> \"x\") -> (y: t<3 x N x T>)");
            check(&f(&softmax, "  %1 = softmax(%0)\n  return %1"), &[]);
            let product =
                own("%0: t<3 x 8 x T> \"x\", %1: t<8 x N x T> \"w\") -> (y: t<3 x N x T>)");
            check(&f(&product, "  %2 = matmul(%0, %1)\n  return %2"), &[]);
        }
    }
}
