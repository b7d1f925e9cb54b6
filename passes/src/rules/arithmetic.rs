//! Numbers: identity elements, signs, and operations applied twice.

use super::matched::Match;
use super::pattern::{op, unary, vars};
use super::{Rule, exact, is_int};

pub(super) fn rules() -> Vec<Rule> {
    let [x, y] = vars();
    let [abs, sign, floor, ceil, round] = ["abs", "sign", "floor", "ceil", "round"].map(unary);
    vec![
        exact("mul-one", x * 1.0, x),
        exact("mul-minus-one", x * -1.0, -x),
        exact("div-one", x / 1.0, x),
        exact("div-minus-one", x / -1.0, -x),
        exact("sub-zero", x - 0.0, x),
        // For floats the identity element is -0, because -0 + 0 is 0.
        exact("add-minus-zero", x + -0.0, x),
        exact("add-zero", x + 0.0, x).when(is_int),
        exact("neg-neg", -(-x), x),
        exact("add-neg", x + -y, x - y),
        exact("sub-neg", x - -y, x + y),
        exact("mul-neg-neg", -x * -y, x * y),
        exact("div-neg-neg", -x / -y, x / y),
        exact("pow-one", op("pow", [x, super::pattern::number(1.0)]), x),
        exact("minimum-same", op("minimum", [x, x]), x),
        exact("maximum-same", op("maximum", [x, x]), x),
        exact("abs-abs", abs(abs(x)), abs(x)),
        exact("abs-neg", abs(-x), abs(x)).when(is_signed),
        exact("sign-sign", sign(sign(x)), sign(x)),
        exact("floor-floor", floor(floor(x)), floor(x)),
        exact("ceil-ceil", ceil(ceil(x)), ceil(x)),
        exact("round-round", round(round(x)), round(x)),
    ]
}

/// Unsigned numbers wrap: the negative of 1 is the largest number.
fn is_signed(m: &Match) -> bool {
    m.dtype(0).is_float() || m.dtype(0).is_signed_int()
}
