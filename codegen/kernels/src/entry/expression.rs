//! Prints sizes as C expressions.

use mithril_runtime::size::Size;

use super::Dimension;

/// The functions that [`c_expression`] calls. Divisors are positive.
pub const ARITHMETIC: &str = "\
static inline int64_t mithril_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t mithril_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t mithril_mod(int64_t a, int64_t b) { return a % b < 0 ? a % b + b : a % b; }
static inline int64_t mithril_floordiv(int64_t a, int64_t b) { return (a - mithril_mod(a, b)) / b; }
";

/// Prints a size as a C expression of type `int64_t`. `symbols` gives the parameter of each symbol.
/// Sums and products are in parentheses.
pub fn c_expression(size: &Size, symbols: &[Dimension]) -> String {
    let join = |of: &[Size], sign: &str| {
        let parts: Vec<String> = of.iter().map(|part| c_expression(part, symbols)).collect();
        format!("({})", parts.join(sign))
    };
    let call = |name: &str, of: &(Size, Size)| {
        format!("{name}({}, {})", c_expression(&of.0, symbols), c_expression(&of.1, symbols))
    };
    match size {
        // Constants have the same type as symbols, so that nothing is computed in `int`.
        Size::Const(value) => format!("INT64_C({value})"),
        Size::Symbol(at) => symbols[*at].name.clone(),
        Size::Sum(of) => join(of, " + "),
        Size::Product(of) => join(of, " * "),
        Size::FloorDiv(of) => call("mithril_floordiv", of),
        Size::Mod(of) => call("mithril_mod", of),
        Size::Min(of) => call("mithril_min", of),
        Size::Max(of) => call("mithril_max", of),
    }
}
