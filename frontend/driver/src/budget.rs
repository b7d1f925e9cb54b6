//! Fits gradients into a memory budget by recomputing as few blocks as needed.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_passes::pass::Limit;

use crate::native::Native;

const HINT: &str = "`memory_budget` needs inputs of fixed shapes: give `shapes=`";

/// How much is recomputed, and the program that results from it.
pub struct Choice<T> {
    pub checkpoint: Limit,
    pub made: T,
}

/// Finds by bisection a small number of functions to recompute in the gradients so that a call
/// works within `budget` bytes. `make` compiles for a limit and also returns how many functions
/// are recomputed; `native` gives the native code of a compiled program.
///
/// Errors: those of `make`; a budget that is too small even with recomputation; dims without
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
    // Invariant: `high` fits and `low` does not. Memory need not be monotonic between them.
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

/// Used if recomputing everything does not fit: finds the smallest number that fits, if any does.
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
    let again = if count > 0 { ", whatever is recomputed" } else { "" };
    Diagnostic::of(ErrorKind::Memory, "the model does not fit into `memory_budget`")
        .got(format!("{budget} bytes"))
        .expected(format!("at least {least} bytes{again}"))
        .hint("use a smaller batch")
        .err()
}
