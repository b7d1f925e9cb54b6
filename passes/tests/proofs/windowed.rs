//! Uses of the rules about convolutions and pooling.

use super::examples::{Example, on};

const IMAGE: &str = "%x: tensor<n x 2 x 5 x 4 x f64>";
const FILTERED: &str = "%x: tensor<n x 2 x 5 x 4 x f64>, %w: tensor<3 x 2 x 2 x 3 x f64>";
const SCALED: &str =
    "%x: tensor<n x 2 x 5 x 4 x f64>, %w: tensor<3 x 2 x 2 x 3 x f64>, %c: tensor<3 x 1 x 1 x f64>";
const BATCHED: &str = "%x: tensor<n x 2 x 5 x 4 x f64>, %w: tensor<3 x 2 x 2 x 3 x f64>, %c: tensor<1 x 3 x 1 x 1 x f64>";
const NORMED: &str = "%x: tensor<n x 2 x 5 x 4 x f64>, %w: tensor<3 x 2 x 2 x 3 x f64>, %y: tensor<3 x 1 x 1 x f64>, %c: tensor<3 x 1 x 1 x f64>";
const TWO_FILTERS: &str = "%x: tensor<n x 2 x 5 x 4 x f64>, %w: tensor<3 x 2 x 2 x 3 x f64>, %y: tensor<3 x 2 x 2 x 3 x f64>";
const TWO_IMAGES: &str = "%x: tensor<n x 2 x 5 x 4 x f64>, %w: tensor<3 x 2 x 2 x 3 x f64>, %y: tensor<n x 2 x 5 x 4 x f64>";
const PAIR: &str = "%x: tensor<n x 2 x 5 x 4 x f64>, %y: tensor<n x 2 x 5 x 4 x f64>";
const POINTS: &str = "%x: tensor<n x 2 x 5 x 4 x f64>, %w: tensor<3 x 2 x 1 x 1 x f64>";
const FEATURES: &str = "tensor<n x 3 x 4 x 2 x f64>";
const TRANSPOSED: &str =
    "%x: tensor<n x 2 x 5 x 4 x f64>, %w: tensor<2 x 2 x 2 x 3 x f64>, %c: tensor<4 x 1 x 1 x f64>";
const STATISTICS: &str =
    "%x: tensor<n x 2 x 5 x 4 x f64>, %m: tensor<2 x f64>, %v: tensor<2 x f64>";
const IMAGES: &str = "tensor<n x 2 x 5 x 4 x f64>";
const HALVES: &str = "tensor<n x 2 x 4 x 3 x f64>";
const WHOLE: &str = "tensor<n x 2 x 1 x 1 x f64>";

const MIXED: &str = "%x: tensor<n x 2 x 5 x 4 x f64>, %w: tensor<3 x 2 x 2 x 3 x f64>, %v: tensor<2 x 3 x 1 x 1 x f64>";
const MIXED_BIASED: &str = "%x: tensor<n x 2 x 5 x 4 x f64>, %w: tensor<3 x 2 x 2 x 3 x f64>, %v: tensor<2 x 3 x 1 x 1 x f64>, %b: tensor<3 x 1 x 1 x f64>";

