//! Sums and products: cancellation, factoring, and redundant selects.

use super::Class::{Exact, Fast, Reassociating, Recognise};
use super::matched::Match;
use super::pattern::{Pattern, number, op, unary, vars};
use super::{Rule, choice, is_float, is_int};

pub(super) fn rules() -> Vec<Rule> {
    [numeric(), logical(), reordering()].into_iter().flatten().collect()
}

fn pair(name: &'static str) -> impl Fn(Pattern, Pattern) -> Pattern {
    move |x, y| op(name, [x, y])
}

/// Rules that keep the bits of numbers.
fn numeric() -> Vec<Rule> {
    let [x, y, z, c] = vars();
    let [exp, relu, abs] = ["exp", "relu", "abs"].map(unary);
    let [sigmoid, tanh, erf] = ["sigmoid", "tanh", "erf"].map(unary);
    let [maximum, minimum] = ["maximum", "minimum"].map(pair);
    let zero = number(0.0);
    vec![
        choice(Exact, "sub-same-int", op("sub", [x, x]), zero).when(is_int),
        choice(Exact, "mul-zero-int", x * 0.0, zero).when(is_int),
        choice(Exact, "sub-add-int", (x + y) - y, x).when(is_int),
        choice(Exact, "add-sub-int", (x - y) + y, x).when(is_int),
        choice(Exact, "distribute-int", x * y + x * z, x * (y + z)).when(is_int),
        choice(Exact, "add-same", x + x, x * 2.0),
        choice(Exact, "neg-sub", -(x - y), y - x).when(is_int),
        choice(Exact, "neg-mul", -x * y, -(x * y)),
        choice(Exact, "neg-div", -x / y, -(x / y)),
        choice(Exact, "div-neg", x / -y, -(x / y)),
        choice(Exact, "mul-neg-number", -x * c, x * -c).when(|m| m.uniform(3).is_some()),
        choice(Exact, "div-power-of-two", x / c, x * (1.0 / c)).when(by_power_of_two),
        choice(Exact, "relu-relu", relu(relu(x)), relu(x)),
        choice(Exact, "relu-abs", relu(abs(x)), abs(x)).when(is_float),
        choice(Exact, "abs-relu", abs(relu(x)), relu(x)).when(is_float),
        choice(Exact, "relu-exp", relu(exp(x)), exp(x)),
        choice(Exact, "relu-sigmoid", relu(sigmoid(x)), sigmoid(x)),
        choice(Exact, "abs-exp", abs(exp(x)), exp(x)),
        choice(Exact, "neg-tanh", -tanh(-x), tanh(x)),
        choice(Exact, "neg-erf", -erf(-x), erf(x)),
        choice(Exact, "maximum-neg", maximum(-x, -y), -minimum(x, y)).when(is_float),
        choice(Exact, "minimum-neg", minimum(-x, -y), -maximum(x, y)).when(is_float),
    ]
}

/// Rules about comparisons and selects.
fn logical() -> Vec<Rule> {
    let [x, y, z, c] = vars();
    let [lt, le, gt, ge] = ["lt", "le", "gt", "ge"].map(pair);
    let select = |c, x, y| op("select", [c, x, y]);
    vec![
        choice(Exact, "lt-swapped", lt(x, y), gt(y, x)),
        choice(Exact, "le-swapped", le(x, y), ge(y, x)),
        choice(Exact, "not-lt-int", !lt(x, y), ge(x, y)).when(is_int),
        choice(Exact, "not-ge-int", !ge(x, y), lt(x, y)).when(is_int),
        choice(Exact, "not-gt-int", !gt(x, y), le(x, y)).when(is_int),
        choice(Exact, "not-le-int", !le(x, y), gt(x, y)).when(is_int),
        choice(Exact, "and-absorbs", x & (x | y), x),
        choice(Exact, "or-absorbs", x | (x & y), x),
        choice(Exact, "not-and-not", !x & !y, !(x | y)),
        choice(Exact, "not-or-not", !x | !y, !(x & y)),
        choice(Exact, "select-yes", select(c, select(c, x, y), z), select(c, x, z)),
        choice(Exact, "select-no", select(c, x, select(c, y, z)), select(c, x, z)),
        choice(Exact, "select-number", select(c, x * y, x * z), x * select(c, y, z)),
    ]
}

