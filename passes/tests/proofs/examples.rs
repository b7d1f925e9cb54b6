//! Uses of the rules that need attributes or shapes.

/// A function of one body, on which a rule fires.
pub struct Example {
    pub rule: &'static str,
    pub args: &'static str,
    pub result: &'static str,
    pub body: &'static str,
}

pub const ROWS: &str = "%x: tensor<n x 5 x f64>";
pub const SAME: &str = "tensor<n x 5 x f64>";
const ROW: &str = "tensor<n x 1 x f64>";

const PAIR: &str = "%x: tensor<n x 5 x f64>, %y: tensor<n x 1 x f64>";
const CLASSES: &str = "%x: tensor<n x 5 x f64>, %i: tensor<n x i64>";
const HEADS: &str =
    "%q: tensor<2 x n x 4 x f64>, %k: tensor<2 x 3 x 4 x f64>, %v: tensor<2 x 3 x 6 x f64>";
const MASKED: &str = "%q: tensor<2 x n x 4 x f64>, %k: tensor<2 x 3 x 4 x f64>, %v: tensor<2 x 3 x 6 x f64>, %m: tensor<n x 3 x f64>";
const CHOSEN: &str = "%q: tensor<2 x n x 4 x f64>, %k: tensor<2 x 3 x 4 x f64>, %v: tensor<2 x 3 x 6 x f64>, %m: tensor<n x 3 x bool>";
const SEEN: &str = "tensor<2 x n x 6 x f64>";
const WEIGHTS: &str = "%x: tensor<n x 5 x f64>, %w: tensor<5 x f64>, %b: tensor<5 x f64>";
const THREE: &str = "%x: tensor<n x 4 x f64>, %y: tensor<4 x 5 x f64>, %z: tensor<5 x 3 x f64>";
const TWO: &str = "%x: tensor<n x 4 x f64>, %y: tensor<4 x 5 x f64>";
const SUMS: &str = "%x: tensor<n x 4 x f64>, %y: tensor<n x 4 x f64>, %z: tensor<4 x 5 x f64>";
const BOTH: &str = "%x: tensor<n x 5 x f64>, %y: tensor<n x 5 x f64>";
const NUMBERED: &str = "%x: tensor<n x 5 x f64>, %c: tensor<f64>";
pub const LONE: &str = "%x: tensor<1 x 5 x f64>, %y: tensor<1 x 5 x f64>";
const CROSSED: &str = "%x: tensor<2 x n x 4 x 5 x f64>, %y: tensor<2 x 3 x 4 x 5 x f64>";
const SQUARE: &str =
    "%q: tensor<2 x n x 4 x f64>, %k: tensor<2 x n x 4 x f64>, %v: tensor<2 x n x 6 x f64>";
pub const CUBE: &str = "%x: tensor<n x 5 x 3 x f64>";

pub const fn one(rule: &'static str, result: &'static str, body: &'static str) -> Example {
    on(rule, ROWS, result, body)
}

pub const fn on(
    rule: &'static str,
    args: &'static str,
    result: &'static str,
    body: &'static str,
) -> Example {
    Example { rule, args, result, body }
}

