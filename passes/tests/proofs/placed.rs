//! Uses of the rules of slices, broadcasts, layouts and indices.

use super::examples::{CUBE, Example, LONE, SAME, on, one};

const JOINED: &str = "%x: tensor<n x f64>, %y: tensor<6 x f64>";
const TRUTHS: &str = "%x: tensor<n x 5 x 3 x bool>";
const PARTS: &str = "%x: tensor<n x 4 x f64>, %y: tensor<n x 6 x f64>";

pub const PLACED: &[Example] = &[
    on(
        "slice-slice",
        CUBE,
        "tensor<n x 2 x 1 x f64>",
        "%a = slice(%x) {axes = [1], starts = [-4], limits = [?], steps = [2]}\n%r = slice(%a) {axes = [1, 2], starts = [0 x -1], limits = [3 x ?]}",
    ),
    on(
        "slice-slice",
        JOINED,
        "tensor<5 x f64>",
        "%a = concat(%x, %y) {axis = 0}\n%b = slice(%a) {axes = [0], starts = [n], limits = [?]}\n%r = slice(%b) {axes = [0], starts = [0], limits = [5]}",
    ),
    on(
        "slice-concat",
        JOINED,
        "tensor<n x f64>",
        "%a = concat(%x, %y) {axis = 0}\n%r = slice(%a) {axes = [0], starts = [0], limits = [n]}",
    ),
    on(
        "slice-concat",
        JOINED,
        "tensor<4 x f64>",
        "%a = concat(%x, %y, %x) {axis = -1}\n%r = slice(%a) {axes = [0], starts = [n + 1], limits = [n + 5]}",
    ),
    on(
        "slice-concat",
        PARTS,
        "tensor<n x 2 x f64>",
        "%a = concat(%x, %y, %x) {axis = 1}\n%r = slice(%a) {axes = [1, 0], starts = [6 x 0], limits = [9 x ?], steps = [2, 1]}",
    ),
    one(
        "concat-slices",
        "tensor<n x 4 x f64>",
        "%a = slice(%x) {axes = [1], starts = [1], limits = [2]}\n%b = slice(%x) {axes = [1], starts = [2], limits = [4]}\n%c = slice(%x) {axes = [-1], starts = [4], limits = [?]}\n%r = concat(%a, %b, %c) {axis = 1}",
    ),
    on(
        "concat-slices",
        "%x: tensor<5 x n + m x f64>, %y: tensor<m x f64>",
        "tensor<2 x n + m x f64>",
        "%a = slice(%x) {axes = [1, 0], starts = [0 x 1], limits = [n x 3]}\n%b = slice(%x) {axes = [1, 0], starts = [n x 1], limits = [n + m x 3]}\n%r = concat(%a, %b) {axis = 1}",
    ),
    on(
        "concat-slices",
        JOINED,
        "tensor<2 * n + 3 x f64>",
        "%a = slice(%y) {axes = [0], starts = [0], limits = [2]}\n%b = slice(%y) {axes = [0], starts = [2], limits = [3]}\n%r = concat(%x, %a, %b, %x) {axis = 0}",
    ),
    on(
        "sum-broadcast",
        CUBE,
        "tensor<n x 3 x f64>",
        "%d = broadcast_in_dim(%x) {shape = [4 x n x 5 x 3]}\n%r = sum(%d) {axes = [0, 2]}",
    ),
    one(
        "sum-broadcast",
        "tensor<n x f64>",
        "%d = broadcast_in_dim(%x) {shape = [3 x 5 x 2 x n], axes = [3, 1]}\n%r = sum(%d) {axes = [0, 1, 2]}",
    ),
    on(
        "sum-broadcast",
        LONE,
        "tensor<4 x f64>",
        "%d = broadcast_in_dim(%x) {shape = [4 x 7 x 5]}\n%r = sum(%d) {axes = [1, 2]}",
    ),
    on(
        "sum-broadcast-int",
        "%x: tensor<n x i64>",
        "tensor<n x 1 x i64>",
        "%d = broadcast_in_dim(%x) {shape = [n x 7], axes = [0]}\n%r = sum(%d) {axes = [1], keepdim = true}",
    ),
    on(
        "mean-broadcast",
        CUBE,
        "tensor<n x 1 x 2 x f64>",
        "%d = broadcast_in_dim(%x) {shape = [4 x n x 2 x 5 x 3], axes = [1, 3, 4]}\n%m = mean(%d) {axes = [0, 3, 4], keepdim = true}\n%r = reshape(%m) {shape = [n x 1 x 2]}",
    ),
    one(
        "mean-repeated",
        SAME,
        "%d = broadcast_in_dim(%x) {shape = [4 x n x 5]}\n%r = mean(%d) {axes = [0]}",
    ),
    one(
        "max-broadcast",
        "tensor<4 x n x f64>",
        "%d = broadcast_in_dim(%x) {shape = [4 x 3 x n x 5]}\n%r = max(%d) {axes = [1, -1]}",
    ),
    one(
        "min-broadcast",
        "tensor<n x f64>",
        "%d = broadcast_in_dim(%x) {shape = [4 x n x 5]}\n%r = min(%d) {axes = [0, 2]}",
    ),
    on(
        "any-broadcast",
        TRUTHS,
        "tensor<n x 3 x bool>",
        "%d = broadcast_in_dim(%x) {shape = [4 x n x 5 x 3]}\n%r = any(%d) {axes = [0, 2]}",
    ),
    on(
        "all-broadcast",
        TRUTHS,
        "tensor<n x 3 x bool>",
        "%d = broadcast_in_dim(%x) {shape = [4 x n x 5 x 3]}\n%r = all(%d) {axes = [0, 2]}",
    ),
    on(
        "sum-transposed",
        CUBE,
        "tensor<5 x f64>",
        "%d = transpose(%x) {permutation = [2, 1, 0]}\n%r = sum(%d) {axes = [0, 2]}",
    ),
    on(
        "mean-transposed",
        CUBE,
        "tensor<1 x 5 x 1 x f64>",
        "%d = swap_axes(%x) {first = 0, second = 2}\n%r = mean(%d) {axes = [0, 2], keepdim = true}",
    ),
    on(
        "sum-transpose",
        CUBE,
        "tensor<3 x 5 x f64>",
        "%d = transpose(%x) {permutation = [2, 0, 1]}\n%r = sum(%d) {axes = [1]}",
    ),
    on(
        "sum-reshape",
        CUBE,
        "tensor<n x f64>",
        "%d = reshape(%x) {shape = [n x 15]}\n%r = sum(%d) {axes = [1]}",
    ),
    on(
        "mean-reshape",
        CUBE,
        "tensor<3 x 1 x f64>",
        "%d = reshape(%x) {shape = [5 * n x 1 x 3]}\n%m = mean(%d) {axes = [0]}\n%r = transpose(%m) {permutation = [1, 0]}",
    ),
    on(
        "max-reshape",
        CUBE,
        "tensor<n x f64>",
        "%d = reshape(%x) {shape = [n x 3 x 5]}\n%r = max(%d) {axes = [1, 2]}",
    ),
    on(
        "mean-transpose",
        CUBE,
        "tensor<3 x 5 x f64>",
        "%d = transpose(%x) {permutation = [2, 0, 1]}\n%r = mean(%d) {axes = [1]}",
    ),
    on(
        "prod-transpose",
        CUBE,
        "tensor<3 x 5 x f64>",
        "%d = transpose(%x) {permutation = [2, 0, 1]}\n%r = prod(%d) {axes = [1]}",
    ),
    on(
        "max-transpose",
        CUBE,
        "tensor<3 x 5 x f64>",
        "%d = transpose(%x) {permutation = [2, 0, 1]}\n%r = max(%d) {axes = [1]}",
    ),
    on(
        "min-transpose",
        CUBE,
        "tensor<3 x 5 x f64>",
        "%d = transpose(%x) {permutation = [2, 0, 1]}\n%r = min(%d) {axes = [1]}",
    ),
    on(
        "any-transpose",
        TRUTHS,
        "tensor<3 x 5 x bool>",
        "%d = transpose(%x) {permutation = [2, 0, 1]}\n%r = any(%d) {axes = [1]}",
    ),
    on(
        "all-transpose",
        TRUTHS,
        "tensor<3 x 5 x bool>",
        "%d = transpose(%x) {permutation = [2, 0, 1]}\n%r = all(%d) {axes = [1]}",
    ),
    on(
        "prod-reshape",
        CUBE,
        "tensor<n x 1 x f64>",
        "%d = reshape(%x) {shape = [n x 15]}\n%r = prod(%d) {axes = [1], keepdim = true}",
    ),
    on(
        "min-reshape",
        CUBE,
        "tensor<n x 1 x f64>",
        "%d = reshape(%x) {shape = [n x 15]}\n%r = min(%d) {axes = [1], keepdim = true}",
    ),
    on(
        "any-reshape",
        TRUTHS,
        "tensor<n x 1 x bool>",
        "%d = reshape(%x) {shape = [n x 15]}\n%r = any(%d) {axes = [1], keepdim = true}",
    ),
    on(
        "all-reshape",
        TRUTHS,
        "tensor<n x 1 x bool>",
        "%d = reshape(%x) {shape = [n x 15]}\n%r = all(%d) {axes = [1], keepdim = true}",
    ),
    on(
        "one-hot-take",
        "%x: tensor<n x 5 x f64>, %w: tensor<5 x 3 x f64>",
        "tensor<n x 3 x f64>",
        "%i = argmax(%x) {axis = 1}\n%o = one_hot(%i) {classes = 5, dtype = f64}\n%r = matmul(%o, %w)",
    ),
    on(
        "one-hot-select",
        "%i: tensor<n x i64>, %w: tensor<2 x 3 x f64>",
        "tensor<n x 3 x f64>",
        "%o = one_hot(%i) {classes = 2, dtype = f64}\n%r = matmul(%o, %w)",
    ),
    on(
        "one-hot-select",
        "%i: tensor<n x i64>, %w: tensor<2 x 3 x f64>",
        "tensor<n x 3 x f64>",
        "%c = constant() {value = dense<tensor<i64>, 1>}\n%j = sub(%i, %c)\n%e = expand_dims(%j) {axes = [-1]}\n%t = iota() {shape = [2], dtype = i64}\n%q = eq(%e, %t)\n%o = cast(%q) {dtype = f64}\n%r = matmul(%o, %w)",
    ),
    one(
        "take-of-iota",
        "tensor<n x i32>",
        "%c = iota() {shape = [5], dtype = i32}\n%i = argmin(%x) {axis = 1}\n%r = take(%c, %i) {axis = 0}",
    ),
    one(
        "take-by-iota",
        "tensor<n x 3 x f64>",
        "%c = iota() {shape = [3], dtype = i64}\n%r = take(%x, %c) {axis = 1}",
    ),
    one(
        "take-by-iota",
        SAME,
        "%c = iota() {shape = [n], dtype = i32}\n%r = take(%x, %c) {axis = -2}",
    ),
    on(
        "products-joined",
        "%x: tensor<n x 4 x f64>, %y: tensor<4 x 5 x f64>, %z: tensor<4 x 3 x f64>",
        "tensor<n x 8 x f64>",
        "%a = matmul(%x, %y)\n%b = matmul(%x, %z)\n%r = concat(%b, %a) {axis = 1}",
    ),
    on(
        "products-joined",
        "%x: tensor<n x 4 x f64>, %y: tensor<2 x 4 x n x f64>, %z: tensor<2 x 4 x 3 x f64>, %b: tensor<n x f64>, %c: tensor<3 x f64>",
        "tensor<2 x n x 3 + n x f64>",
        "%p = matmul(%x, %y)\n%q = matmul(%x, %z)\n%s = add(%p, %b)\n%t = add(%c, %q)\n%r = concat(%t, %s) {axis = 2}",
    ),
    on(
        "products-joined",
        "%x: tensor<n x 4 x f64>, %y: tensor<3 x 4 x f64>, %z: tensor<4 x 5 x f64>, %b: tensor<5 x f64>",
        "tensor<3 + n x 5 x f64>",
        "%a = matmul(%x, %z)\n%c = add(%a, %b)\n%d = matmul(%y, %z)\n%e = add(%d, %b)\n%r = concat(%e, %c) {axis = 0}",
    ),
    on(
        "products-joined",
        "%x: tensor<n x 4 x f64>, %y: tensor<3 x 4 x f64>, %z: tensor<4 x f64>",
        "tensor<3 + n x f64>",
        "%a = matmul(%x, %z)\n%b = matmul(%y, %z)\n%r = concat(%b, %a) {axis = 0}",
    ),
    on(
        "products-joined",
        "%x: tensor<2 x n x 4 x f64>, %y: tensor<3 x 2 x 4 x 5 x f64>, %z: tensor<3 x 2 x 4 x 2 x f64>",
        "tensor<2 x n x 3 x 7 x f64>",
        "%a = dot_general(%x, %y) {x_batch = [0], y_batch = [1], x_contract = [2], y_contract = [2]}\n%b = dot_general(%x, %z) {x_batch = [0], y_batch = [1], x_contract = [-1], y_contract = [2]}\n%c = dot_general(%x, %z) {x_batch = [0], y_batch = [1], x_contract = [2], y_contract = [2]}\n%d = add(%b, %c)\n%r = concat(%d, %a) {axis = 3}",
    ),
    on(
        "products-joined",
        "%x: tensor<2 x n x 4 x f64>, %y: tensor<2 x 3 x 4 x f64>, %z: tensor<5 x 2 x 4 x 6 x f64>",
        "tensor<2 x 3 + n x 5 x 6 x f64>",
        "%a = dot_general(%x, %z) {x_batch = [0], y_batch = [1], x_contract = [2], y_contract = [2]}\n%b = dot_general(%y, %z) {x_batch = [0], y_batch = [1], x_contract = [2], y_contract = [2]}\n%r = concat(%b, %a) {axis = 1}",
    ),
];