/// Rules that change the order of additions and multiplications, or that hold only for ordinary
/// numbers.
fn reordering() -> Vec<Rule> {
    let [x, y, z, c] = vars();
    let select = |c, x, y| op("select", [c, x, y]);
    let [gt, maximum, minimum] = ["gt", "maximum", "minimum"].map(pair);
    let zero = number(0.0);
    let relu = unary("relu");
    vec![
        choice(Recognise, "add-zero-float", x + 0.0, x),
        choice(Reassociating, "distribute", x * y + x * z, x * (y + z)),
        choice(Reassociating, "distribute-sub", x * y - x * z, x * (y - z)),
        choice(Reassociating, "distribute-div", x / z + y / z, (x + y) / z),
        choice(Reassociating, "distribute-one", x * y + x, x * (y + 1.0)),
        choice(Reassociating, "mul-numbers", (x * y) * z, x * (y * z)).when(are_numbers),
        choice(Reassociating, "mul-smaller", (x * y) * z, x * (y * z)).when(combine_to_fewer),
        choice(Reassociating, "div-mul-smaller", (x / y) * z, x * (z / y)).when(combine_to_fewer),
        choice(Reassociating, "div-numbers", (x / y) / z, x / (y * z)).when(are_numbers),
        choice(Reassociating, "div-mul-numbers", (x * y) / z, x * (y / z)).when(are_numbers),
        choice(Reassociating, "add-numbers", (x + y) + z, x + (y + z)).when(are_numbers),
        choice(Reassociating, "sub-numbers", (x - y) - z, x - (y + z)).when(are_numbers),
        choice(Reassociating, "div-number", x / c, x * (1.0 / c)).when(|m| m.uniform(3).is_some()),
        choice(Fast, "sub-same", op("sub", [x, x]), zero),
        choice(Fast, "div-same", op("div", [x, x]), number(1.0)),
        choice(Fast, "mul-zero", x * 0.0, zero),
        choice(Fast, "sub-add", (x + y) - y, x),
        choice(Fast, "add-sub", (x - y) + y, x),
        choice(Fast, "div-mul", (x * y) / y, x),
        choice(Fast, "mul-div", (x / y) * y, x),
        // For NaN, one side has the gradient 0 and the other NaN.
        choice(Fast, "absolute-maximum", maximum(x, -x), unary("abs")(x)).when(is_float),
        choice(Fast, "maximum-maximum", maximum(maximum(x, y), y), maximum(x, y)),
        choice(Fast, "minimum-minimum", minimum(minimum(x, y), y), minimum(x, y)),
        choice(Fast, "maximum-zero", maximum(x, zero), relu(x)),
        choice(Fast, "select-positive", select(gt(x, zero), x, zero), relu(x)),
    ]
}

/// Whether the second and the third variable are numbers, so that their combination is computed at
/// compile time.
fn are_numbers(m: &Match) -> bool {
    m.uniform(1).is_some() && m.uniform(2).is_some()
}

/// Whether the second and the third variable have fewer axes than the result, and not both zero
/// axes. Combining them first then computes fewer elements.
fn combine_to_fewer(m: &Match) -> bool {
    let rank = |i: usize| m.shape(i).rank().unwrap_or(usize::MAX);
    let most = rank(1).max(rank(2));
    most > 0 && most < m.result.shape.dims.len()
}

/// Whether the divisor is a power of two: its reciprocal is exact in every dtype.
fn by_power_of_two(m: &Match) -> bool {
    let power = |c: f64| c.log2().fract() == 0.0 && (0.001..=1000.0).contains(&c);
    m.uniform(3).is_some_and(|c| power(c.abs()))
}
