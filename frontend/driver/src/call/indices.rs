//! Checks the integers of a call that index an axis, in one pass over each array.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::dim::Dim;
use mithril_passes::indexed::Indexed;
use smallvec::SmallVec;

use super::elements::{Bounds, Elements, Range};
use super::signature::{Binding, Signature};

/// An index that is out of range.
pub struct IndexOutOfRange {
    /// The position in [`Signature::indexed`] of the violated check.
    indexed: usize,
    value: i64,
    /// The index of the element along each axis.
    place: Vec<i64>,
    least: i64,
    limit: i64,
}

impl Signature {
    /// Checks that all indices in the array of a slot are in range for these values of the symbols.
    ///
    /// Errors: the first index that is out of range.
    pub fn check_indices<O>(
        &self,
        slot: usize,
        elements: &Elements<O>,
        binding: &Binding,
    ) -> Result<(), Box<IndexOutOfRange>> {
        let own = self.indexed.iter().enumerate().filter(|(_, (own, _))| *own == slot);
        for (indexed, (_, own)) in own {
            if let Some((value, place, least, limit)) = self.outside(own, elements, binding) {
                return Err(Box::new(IndexOutOfRange { indexed, value, place, least, limit }));
            }
        }
        Ok(())
    }

    /// The first index that is out of range, its position, and the limits of the range.
    fn outside<O>(
        &self,
        own: &Indexed,
        elements: &Elements<O>,
        binding: &Binding,
    ) -> Option<(i64, Vec<i64>, i64, i64)> {
        let limit = self.evaluate(&own.extent, binding)?;
        let least = if own.from_end { -limit } else { 0 };
        let all = elements.sizes().iter().map(|&count| Range { start: 0, count, step: 1 });
        let mut parts: SmallVec<[Range; 6]> = all.collect();
        for range in &own.part {
            let axis = parts.len().checked_sub(range.axis)?;
            parts[axis] = Range {
                start: self.evaluate(&range.start, binding)?,
                count: self.evaluate(&range.count, binding)?,
                step: range.step,
            };
        }
        let bounds = Bounds { least, limit, ignored: &own.ignored };
        let (value, place) = elements.outside(&parts, &bounds)?;
        Some((value, place, least, limit))
    }

    /// The error for an index that is out of range.
    pub fn out_of_range(&self, outside: &IndexOutOfRange) -> Diagnostic {
        let IndexOutOfRange { indexed, value, place, least, limit } = outside;
        let (slot, own) = &self.indexed[*indexed];
        let slot = &self.slots[*slot];
        let place: Vec<String> = place.iter().map(i64::to_string).collect();
        let at = match &place[..] {
            [] => String::new(),
            place => format!(" at [{}]", place.join(", ")),
        };
        let ignored = own.ignored.iter().map(|value| format!(", or {value}"));
        let expected = match limit {
            0 => "no index: the axis is empty".to_string(),
            limit => {
                // A length is at most the size of an axis.
                let size = &own.extent - &Dim::Const(1);
                let length = match own.extent.as_const() {
                    None if size.as_symbol().is_some() => format!(" (`{size}` is {})", limit - 1),
                    None => format!(" (`{}` is {limit})", own.extent),
                    Some(_) => String::new(),
                };
                let ignored = ignored.collect::<String>();
                format!("{least} to {}{ignored}{length}", limit - 1)
            }
        };
        let what = format!("`{}` of {}", slot.name, slot.group.name());
        let mut error = Diagnostic::of(ErrorKind::IndexRange, what)
            .got(format!("{value}{at}"))
            .expected(expected);
        error.place = own.readers.blocks();
        error
    }
}