pub const WINDOWED: &[Example] = &[
    on(
        "conv-pad",
        FILTERED,
        "tensor<n x 3 x 7 x 3 x f64>",
        "%z = constant() {value = dense<tensor<f64>, 0.0>}\n%p = pad(%x, %z) {low = [0, 0, 1, 0], high = [0, 0, 2, 1]}\n%r = conv(%p, %w)",
    ),
    on(
        "conv-pad",
        FILTERED,
        "tensor<n x 3 x 4 x 3 x f64>",
        "%z = constant() {value = dense<tensor<f64>, 0.0>}\n%p = pad(%x, %z) {low = [0, 0, 1, 0], high = [0, 0, 0, 1]}\n%r = conv(%p, %w) {strides = [2, 1], low = [1, 0], high = [1, 0]}",
    ),
    on(
        "max-pool-pad",
        IMAGE,
        "tensor<n x 2 x 6 x 4 x f64>",
        "%z = constant() {value = dense<tensor<f64>, -inf>}\n%p = pad(%x, %z) {low = [0, 0, 1, 0], high = [0, 0, 1, 1]}\n%r = max_pool(%p) {sizes = [2, 2]}",
    ),
    on(
        "sum-pool-pad",
        IMAGE,
        "tensor<n x 2 x 6 x 4 x f64>",
        "%z = constant() {value = dense<tensor<f64>, 0.0>}\n%p = pad(%x, %z) {low = [0, 0, 1, 0], high = [0, 0, 1, 1]}\n%r = sum_pool(%p) {sizes = [2, 2]}",
    ),
    on(
        "avg-pool-pad",
        IMAGE,
        "tensor<n x 2 x 3 x 4 x f64>",
        "%z = constant() {value = dense<tensor<f64>, 0.0>}\n%p = pad(%x, %z) {low = [0, 0, 1, 0], high = [0, 0, 1, 1]}\n%r = avg_pool(%p) {sizes = [2, 2], strides = [2, 1], count_pad = false}",
    ),
    on("conv-filter-scale", SCALED, FEATURES, "%f = conv(%x, %w)\n%r = mul(%f, %c)"),
    on("conv-filter-scale", BATCHED, FEATURES, "%f = conv(%x, %w)\n%r = mul(%c, %f)"),
    on(
        "conv-filter-norm",
        NORMED,
        FEATURES,
        "%f = conv(%x, %w)\n%d = sub(%f, %y)\n%r = mul(%d, %c)",
    ),
    on(
        "conv-scaled",
        FILTERED,
        FEATURES,
        "%c = constant() {value = dense<tensor<f64>, 0.3>}\n%s = mul(%x, %c)\n%r = conv(%s, %w)",
    ),
    on(
        "conv-scaled-after",
        FILTERED,
        FEATURES,
        "%c = constant() {value = dense<tensor<f64>, 0.3>}\n%s = conv(%x, %w)\n%r = mul(%s, %c)",
    ),
    on(
        "conv-add-weights",
        TWO_FILTERS,
        FEATURES,
        "%a = conv(%x, %w)\n%b = conv(%x, %y)\n%r = add(%a, %b)",
    ),
    on(
        "conv-add-inputs",
        TWO_IMAGES,
        FEATURES,
        "%a = conv(%x, %w)\n%b = conv(%y, %w)\n%r = add(%a, %b)",
    ),
    on("max-pool-relu", IMAGE, HALVES, "%a = relu(%x)\n%r = max_pool(%a) {sizes = [2, 2]}"),
    on(
        "avg-pool-scaled",
        IMAGE,
        HALVES,
        "%c = constant() {value = dense<tensor<f64>, 0.3>}\n%a = mul(%x, %c)\n%r = avg_pool(%a) {sizes = [2, 2]}",
    ),
    on(
        "sum-pool-scaled",
        IMAGE,
        HALVES,
        "%c = constant() {value = dense<tensor<f64>, 0.3>}\n%a = mul(%x, %c)\n%r = sum_pool(%a) {sizes = [2, 2]}",
    ),
    on(
        "avg-pool-add",
        PAIR,
        HALVES,
        "%a = avg_pool(%x) {sizes = [2, 2]}\n%b = avg_pool(%y) {sizes = [2, 2]}\n%r = add(%a, %b)",
    ),
    on("max-pool-whole", IMAGE, WHOLE, "%r = max_pool(%x) {sizes = [5, 4]}"),
    on("sum-pool-whole", IMAGE, WHOLE, "%r = sum_pool(%x) {sizes = [5, 4]}"),
    on("avg-pool-whole", IMAGE, WHOLE, "%r = avg_pool(%x) {sizes = [5, 4], count_pad = false}"),
    on("conv-bias", SCALED, FEATURES, "%f = conv(%x, %w)\n%r = add(%f, %c)"),
    on("conv-bias", BATCHED, FEATURES, "%f = conv(%x, %w) {acc = f64}\n%r = add(%c, %f)"),
    on(
        "conv-transpose-bias",
        TRANSPOSED,
        "tensor<n x 4 x 6 x 6 x f64>",
        "%f = conv_transpose(%x, %w) {groups = 2}\n%r = add(%f, %c)",
    ),
    on("batch-norm-parts", STATISTICS, IMAGES, "%r = batch_norm(%x, %m, %v)"),
    on("batch-norm-weight-parts", STATISTICS, IMAGES, "%r = batch_norm(%x, %m, %v, %m)"),
    on(
        "batch-norm-bias-parts",
        STATISTICS,
        IMAGES,
        "%r = batch_norm(%x, %m, %v, %v, %m) {epsilon = 0.1}",
    ),
    on(
        "conv-mixed-after",
        MIXED,
        "tensor<n x 2 x 3 x 2 x f64>",
        "%f = conv(%x, %w) {strides = [2, 1], low = [1, 0], high = [1, 0]}\n%r = conv(%f, %v)",
    ),
    on(
        "conv-mixed-after-bias",
        MIXED_BIASED,
        "tensor<n x 2 x 4 x 2 x f64>",
        "%f = conv(%x, %w)\n%a = add(%f, %b)\n%r = conv(%a, %v)",
    ),
    on("conv-pointwise", POINTS, "tensor<n x 3 x 5 x 4 x f64>", "%r = conv(%x, %w)"),
];
