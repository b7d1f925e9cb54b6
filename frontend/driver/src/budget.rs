//! Gradients within a budget of memory: as few blocks are computed again as will do.

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_passes::pass::Limit;

use crate::native::Native;

const HINT: &str = "`memory_budget` is for inputs whose dims are numbers: give `shapes=`";

/// What is computed again, and what comes of it.
pub struct Choice<T> {
    pub checkpoint: Limit,
    pub made: T,
}

/// A number of functions, as small as halving finds one, that gradients compute again for a call to
/// work within `budget` bytes, and what `make` makes then; it also says how many there were, and the native code.
///
/// Errors: those of `make`; a budget that is too small whatever is computed again, or dims without
/// numbers.
pub fn within<T>(
    budget: u64,
    mut make: impl FnMut(Limit) -> Result<(T, usize)>,
    native: impl Fn(&T) -> Option<&Native>,
) -> Result<Choice<T>> {
    let needs = |made: &T| -> Result<u64> {
        let part = native(made).map(|native| native.joint.as_ref().unwrap_or(&native.forward));
        part.map_or(Ok(0), |part| {
            Ok(part.memory(&|_| None).map_err(|error| error.hint(HINT))?.total() as u64)
        })
    };
    let (made, _) = make(Limit::At(0))?;
    if needs(&made)? <= budget {
        return Ok(Choice { checkpoint: Limit::At(0), made });
    }
    let (mut best, count) = make(Limit::All)?;
    if needs(&best)? > budget {
        return some_count(budget, count, &mut make, &needs);
    }
    // `high` fits and `low` does not; between them memory need not fall steadily.
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = (low + high) / 2;
        let (made, _) = make(Limit::At(middle))?;
        match needs(&made)? <= budget {
            true => (best, high) = (made, middle),
            false => low = middle,
        }
    }
    Ok(Choice { checkpoint: Limit::At(high), made: best })
}

/// Where not all can be computed again: the least number that fits, if one does.
fn some_count<T>(
    budget: u64,
    count: usize,
    make: &mut impl FnMut(Limit) -> Result<(T, usize)>,
    needs: &impl Fn(&T) -> Result<u64>,
) -> Result<Choice<T>> {
    let mut least = u64::MAX;
    for checkpoint in (0..=count).map(Limit::At) {
        let (made, _) = make(checkpoint)?;
        let bytes = needs(&made)?;
        if bytes <= budget {
            return Ok(Choice { checkpoint, made });
        }
        least = least.min(bytes);
    }
    let again = if count > 0 { ", whatever is computed again" } else { "" };
    Diagnostic::new("the model does not fit into `memory_budget`")
        .got(format!("{budget} bytes"))
        .expected(format!("at least {least} bytes{again}"))
        .hint("smaller batches take less")
        .err()
}
