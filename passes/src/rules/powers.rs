//! Powers, roots, exponentials and their inverses.

use super::Class::{Exact, Fast, Reassociating, Recognise};
use super::pattern::{any, number, op, unary, vars};
use super::{Rule, choice, recognise};

pub(super) fn rules() -> Vec<Rule> {
    let [x, y, z] = vars();
    let [square, sqrt, exp, log] = ["square", "sqrt", "exp", "log"].map(unary);
    let [expm1, log1p, abs, reciprocal] = ["expm1", "log1p", "abs", "reciprocal"].map(unary);
    let power = |x, exponent| op("pow", [x, number(exponent)]);
    vec![
        choice(Exact, "mul-same", x * x, square(x)),
        choice(Exact, "square-neg", square(any([-x, abs(x)])), square(x)),
        choice(Exact, "abs-square", abs(square(x)), square(x)).when(super::is_float),
        choice(Exact, "one-over", 1.0 / x, reciprocal(x)),
        choice(Exact, "over-one", reciprocal(x), 1.0 / x),
        choice(Recognise, "mul-reciprocal", y * (1.0 / x), y / x),
        choice(Recognise, "div-reciprocal", y / (1.0 / x), y * x),
        choice(Recognise, "pow-two", power(x, 2.0), square(x)),
        choice(Recognise, "pow-three", power(x, 3.0), square(x) * x),
        choice(Recognise, "pow-four", power(x, 4.0), square(square(x))),
        choice(Recognise, "pow-half", power(x, 0.5), sqrt(x)),
        choice(Recognise, "pow-minus-one", power(x, -1.0), 1.0 / x),
        choice(Recognise, "pow-minus-two", power(x, -2.0), 1.0 / square(x)),
        choice(Recognise, "sqrt-square", sqrt(square(x)), abs(x)),
        choice(Recognise, "square-abs", sqrt(abs(square(x))), abs(x)),
        recognise("log-exp", log(exp(x)), x),
        recognise("exp-minus-one", exp(x) - 1.0, expm1(x)),
        recognise("log-one-plus", log(1.0 + x), log1p(x)),
        choice(Recognise, "log1p-expm1", log1p(expm1(x)), x),
        choice(Recognise, "expm1-log1p", expm1(log1p(x)), x),
        choice(Recognise, "log-reciprocal", log(1.0 / x), -log(x)),
        choice(Recognise, "one-over-exp", 1.0 / exp(x), exp(-x)),
        choice(Reassociating, "exp-mul", exp(x) * exp(y), exp(x + y)),
        choice(Reassociating, "exp-div", exp(x) / exp(y), exp(x - y)),
        choice(Reassociating, "sqrt-mul", sqrt(x) * sqrt(y), sqrt(x * y)),
        choice(Reassociating, "div-div", x / (y / z), (x * z) / y),
        choice(Reassociating, "pow-minus-half", power(x, -0.5), 1.0 / sqrt(x)),
        choice(Fast, "exp-log", exp(log(x)), x),
        choice(Fast, "square-sqrt", square(sqrt(x)), x),
        choice(Fast, "log-mul", log(x) + log(y), log(x * y)),
        choice(Fast, "log-div", log(x) - log(y), log(x / y)),
        choice(Fast, "log-square", log(square(x)), log(abs(x)) * 2.0),
        choice(Fast, "log-sqrt", log(sqrt(x)), log(x) * 0.5),
        choice(Fast, "log-pow", log(op("pow", [x, y])), y * log(x)),
    ]
}