pub const COMPOSED: &[Example] = &[
    one(
        "softmax",
        SAME,
        "%e = exp(%x)\n%s = sum(%e) {axes = [1], keepdim = true}\n%r = div(%e, %s)",
    ),
    on("softmax-shift", PAIR, SAME, "%d = sub(%x, %y)\n%r = softmax(%d)"),
    on("softmax-shift-add", PAIR, SAME, "%d = add(%y, %x)\n%r = softmax(%d) {axis = 1}"),
    one("exp-log-softmax", SAME, "%d = log_softmax(%x)\n%r = exp(%d)"),
    one("log-softmax", SAME, "%d = softmax(%x)\n%r = log(%d)"),
    on("log-softmax-shift", PAIR, SAME, "%d = sub(%x, %y)\n%r = log_softmax(%d)"),
    one(
        "log-softmax-sum",
        SAME,
        "%d = logsumexp(%x) {axes = [-1], keepdim = true}\n%r = sub(%x, %d)",
    ),
    one(
        "softmax-logsumexp",
        SAME,
        "%d = logsumexp(%x) {axes = [-1], keepdim = true}\n%s = sub(%x, %d)\n%r = exp(%s)",
    ),
    one("logsumexp", "tensor<n x f64>", "%e = exp(%x)\n%s = sum(%e) {axes = [1]}\n%r = log(%s)"),
    on(
        "logsumexp-shift",
        PAIR,
        ROW,
        "%d = sub(%x, %y)\n%s = logsumexp(%d) {axes = [1], keepdim = true}\n%r = add(%s, %y)",
    ),
    on(
        "cross-entropy",
        CLASSES,
        "tensor<n x f64>",
        "%l = log_softmax(%x)\n%j = expand_dims(%i) {axes = [1]}\n%t = take_along(%l, %j) {axis = 1}\n%s = squeeze(%t) {axes = [1]}\n%r = neg(%s)",
    ),
    on(
        "cross-entropy-one-hot",
        CLASSES,
        "tensor<n x f64>",
        "%l = log_softmax(%x)\n%o = one_hot(%i) {classes = 5, dtype = f64}\n%p = mul(%l, %o)\n%s = sum(%p) {axes = [1]}\n%r = neg(%s)",
    ),
    one(
        "mean",
        ROW,
        "%s = sum(%x) {axes = [1], keepdim = true}\n%c = constant() {value = dense<tensor<f64>, 5.0>}\n%r = div(%s, %c)",
    ),
    one(
        "mean",
        ROW,
        "%s = sum(%x) {axes = [1], keepdim = true}\n%c = constant() {value = dense<tensor<f64>, 0.2>}\n%r = mul(%s, %c)",
    ),
    one(
        "mean-scaled",
        ROW,
        "%c = constant() {value = dense<tensor<f64>, 5.0>}\n%s = div(%x, %c)\n%r = sum(%s) {axes = [1], keepdim = true}",
    ),
    one(
        "variance",
        ROW,
        "%m = mean(%x) {axes = [1], keepdim = true}\n%d = sub(%x, %m)\n%s = square(%d)\n%r = mean(%s) {axes = [1], keepdim = true}",
    ),
    one(
        "variance-of-mean",
        "tensor<n x f64>",
        "%s = square(%x)\n%a = mean(%s) {axes = [1]}\n%m = mean(%x) {axes = [1]}\n%b = square(%m)\n%r = sub(%a, %b)",
    ),
    one(
        "variance-centred",
        "tensor<n x f64>",
        "%m = mean(%x) {axes = [1], keepdim = true}\n%d = sub(%x, %m)\n%r = variance(%d) {axes = [1], correction = 1.0}",
    ),
    one(
        "layer-norm",
        SAME,
        "%m = mean(%x) {axes = [-1], keepdim = true}\n%d = sub(%x, %m)\n%v = variance(%x) {axes = [-1], keepdim = true}\n%c = constant() {value = dense<tensor<f64>, 0.1>}\n%e = add(%v, %c)\n%s = sqrt(%e)\n%r = div(%d, %s)",
    ),
    one(
        "layer-norm",
        SAME,
        "%m = mean(%x) {axes = [-1], keepdim = true}\n%d = sub(%x, %m)\n%v = variance(%x) {axes = [-1], keepdim = true}\n%c = constant() {value = dense<tensor<f64>, 0.1>}\n%e = add(%v, %c)\n%h = constant() {value = dense<tensor<f64>, -0.5>}\n%s = pow(%e, %h)\n%r = mul(%d, %s)",
    ),
    one(
        "layer-norm-rms",
        SAME,
        "%m = mean(%x) {axes = [-1], keepdim = true}\n%d = sub(%x, %m)\n%r = rms_norm(%d) {epsilon = 0.1}",
    ),
    on("layer-norm-weight", WEIGHTS, SAME, "%l = layer_norm(%x) {epsilon = 0.1}\n%r = mul(%l, %w)"),
    on(
        "layer-norm-bias",
        WEIGHTS,
        SAME,
        "%l = layer_norm(%x, %w) {epsilon = 0.1}\n%r = add(%b, %l)",
    ),
    one(
        "rms-norm",
        SAME,
        "%q = square(%x)\n%v = mean(%q) {axes = [1], keepdim = true}\n%c = constant() {value = dense<tensor<f64>, 0.1>}\n%e = add(%v, %c)\n%s = sqrt(%e)\n%r = div(%x, %s)",
    ),
    on("rms-norm-weight", WEIGHTS, SAME, "%l = rms_norm(%x) {epsilon = 0.1}\n%r = mul(%l, %w)"),
    on(
        "attention-unscaled",
        HEADS,
        SEEN,
        "%t = swap_axes(%k) {first = -2, second = -1}\n%s = matmul(%q, %t)\n%p = softmax(%s)\n%r = matmul(%p, %v)",
    ),
    on(
        "attention",
        HEADS,
        SEEN,
        "%t = transpose(%k) {permutation = [0, 2, 1]}\n%s = matmul(%q, %t)\n%c = constant() {value = dense<tensor<f64>, 0.5>}\n%d = mul(%s, %c)\n%p = softmax(%d)\n%r = matmul(%p, %v)",
    ),
    on(
        "attention",
        HEADS,
        SEEN,
        "%t = transpose(%k) {permutation = [0, 2, 1]}\n%c = constant() {value = dense<tensor<f64>, 4.0>}\n%d = div(%q, %c)\n%s = matmul(%d, %t)\n%p = softmax(%s)\n%r = matmul(%p, %v)",
    ),
    on(
        "attention-mask",
        MASKED,
        SEEN,
        "%t = swap_axes(%k) {first = -2, second = -1}\n%s = matmul(%q, %t)\n%c = constant() {value = dense<tensor<f64>, 0.5>}\n%d = mul(%s, %c)\n%a = add(%d, %m)\n%p = softmax(%a)\n%r = matmul(%p, %v)",
    ),
    on(
        "attention-select",
        CHOSEN,
        SEEN,
        "%t = swap_axes(%k) {first = -2, second = -1}\n%s = matmul(%q, %t)\n%c = constant() {value = dense<tensor<f64>, 0.5>}\n%d = mul(%s, %c)\n%i = constant() {value = dense<tensor<f64>, -inf>}\n%a = select(%m, %d, %i)\n%p = softmax(%a)\n%r = matmul(%p, %v)",
    ),
    on("mul-smaller", WEIGHTS, SAME, "%a = mul(%w, %x)\n%r = mul(%a, %b)"),
    on("div-mul-smaller", WEIGHTS, SAME, "%a = div(%x, %w)\n%r = mul(%b, %a)"),
    on("sum-sum", CUBE, "tensor<n x f64>", "%a = sum(%x) {axes = [1]}\n%r = sum(%a) {axes = [1]}"),
    on(
        "mean-mean",
        CUBE,
        "tensor<n x 1 x 1 x f64>",
        "%a = mean(%x) {axes = [1], keepdim = true}\n%r = mean(%a) {axes = [2], keepdim = true}",
    ),
    on("max-max", CUBE, "tensor<n x f64>", "%a = max(%x) {axes = [2]}\n%r = max(%a) {axes = [1]}"),
    on("min-min", CUBE, "tensor<n x f64>", "%a = min(%x) {axes = [1]}\n%r = min(%a) {axes = [1]}"),
    on(
        "any-any",
        "%x: tensor<n x 5 x 3 x bool>",
        "tensor<n x bool>",
        "%a = any(%x) {axes = [1]}\n%r = any(%a) {axes = [1]}",
    ),
    on(
        "all-all",
        "%x: tensor<n x 5 x 3 x bool>",
        "tensor<bool>",
        "%a = all(%x) {axes = [1]}\n%r = all(%a)",
    ),
    one(
        "sum-scaled",
        "tensor<n x f64>",
        "%c = constant() {value = dense<tensor<f64>, 0.3>}\n%m = mul(%x, %c)\n%r = sum(%m) {axes = [1]}",
    ),
    one(
        "mean-scaled-by",
        "tensor<n x f64>",
        "%c = constant() {value = dense<tensor<f64>, 0.3>}\n%m = mul(%x, %c)\n%r = mean(%m) {axes = [1]}",
    ),
    one("sum-neg", "tensor<n x f64>", "%m = neg(%x)\n%r = sum(%m) {axes = [1]}"),
    on(
        "sum-add",
        "%x: tensor<n x 5 x f64>, %y: tensor<n x 5 x f64>",
        "tensor<n x f64>",
        "%a = sum(%x) {axes = [1]}\n%b = sum(%y) {axes = [1]}\n%r = add(%a, %b)",
    ),
    one("max-neg", "tensor<n x f64>", "%m = neg(%x)\n%r = max(%m) {axes = [1]}"),
    one("min-neg", "tensor<n x f64>", "%m = neg(%x)\n%r = min(%m) {axes = [1]}"),
    on("matmul-left", THREE, "tensor<n x 3 x f64>", "%a = matmul(%y, %z)\n%r = matmul(%x, %a)"),
    on("matmul-right", THREE, "tensor<n x 3 x f64>", "%a = matmul(%x, %y)\n%r = matmul(%a, %z)"),
    on(
        "matmul-scaled",
        TWO,
        SAME,
        "%c = constant() {value = dense<tensor<f64>, 0.3>}\n%a = mul(%x, %c)\n%r = matmul(%a, %y)",
    ),
    on(
        "matmul-scaled-right",
        TWO,
        SAME,
        "%c = constant() {value = dense<tensor<f64>, 0.3>}\n%a = mul(%y, %c)\n%r = matmul(%x, %a)",
    ),
    on(
        "matmul-scaled-before",
        TWO,
        SAME,
        "%c = constant() {value = dense<tensor<f64>, 0.3>}\n%a = matmul(%x, %y)\n%r = mul(%a, %c)",
    ),
    on("matmul-add-left", SUMS, SAME, "%a = matmul(%x, %z)\n%b = matmul(%y, %z)\n%r = add(%a, %b)"),
    on(
        "matmul-add-right",
        "%x: tensor<4 x 5 x f64>, %y: tensor<4 x 5 x f64>, %z: tensor<n x 4 x f64>",
        SAME,
        "%a = matmul(%z, %x)\n%b = matmul(%z, %y)\n%r = add(%a, %b)",
    ),
    one("expand-sum", ROW, "%a = sum(%x) {axes = [1]}\n%r = expand_dims(%a) {axes = [1]}"),
    one("expand-mean", ROW, "%a = mean(%x) {axes = [-1]}\n%r = expand_dims(%a) {axes = [-1]}"),
    one("expand-max", ROW, "%a = max(%x) {axes = [1]}\n%r = expand_dims(%a) {axes = [1]}"),
    one("expand-min", ROW, "%a = min(%x) {axes = [1]}\n%r = expand_dims(%a) {axes = [1]}"),
    one(
        "expand-variance",
        ROW,
        "%a = variance(%x) {axes = [1], correction = 1.0}\n%r = expand_dims(%a) {axes = [1]}",
    ),
    one(
        "expand-logsumexp",
        ROW,
        "%a = logsumexp(%x) {axes = [1]}\n%r = expand_dims(%a) {axes = [1]}",
    ),
    on(
        "swap-is-transpose",
        CUBE,
        "tensor<n x 3 x 5 x f64>",
        "%r = transpose(%x) {permutation = [0, 2, 1]}",
    ),
    on(
        "matmul-swapped",
        "%x: tensor<4 x n x f64>, %y: tensor<5 x 4 x f64>",
        "tensor<n x 5 x f64>",
        "%a = swap_axes(%x) {first = -2, second = -1}\n%b = swap_axes(%y) {first = -2, second = -1}\n%r = matmul(%a, %b)",
    ),
    one(
        "map-transpose",
        "tensor<5 x n x f64>",
        "%d = transpose(%x) {permutation = [1, 0]}\n%r = tanh(%d)",
    ),
    on(
        "map-transposes",
        BOTH,
        "tensor<5 x n x f64>",
        "%d = transpose(%x) {permutation = [1, 0]}\n%e = transpose(%y) {permutation = [1, 0]}\n%r = sub(%d, %e)",
    ),
    one(
        "map-transpose-by",
        "tensor<5 x n x f64>",
        "%d = transpose(%x) {permutation = [1, 0]}\n%c = constant() {value = dense<tensor<f64>, 3.0>}\n%r = sub(%d, %c)",
    ),
    one(
        "map-by-transpose",
        "tensor<5 x n x f64>",
        "%d = transpose(%x) {permutation = [1, 0]}\n%c = constant() {value = dense<tensor<f64>, 3.0>}\n%r = sub(%c, %d)",
    ),
    one(
        "map-swap",
        "tensor<5 x n x f64>",
        "%d = swap_axes(%x) {first = 0, second = 1}\n%r = tanh(%d)",
    ),
    on(
        "map-swaps",
        BOTH,
        "tensor<5 x n x f64>",
        "%d = swap_axes(%x) {first = 0, second = 1}\n%e = swap_axes(%y) {first = 0, second = 1}\n%r = sub(%d, %e)",
    ),
    one(
        "map-swap-by",
        "tensor<5 x n x f64>",
        "%d = swap_axes(%x) {first = 0, second = 1}\n%c = constant() {value = dense<tensor<f64>, 3.0>}\n%r = sub(%d, %c)",
    ),
    one(
        "map-by-swap",
        "tensor<5 x n x f64>",
        "%d = swap_axes(%x) {first = 0, second = 1}\n%c = constant() {value = dense<tensor<f64>, 3.0>}\n%r = sub(%c, %d)",
    ),
    one("map-reshape", "tensor<5 * n x f64>", "%d = reshape(%x) {shape = [5 * n]}\n%r = tanh(%d)"),
    on(
        "map-reshapes",
        BOTH,
        "tensor<5 * n x f64>",
        "%d = reshape(%x) {shape = [5 * n]}\n%e = reshape(%y) {shape = [5 * n]}\n%r = sub(%d, %e)",
    ),
    one(
        "map-reshape-by",
        "tensor<5 * n x f64>",
        "%d = reshape(%x) {shape = [5 * n]}\n%c = constant() {value = dense<tensor<f64>, 3.0>}\n%r = sub(%d, %c)",
    ),
    one(
        "map-by-reshape",
        "tensor<5 * n x f64>",
        "%d = reshape(%x) {shape = [5 * n]}\n%c = constant() {value = dense<tensor<f64>, 3.0>}\n%r = sub(%c, %d)",
    ),
    one(
        "map-expand",
        "tensor<n x 1 x 5 x f64>",
        "%d = expand_dims(%x) {axes = [1]}\n%r = tanh(%d)",
    ),
    on(
        "map-expands",
        BOTH,
        "tensor<n x 1 x 5 x f64>",
        "%d = expand_dims(%x) {axes = [1]}\n%e = expand_dims(%y) {axes = [1]}\n%r = sub(%d, %e)",
    ),
    one(
        "map-expand-by",
        "tensor<n x 1 x 5 x f64>",
        "%d = expand_dims(%x) {axes = [1]}\n%c = constant() {value = dense<tensor<f64>, 3.0>}\n%r = sub(%d, %c)",
    ),
    one(
        "map-by-expand",
        "tensor<n x 1 x 5 x f64>",
        "%d = expand_dims(%x) {axes = [1]}\n%c = constant() {value = dense<tensor<f64>, 3.0>}\n%r = sub(%c, %d)",
    ),
    on("map-squeeze", LONE, "tensor<5 x f64>", "%d = squeeze(%x) {axes = [0]}\n%r = tanh(%d)"),
    on(
        "map-squeezes",
        LONE,
        "tensor<5 x f64>",
        "%d = squeeze(%x) {axes = [0]}\n%e = squeeze(%y) {axes = [0]}\n%r = sub(%d, %e)",
    ),
    on(
        "map-squeeze-by",
        LONE,
        "tensor<5 x f64>",
        "%d = squeeze(%x) {axes = [0]}\n%c = constant() {value = dense<tensor<f64>, 3.0>}\n%r = sub(%d, %c)",
    ),
    on(
        "map-by-squeeze",
        LONE,
        "tensor<5 x f64>",
        "%d = squeeze(%x) {axes = [0]}\n%c = constant() {value = dense<tensor<f64>, 3.0>}\n%r = sub(%c, %d)",
    ),
    one(
        "map-broadcast",
        "tensor<3 x n x 5 x f64>",
        "%d = broadcast_in_dim(%x) {shape = [3 x n x 5]}\n%r = tanh(%d)",
    ),
    on(
        "map-number",
        NUMBERED,
        SAME,
        "%d = broadcast_in_dim(%c) {shape = [n x 5]}\n%r = sub(%x, %d)",
    ),
    on(
        "map-by-number",
        NUMBERED,
        SAME,
        "%d = broadcast_in_dim(%c) {shape = [n x 5]}\n%r = sub(%d, %x)",
    ),
    on(
        "product-is-matmul",
        TWO,
        "tensor<n x 5 x f64>",
        "%r = dot_general(%x, %y) {x_contract = [1], y_contract = [0]}",
    ),
    on(
        "product-is-matmul",
        CROSSED,
        "tensor<2 x 4 x n x 3 x f64>",
        "%r = dot_general(%x, %y) {x_batch = [0, 2], y_batch = [0, 2], x_contract = [3], y_contract = [3]}",
    ),
    on(
        "attention-select-not",
        CHOSEN,
        SEEN,
        "%t = swap_axes(%k) {first = -2, second = -1}\n%s = matmul(%q, %t)\n%c = constant() {value = dense<tensor<f64>, 2.0>}\n%p = div(%s, %c)\n%i = constant() {value = dense<tensor<f64>, -inf>}\n%h = select(%m, %i, %p)\n%w = softmax(%h)\n%r = matmul(%w, %v)",
    ),
    on(
        "attention-causal",
        SQUARE,
        "tensor<2 x n x 6 x f64>",
        "%o = constant() {value = dense<tensor<bool>, true>}\n%b = broadcast_in_dim(%o) {shape = [n x n]}\n%m = tril(%b)\n%r = attention(%q, %k, %v, %m) {scale = 0.5}",
    ),
    on(
        "attention-causal",
        SQUARE,
        "tensor<2 x n x 6 x f64>",
        "%o = constant() {value = dense<tensor<f64>, 1.0>}\n%b = broadcast_in_dim(%o) {shape = [n x n]}\n%u = triu(%b) {diagonal = 1}\n%z = constant() {value = dense<tensor<f64>, 0.0>}\n%i = constant() {value = dense<tensor<f64>, -inf>}\n%l = ne(%u, %z)\n%m = select(%l, %i, %z)\n%r = attention(%q, %k, %v, %m)",
    ),
    on(
        "swap-transpose",
        CUBE,
        "tensor<5 x 3 x n x f64>",
        "%d = transpose(%x) {permutation = [0, 2, 1]}\n%r = swap_axes(%d) {first = 0, second = 2}",
    ),
    on(
        "transpose-swap",
        CUBE,
        "tensor<3 x n x 5 x f64>",
        "%d = swap_axes(%x) {first = -1, second = 0}\n%r = transpose(%d) {permutation = [0, 2, 1]}",
    ),
];
