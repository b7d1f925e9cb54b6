//! The check of the integers of a call that index an axis: one pass over each.

use mithril_ir::diagnostic::Diagnostic;
use mithril_passes::indexed::Indexed;
use pyo3::prelude::*;
use smallvec::SmallVec;

use super::Checker;
use super::signature::Binding;
use crate::arrays::{Bounds, Elements, Part};

/// Arrays that index an axis, by slot.
pub type Held<'py> = SmallVec<[(usize, Bound<'py, PyAny>); 2]>;

/// An index that is out of range.
pub struct Outside {
    /// The number of what says so.
    indexed: usize,
    value: i64,
    /// Along each axis.
    place: Vec<i64>,
    least: i64,
    limit: i64,
}

impl Checker {
    /// Whether all indices are in range, for these values of the symbols.
    pub fn check_indices(&self, held: &Held<'_>, binding: &Binding) -> Result<(), Box<Outside>> {
        let signature = &self.signature;
        for (at, value) in held {
            let Some(elements) = self.reader.elements(value, signature.everywhere) else {
                continue;
            };
            let own = signature.indexed.iter().enumerate().filter(|(_, (slot, _))| slot == at);
            for (indexed, (_, own)) in own {
                let found = self.outside(own, &elements, binding);
                if let Some((value, place, least, limit)) = found {
                    let outside = Outside { indexed, value, place, least, limit };
                    return Err(Box::new(outside));
                }
            }
        }
        Ok(())
    }

    /// The first index out of range, its place, and the range.
    fn outside(
        &self,
        own: &Indexed,
        elements: &Elements,
        binding: &Binding,
    ) -> Option<(i64, Vec<i64>, i64, i64)> {
        let limit = self.signature.evaluate(&own.extent, binding)?;
        let least = if own.from_end { -limit } else { 0 };
        let all = elements.sizes.iter().map(|&count| Part { start: 0, count, step: 1 });
        let mut parts: SmallVec<[Part; 6]> = all.collect();
        for range in &own.part {
            let axis = parts.len().checked_sub(range.axis)?;
            parts[axis] = Part {
                start: self.signature.evaluate(&range.start, binding)?,
                count: self.signature.evaluate(&range.count, binding)?,
                step: range.step,
            };
        }
        let bounds = Bounds { least, limit, ignored: &own.ignored };
        let (value, place) = elements.outside(&parts, &bounds)?;
        Some((value, place, least, limit))
    }

    pub(super) fn out_of_range(&self, outside: &Outside) -> Diagnostic {
        let Outside { indexed, value, place, least, limit } = outside;
        let (slot, own) = &self.signature.indexed[*indexed];
        let slot = &self.signature.slots[*slot];
        let place: Vec<String> = place.iter().map(i64::to_string).collect();
        let at = match &place[..] {
            [] => String::new(),
            place => format!(" at [{}]", place.join(", ")),
        };
        let ignored = own.ignored.iter().map(|value| format!(", or {value}"));
        let expected = match limit {
            0 => "no index: the axis is empty".to_string(),
            limit => {
                let length = match own.extent.as_const() {
                    None => format!(" (`{}` is {limit})", own.extent),
                    Some(_) => String::new(),
                };
                let ignored = ignored.collect::<String>();
                format!("{least} to {}{ignored}{length}", limit - 1)
            }
        };
        let what = format!("Index out of range: `{}` of {}", slot.name, slot.group.name());
        let mut error = Diagnostic::new(what).got(format!("{value}{at}")).expected(expected);
        error.place = own.readers.blocks();
        error
    }
}
