//! The layout of a call's workspace: temporaries, zeros for missing output gradients, and the
//! scratch memory of kernels.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_runtime::align::ALIGN;
use mithril_runtime::plan::{Plan as Arena, Request, lifetimes};
use mithril_runtime::program::{Place, Program};
use mithril_runtime::size::Size;

use crate::program::Plan;

/// The layout of a workspace, which is 64-byte aligned.
#[derive(Clone, Debug)]
pub struct Workspace {
    pub bytes: Size,
    /// The offset of the zeros that replace missing output gradients, and the size of the largest
    /// output gradient in bytes.
    pub zeros: Size,
    pub zeroed: Size,
    /// The offset of the kernels' scratch memory, and its size per thread, a multiple of 64 bytes.
    pub scratch: Size,
    pub own: Size,
    /// The offset of each temporary, by plan and buffer number; 0 for other buffers.
    offsets: Vec<Vec<Size>>,
}

/// The location of a buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct Slot {
    pub base: Base,
    /// The offset from the base, in bytes.
    pub offset: Size,
    /// The loops whose rows the buffer is, and the bytes of one row.
    pub rows: Vec<(usize, Size)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    Argument(usize),
    Result(usize),
    /// The number of a constant in the plan.
    Constant(usize),
    Workspace,
}

impl Workspace {
    /// Lays out one workspace for all plans of a function. `optional` are the indices of arguments
    /// that may be missing.
    ///
    /// Errors: temporaries are too large for memory.
    pub fn new(plans: &[&Plan], optional: &[usize]) -> Result<Workspace> {
        let placed = plans.iter().map(|plan| temporaries(&plan.program));
        let (offsets, ends): (Vec<_>, Vec<_>) =
            placed.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let launches = plans.iter().flat_map(|plan| &plan.program.launches);
        let (zeros, own) = (max_size(&ends), max_size(launches.map(|launch| &launch.scratch)));
        let buffers = plans[0].program.buffers.iter();
        let zeroed = max_size(buffers.filter_map(|buffer| match buffer.place {
            Place::Argument(at) if optional.contains(&at) => Some(&buffer.bytes),
            _ => None,
        }));
        let line = ALIGN as i64;
        let scratch = zeros.clone() + zeroed.clone().ceil_div(line) * line;
        let own = own.ceil_div(line) * line;
        let bytes = scratch.clone() + own.clone();
        Ok(Workspace { bytes, zeros, zeroed, scratch, own, offsets })
    }

    /// Returns all sizes of the layout.
    pub fn sizes(&self) -> impl Iterator<Item = &Size> {
        let own = [&self.zeros, &self.zeroed, &self.scratch, &self.own, &self.bytes];
        self.offsets.iter().flatten().chain(own)
    }

    /// Returns the location of each buffer of a plan's program.
    pub fn slots(&self, plan: usize, program: &Program) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::with_capacity(program.buffers.len());
        for (buffer, offset) in program.buffers.iter().zip(&self.offsets[plan]) {
            let at = |base| Slot { base, offset: Size::Const(0), rows: Vec::new() };
            slots.push(match &buffer.place {
                Place::Argument(argument) => at(Base::Argument(*argument)),
                Place::Result(result) => at(Base::Result(*result)),
                Place::Constant(constant) => at(Base::Constant(*constant)),
                Place::Temporary => Slot { offset: offset.clone(), ..at(Base::Workspace) },
                Place::Alias { of, offset } => {
                    let whole = slots[*of].clone();
                    Slot { offset: whole.offset + offset.clone(), ..whole }
                }
                Place::Row { of, of_loop } => {
                    let mut row = slots[*of].clone();
                    row.rows.push((*of_loop, buffer.bytes.clone()));
                    row
                }
            });
        }
        slots
    }
}

