//! Bools and bits, and selects on them.

use mithril_ir::dtype::DType;

use super::matched::Match;
use super::pattern::{Pattern, number, op, vars};
use super::{Rule, exact};

pub(super) fn rules() -> Vec<Rule> {
    let [x, y, c] = vars();
    let [yes, no] = [1.0, 0.0].map(number);
    let select = |c: Pattern, x: Pattern, y: Pattern| op("select", [c, x, y]);
    let (eq, ne) = (op("eq", [x, y]), op("ne", [x, y]));
    vec![
        exact("not-not", !!x, x),
        exact("not-eq", !eq, ne),
        exact("not-ne", !ne, eq),
        exact("and-same", op("and", [x, x]), x),
        exact("or-same", op("or", [x, x]), x),
        exact("and-true", x & yes, x).when(is_bool),
        exact("or-false", x | no, x),
        exact("xor-false", x ^ no, x),
        exact("xor-true", x ^ yes, !x).when(is_bool),
        exact("select-true", select(yes, x, y), x),
        exact("select-false", select(no, x, y), y),
        exact("select-same", select(c, x, x), x),
        exact("select-not", select(!c, x, y), select(c, y, x)),
        exact("select-condition", select(c, yes, no), c),
    ]
}

fn is_bool(m: &Match) -> bool {
    m.dtype(0) == DType::Bool
}
