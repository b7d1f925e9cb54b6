//! Casts, and `stop_gradient`.

use mithril_ir::attr::Attr;
use mithril_ir::dtype::DType;
use mithril_ir::scalar::round::{int_range, mantissa_bits};

use super::matched::Match;
use super::pattern::{unary, vars};
use super::{Attrs, Rule, exact};

pub(super) fn rules() -> Vec<Rule> {
    let [x] = vars();
    let [cast, stop] = ["cast", "stop_gradient"].map(unary);
    vec![
        exact("cast-same", cast(x), x),
        exact("cast-cast", cast(cast(x)), cast(x).with(own_dtype)).when(passes_through),
        exact("stop-stop", stop(stop(x)), stop(x)),
    ]
}

fn own_dtype(m: &Match) -> Option<Attrs> {
    Some(vec![("dtype", m.result.dtype.into())])
}

/// Whether the inner cast loses nothing, and the outer cast converts its result as it would convert
/// `x`.
fn passes_through(m: &Match) -> bool {
    let (from, to) = (m.dtype(0), m.result.dtype);
    let Some(through) = dtype(m, 1) else {
        return false;
    };
    if [from, through, to].iter().any(|d| d.is_storage_only()) {
        return false;
    }
    // Floats saturate when cast to integers, but integers wrap.
    let same_reading = from == DType::Bool
        || from.is_float() == through.is_float()
        || to.is_float()
        || to == DType::Bool;
    same_reading && holds(through, from)
}

fn dtype(m: &Match, op: usize) -> Option<DType> {
    match m.attr(op, "dtype") {
        Attr::DType(dtype) => Some(*dtype),
        _ => None,
    }
}

/// Whether `to` can represent every value of `from`.
fn holds(to: DType, from: DType) -> bool {
    if to == from || from == DType::Bool {
        return true;
    }
    match (from.is_float(), to.is_float()) {
        (true, true) => matches!(
            (from, to),
            (DType::F16 | DType::BF16, DType::F32 | DType::F64) | (DType::F32, DType::F64)
        ),
        (true, false) => false,
        _ if to == DType::Bool => false,
        (false, false) => {
            let ((low, high), (least, most)) = (int_range(from), int_range(to));
            least <= low && high <= most
        }
        (false, true) => {
            let (low, high) = int_range(from);
            let most = 1i128 << (mantissa_bits(to) + 1);
            -most <= low && high <= most
        }
    }
}
