//! Checks of integer arguments whose elements index an axis.

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_passes::indexed::Indexed;
use mithril_runtime::size::Size;

use super::check::named;
use super::{Array, Dimension, Group};
use crate::program::{Plan, size};

/// A check that elements of an argument are valid indices.
#[derive(Clone, Debug)]
pub struct Indices {
    /// The index of the argument.
    pub argument: usize,
    /// The offset of the first element, and the loops over elements, outermost first, each with its
    /// count and stride.
    pub first: Size,
    pub loops: Vec<(Size, Size)>,
    /// The length of the axis that they index.
    pub extent: Size,
    /// Whether a negative index counts from the end.
    pub from_end: bool,
    /// Values that stand for no index, and are allowed.
    pub ignored: Vec<i64>,
    /// The check as text, with the parameters' names: `tokens: indices from -10 to 9, of block
    /// ...`.
    pub text: String,
}

/// Returns the index checks of a function's arguments.
///
/// Errors: a dim cannot be derived from the arguments.
pub fn indices(
    indexed: &[Indexed],
    arguments: &[Array],
    plan: &Plan,
    symbols: &[Dimension],
) -> Result<Vec<Indices>> {
    let mut found = Vec::new();
    for own in indexed {
        let is_argument = |array: &Array| array.group == Group::Input && array.path == own.argument;
        if let Some(argument) = arguments.iter().position(is_argument) {
            found.push(check(own, argument, &arguments[argument], plan, symbols)?);
        }
    }
    Ok(found)
}

fn check(
    own: &Indexed,
    argument: usize,
    array: &Array,
    plan: &Plan,
    symbols: &[Dimension],
) -> Result<Indices> {
    let size = |dim: &Dim| size(dim, &plan.symbols);
    let dims = &array.ty.shape.dims;
    let (mut first, mut stride) = (Size::Const(0), Dim::Const(1));
    let mut loops: Vec<(Dim, Dim)> = Vec::new();
    // Goes from the last axis to the first. Consecutive axes that are read entirely are merged to
    // one loop.
    let mut inner_is_whole = false;
    for (from_last, dim) in dims.iter().rev().enumerate() {
        match own.part.iter().find(|range| range.axis == from_last + 1) {
            None if inner_is_whole => {
                let inner = loops.last_mut().expect("an inner loop exists");
                inner.0 = &inner.0 * dim;
            }
            None => loops.push((dim.clone(), stride.clone())),
            Some(range) => {
                first = first + size(&(&range.start * &stride))?;
                loops.push((range.count.clone(), &stride * &Dim::Const(range.step)));
            }
        }
        inner_is_whole = own.part.iter().all(|range| range.axis != from_last + 1);
        stride = &stride * dim;
    }
    let loops = loops.iter().rev().map(|(count, stride)| Ok((size(count)?, size(stride)?)));
    let part = if own.part.is_empty() { "" } else { " that are read" };
    let extent = named(&own.extent, symbols);
    let lowest = if own.from_end { -&extent } else { Dim::Const(0) };
    let ignored = own.ignored.iter().map(|value| format!(", or {value}"));
    let of = own.readers.blocks().map(|blocks| format!(", of {blocks}")).unwrap_or_default();
    let text = format!(
        "{}: indices{part} from {lowest} to {}{}{of}",
        array.name,
        &extent - &Dim::Const(1),
        ignored.collect::<String>()
    );
    Ok(Indices {
        argument,
        first,
        loops: loops.collect::<Result<_>>()?,
        extent: size(&own.extent)?,
        from_end: own.from_end,
        ignored: own.ignored.clone(),
        text,
    })
}

impl Indices {
    /// All sizes that the check evaluates.
    pub fn sizes(&self) -> impl Iterator<Item = &Size> {
        let loops = self.loops.iter().flat_map(|(count, stride)| [count, stride]);
        [&self.first, &self.extent].into_iter().chain(loops)
    }
}