/// Returns the offsets of a program's temporaries, and their total size in bytes.
///
/// Temporaries whose sizes are constant multiples of the same expression share an arena, which is
/// planned in the same way as in the runtime. The arenas follow each other. So one plan is valid
/// for all values of the symbols.
fn temporaries(program: &Program) -> Result<(Vec<Size>, Size)> {
    let lives = lifetimes(program);
    let mut groups: Vec<(Size, Vec<(usize, Request)>)> = Vec::new();
    for (index, buffer) in program.buffers.iter().enumerate() {
        let (Place::Temporary, Some((first, last))) = (&buffer.place, lives[index]) else {
            continue;
        };
        let (count, factor) = split(&buffer.bytes);
        let bytes = usize::try_from(count).map_err(|_| too_large())?;
        let request = (index, Request { bytes, first, last });
        match groups.iter_mut().find(|(other, _)| *other == factor) {
            Some((_, requests)) => requests.push(request),
            None => groups.push((factor, vec![request])),
        }
    }
    let mut offsets = vec![Size::Const(0); program.buffers.len()];
    let mut end = Size::Const(0);
    for (factor, requests) in groups {
        end = arena(&factor, &requests, end, &mut offsets)?;
    }
    Ok((offsets, end))
}

/// Places one group of temporaries from byte `start` on. Returns the end of the arena.
fn arena(
    factor: &Size,
    requests: &[(usize, Request)],
    start: Size,
    offsets: &mut [Size],
) -> Result<Size> {
    // The planner rounds sizes to multiples of 64. Sizes are given in units of 1/64, so that this
    // has no effect: whether offsets are multiples of 64 bytes depends on the value of the factor.
    let fine_units =
        |request: &Request| Some(Request { bytes: request.bytes.checked_mul(ALIGN)?, ..*request });
    let fixed = *factor == Size::Const(1);
    let scaled: Option<Vec<Request>> = match fixed {
        true => Some(requests.iter().map(|(_, request)| *request).collect()),
        false => requests.iter().map(|(_, request)| fine_units(request)).collect(),
    };
    let plan = scaled.and_then(|scaled| Arena::of(&scaled)).ok_or_else(too_large)?;
    if fixed {
        for ((index, _), offset) in requests.iter().zip(&plan.offsets) {
            offsets[*index] = start.clone() + *offset as i64;
        }
        return Ok(start + plan.bytes as i64);
    }
    // Rounding adds less than 64 bytes to an offset. Each offset is also moved by 64 bytes for each
    // distinct offset below it, which keeps the temporaries disjoint.
    let mut starts = plan.offsets.clone();
    starts.sort_unstable();
    starts.dedup();
    let place = |offset: usize, rank: usize| {
        let exact = factor.clone() * (offset / ALIGN) as i64;
        start.clone() + exact.ceil_div(ALIGN as i64) * ALIGN as i64 + (rank * ALIGN) as i64
    };
    for ((index, _), offset) in requests.iter().zip(&plan.offsets) {
        offsets[*index] = place(*offset, starts.partition_point(|start| start < offset));
    }
    Ok(place(plan.bytes, starts.len()))
}

/// Splits a size into a constant factor and the remaining expression.
fn split(size: &Size) -> (i64, Size) {
    match size {
        Size::Const(value) => (*value, Size::Const(1)),
        Size::Product(parts) => {
            let (mut count, mut factor) = (1i64, Size::Const(1));
            for part in parts {
                match part {
                    Size::Const(value) if count.checked_mul(*value).is_some() => count *= value,
                    other => factor = factor * other.clone(),
                }
            }
            (count, factor)
        }
        other => (1, other.clone()),
    }
}

/// Returns the maximum of sizes. Each distinct size is compared once.
fn max_size<'a>(sizes: impl IntoIterator<Item = &'a Size>) -> Size {
    let (mut fixed, mut others) = (0, Vec::new());
    for size in sizes {
        match size {
            Size::Const(value) => fixed = fixed.max(*value),
            other if !others.contains(other) => others.push(other.clone()),
            _ => {}
        }
    }
    others.into_iter().fold(Size::Const(fixed), |max, size| match max {
        // Sizes are never negative, so 0 is the identity of the maximum.
        Size::Const(0) => size,
        max => max.max(size),
    })
}

fn too_large() -> Box<Diagnostic> {
    Box::new(Diagnostic::of(
        ErrorKind::Memory,
        "the temporaries of a function are too large for memory",
    ))
}
