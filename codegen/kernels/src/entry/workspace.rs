//! The workspace of a call: temporaries, zeros for missing output gradients, and the scratch memory
//! of kernels.

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
    /// The offset of the zeros that replace a missing output gradient, and the bytes of the largest
    /// one.
    pub zeros: Size,
    pub zeroed: Size,
    /// The offset of the kernels' scratch memory, and the bytes that each thread needs there, a
    /// multiple of 64.
    pub scratch: Size,
    pub own: Size,
    /// The offset of each temporary, by plan and buffer number; 0 for other buffers.
    offsets: Vec<Vec<Size>>,
}

/// The location of a buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct Slot {
    pub base: Base,
    /// Bytes from the base.
    pub offset: Size,
    /// The loops of which it is a row, and the bytes of each row.
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
    /// Errors: temporaries that no memory holds.
    pub fn new(plans: &[&Plan], optional: &[usize]) -> Result<Workspace> {
        let placed = plans.iter().map(|plan| temporaries(&plan.program));
        let (offsets, ends): (Vec<_>, Vec<_>) =
            placed.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let launches = plans.iter().flat_map(|plan| &plan.program.launches);
        let (zeros, own) = (most(&ends), most(launches.map(|launch| &launch.scratch)));
        let buffers = plans[0].program.buffers.iter();
        let zeroed = most(buffers.filter_map(|buffer| match buffer.place {
            Place::Argument(at) if optional.contains(&at) => Some(&buffer.bytes),
            _ => None,
        }));
        let line = ALIGN as i64;
        let scratch = zeros.clone() + zeroed.clone().ceil_div(line) * line;
        let own = own.ceil_div(line) * line;
        let bytes = scratch.clone() + own.clone();
        Ok(Workspace { bytes, zeros, zeroed, scratch, own, offsets })
    }

    /// All sizes of the layout.
    pub fn sizes(&self) -> impl Iterator<Item = &Size> {
        let own = [&self.zeros, &self.zeroed, &self.scratch, &self.own, &self.bytes];
        self.offsets.iter().flatten().chain(own)
    }

    /// The location of each buffer of a plan's program.
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

/// The offsets of a program's temporaries, and their total bytes.
///
/// Temporaries whose sizes are constant multiples of the same expression share an arena, planned as
/// the runtime does. The arenas follow each other. So one plan holds for all values of the symbols.
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

/// Places one group of temporaries from byte `start` on; returns the end of the arena.
fn arena(
    factor: &Size,
    requests: &[(usize, Request)],
    start: Size,
    offsets: &mut [Size],
) -> Result<Size> {
    // Plans in units of 1/64 byte, so that the planner's rounding to 64 has no effect: whether
    // offsets are multiples of 64 bytes is only known once the factor is.
    let fine =
        |request: &Request| Some(Request { bytes: request.bytes.checked_mul(ALIGN)?, ..*request });
    let fixed = *factor == Size::Const(1);
    let scaled: Option<Vec<Request>> = match fixed {
        true => Some(requests.iter().map(|(_, request)| *request).collect()),
        false => requests.iter().map(|(_, request)| fine(request)).collect(),
    };
    let plan = scaled.and_then(|scaled| Arena::of(&scaled)).ok_or_else(too_large)?;
    if fixed {
        for ((index, _), offset) in requests.iter().zip(&plan.offsets) {
            offsets[*index] = start.clone() + *offset as i64;
        }
        return Ok(start + plan.bytes as i64);
    }
    // Each distinct offset is rounded up by less than 64 bytes. One more step of 64 bytes for each
    // offset below it keeps the temporaries disjoint.
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

/// Splits a size into a constant factor and an expression.
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

/// The maximum of sizes; each distinct size is compared once.
fn most<'a>(sizes: impl IntoIterator<Item = &'a Size>) -> Size {
    let (mut fixed, mut others) = (0, Vec::new());
    for size in sizes {
        match size {
            Size::Const(value) => fixed = fixed.max(*value),
            other if !others.contains(other) => others.push(other.clone()),
            _ => {}
        }
    }
    others.into_iter().fold(Size::Const(fixed), |most, size| match most {
        // Sizes are never negative, so 0 is neutral.
        Size::Const(0) => size,
        most => most.max(size),
    })
}

fn too_large() -> Box<Diagnostic> {
    Box::new(Diagnostic::of(
        ErrorKind::Memory,
        "the temporaries of a function are larger than memory can be",
    ))
}
