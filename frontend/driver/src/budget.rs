//! Fits gradients into a memory budget by recomputing as few blocks as needed.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_passes::pass::Limit;

use crate::native::Native;

const HINT: &str = "`memory_budget` needs inputs of fixed shapes: give `shapes=`";

/// The number of functions that are recomputed, and the resulting program.
pub struct Choice<T> {
    pub checkpoint: Limit,
    pub program: T,
}

/// Finds by bisection a small number of functions to recompute in the gradients so that a call
/// needs at most `budget` bytes. `make` compiles for a limit and also returns the number of
/// recomputed functions. `native` returns the native code of a compiled program.
///
/// Errors: those of `make`; a budget that is too small even with recomputation; dims without
/// numbers.
pub fn within<T>(
    budget: u64,
    mut make: impl FnMut(Limit) -> Result<(T, usize)>,
    native: impl Fn(&T) -> Option<&Native>,
) -> Result<Choice<T>> {
    let required_bytes = |program: &T| -> Result<u64> {
        let part = native(program).map(|native| native.joint.as_ref().unwrap_or(&native.forward));
        part.map_or(Ok(0), |part| {
            Ok(part.memory(&|_| None).map_err(|error| error.hint(HINT))?.total() as u64)
        })
    };
    let (program, _) = make(Limit::At(0))?;
    if required_bytes(&program)? <= budget {
        return Ok(Choice { checkpoint: Limit::At(0), program });
    }
    // A number beyond all functions also divides loops into segments.
    let (mut best, count) = make(Limit::At(usize::MAX))?;
    if required_bytes(&best)? > budget {
        return smallest_count(budget, count, &mut make, &required_bytes);
    }
    // Invariant: `high` fits and `low` does not. Memory need not be monotonic between them.
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = (low + high) / 2;
        let (program, _) = make(Limit::At(middle))?;
        match required_bytes(&program)? <= budget {
            true => (best, high) = (program, middle),
            false => low = middle,
        }
    }
    Ok(Choice { checkpoint: Limit::At(high), program: best })
}

/// Finds the smallest number of functions to recompute that fits, if any. Used if recomputing all
/// functions does not fit.
fn smallest_count<T>(
    budget: u64,
    count: usize,
    make: &mut impl FnMut(Limit) -> Result<(T, usize)>,
    required_bytes: &impl Fn(&T) -> Result<u64>,
) -> Result<Choice<T>> {
    let mut least = u64::MAX;
    for checkpoint in (0..=count).map(Limit::At) {
        let (program, _) = make(checkpoint)?;
        let bytes = required_bytes(&program)?;
        if bytes <= budget {
            return Ok(Choice { checkpoint, program });
        }
        least = least.min(bytes);
    }
    let recomputed = if count > 0 { ", even with recomputation" } else { "" };
    Diagnostic::of(ErrorKind::Memory, "the model does not fit into `memory_budget`")
        .got(format!("{budget} bytes"))
        .expected(format!("at least {least} bytes{recomputed}"))
        .hint("use a smaller batch")
        .err()
}
