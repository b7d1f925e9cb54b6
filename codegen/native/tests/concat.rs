//! Concatenations of more parts than loops look through.

mod machine;

use machine::{check, f};

#[test]
fn concatenations_of_many_parts() {
    for axis in [0, 1, 2] {
        for dtype in ["f32", "bf16", "bool"] {
            let dims = |size: &str| match axis {
                0 => format!("{size} x m x 5"),
                1 => format!("n x {size} x 5"),
                _ => format!("n x m x {size}"),
            };
            let sizes = ["3", "17", "0", "k", "1", "33"];
            let part =
                |(i, size): (usize, &&str)| format!("%{i}: t<{} x {dtype}> \"x{i}\"", dims(size));
            let parts: Vec<String> = sizes.iter().enumerate().map(part).collect();
            let all = format!("t<{} x {dtype}>", dims("(k + 54)"));
            let signature = format!("{}) -> (y: {all})", parts.join(", "));
            let body =
                format!("  %6 = concat(%0, %1, %2, %3, %4, %5) {{axis = {axis}}}\n  return %6");
            for n in [0, 1, 7, 40] {
                check(&f(&signature, &body), &[("n", n), ("m", 3), ("k", n)]);
            }
        }
    }
}

#[test]
fn concatenations_of_views() {
    let body = "  %5 = transpose(%0) {permutation = [1, 0]}\n  %6 = reverse(%1) {axes = [1]}
  %7 = slice(%2) {axes = [1], starts = [1], limits = [?]}\n  %8 = exp(%3)
  %9 = concat(%5, %6, %7, %8, %4) {axis = 1}\n  %10 = neg(%9)\n  return %10";
    let signature = "%0: t<n x 3 x f32> \"a\", %1: t<3 x n x f32> \"b\", %2: t<3 x 9 x f32> \"c\", \
                     %3: t<3 x n x f32> \"d\", %4: t<3 x 2 x f32> \"e\") -> (y: t<3 x (3*n + 10) x f32>)";
    for n in [0, 1, 5, 33] {
        check(&f(signature, body), &[("n", n)]);
    }
}
