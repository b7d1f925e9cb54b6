//! Error messages for calls that do not pass the check.

use mithril_driver::call::explain::Given;
use mithril_driver::call::indices::IndexOutOfRange;
use mithril_driver::call::signature::{Group, Mismatch, Sizes};
use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::dtype::DType;
use mithril_model::naming;
use pyo3::intern;
use pyo3::prelude::*;

use super::{Checker, Dicts, item, pytorch};
use crate::arrays::attributes;

/// The reason why a call is rejected.
pub enum Rejection {
    Names(Group),
    /// The value is not an array of the framework. It must be converted, or it is not known yet.
    Foreign(usize),
    Mismatch(Mismatch),
    Index(Box<IndexOutOfRange>),
}

impl From<Box<IndexOutOfRange>> for Rejection {
    fn from(outside: Box<IndexOutOfRange>) -> Rejection {
        Rejection::Index(outside)
    }
}

/// The arrays of a call from Python, for messages.
struct Arrays<'a, 'py> {
    py: Python<'py>,
    checker: &'a Checker,
    dicts: &'a Dicts<'a, 'py>,
}

impl<'py> Arrays<'_, 'py> {
    fn value(&self, slot: usize) -> Option<Bound<'py, PyAny>> {
        let group = self.checker.signature.slots[slot].group;
        item(self.dicts[group as usize]?, self.checker.keys[slot].bind(self.py))
    }
}

impl Given for Arrays<'_, '_> {
    fn names(&self, group: Group) -> Vec<String> {
        let keys = self.dicts[group as usize].map(|d| d.keys());
        keys.map(|keys| keys.iter().map(|key| key.to_string()).collect()).unwrap_or_default()
    }

    fn array(&self, slot: usize) -> Option<(DType, Sizes)> {
        let mut sizes = Sizes::new();
        let dtype = attributes(&self.value(slot)?, &mut sizes)?;
        Some((dtype, sizes))
    }
}

impl Checker {
    pub fn explain(&self, py: Python<'_>, dicts: &Dicts<'_, '_>, wrong: Rejection) -> Diagnostic {
        let arrays = Arrays { py, checker: self, dicts };
        match wrong {
            Rejection::Names(group) => self.names(&arrays, group),
            Rejection::Foreign(at) => self.foreign(&arrays, at),
            Rejection::Mismatch(Mismatch::Slot(at)) => self.mismatch(&arrays, at),
            Rejection::Mismatch(Mismatch::Guard(at, binding)) => {
                self.signature.guard_error(at, &binding)
            }
            Rejection::Index(outside) => self.signature.out_of_range(&outside),
        }
    }

    /// The error for an array of another framework, or for an array that does not fit.
    fn foreign(&self, arrays: &Arrays<'_, '_>, at: usize) -> Diagnostic {
        let slot = &self.signature.slots[at];
        let fits = arrays.array(at).is_some_and(|(dtype, sizes)| {
            dtype == slot.ty.dtype && self.signature.take(at, &sizes, &mut self.signature.binding())
        });
        let Some(value) = arrays.value(at).filter(|_| fits) else {
            return self.mismatch(arrays, at);
        };
        let class = value.get_type();
        let class = class.fully_qualified_name().map(|n| n.to_string()).unwrap_or_default();
        let (name, group) = (&slot.name, slot.group.name());
        let wanted = value.getattr(intern!(arrays.py, "requires_grad"));
        let wanted = wanted.and_then(|wanted| wanted.is_truthy());
        let why = match wanted.unwrap_or(false) {
            true => ", which would get no gradient",
            false => "",
        };
        Diagnostic::of(
            ErrorKind::OtherArray,
            format!("`{name}` of {group} is an array of another framework"),
        )
        .got(format!("{class}{why}"))
        .expected("an array of the backend")
        .hint("convert it with `backend.array(x)`")
    }

    /// The error for a dict that was not given.
    pub fn missing(&self, py: Python<'_>, group: Group) -> Diagnostic {
        let dicts: Dicts = [None; 4];
        self.names(&Arrays { py, checker: self, dicts: &dicts }, group)
    }

    /// The error for a dict whose names differ from those of the program.
    fn names(&self, arrays: &Arrays<'_, '_>, group: Group) -> Diagnostic {
        let error = self.signature.names_error(arrays, group);
        if group != Group::Params {
            return error;
        }
        let (own, keys) = (self.signature.names(group), arrays.names(group));
        let given: Vec<&str> = keys.iter().map(String::as_str).collect();
        if let Some(error) = renamed_params(&given, &own) {
            return error;
        }
        let known = |key: &&str| self.signature.slots.iter().any(|slot| *slot.name == **key);
        let Some(unknown) = given.iter().find(|key| !own.contains(key)) else { return error };
        let foreign = given.iter().all(|key| !own.contains(key)) && !known(unknown);
        match arrays.dicts[group as usize].filter(|_| foreign) {
            Some(dict) => {
                let other = "these are params of another model: `randomize_params()` draws those \
                             of this one";
                let renamed = pytorch::renamed(dict, &self.signature);
                let hint = renamed.or(error.hint).unwrap_or_else(|| other.to_string());
                Diagnostic { hint: Some(hint), ..error }
            }
            None => error,
        }
    }

    /// The error for a value that is not an array, or that has another type.
    fn mismatch(&self, arrays: &Arrays<'_, '_>, at: usize) -> Diagnostic {
        let slot = &self.signature.slots[at];
        let (name, group) = (&slot.name, slot.group.name());
        match (arrays.value(at), arrays.array(at)) {
            (Some(value), None) => {
                let class = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
                let of =
                    value.getattr("dtype").map(|dtype| format!(" of {dtype}")).unwrap_or_default();
                Diagnostic::of(
                    ErrorKind::OtherArray,
                    format!("`{name}` of {group} is not an array of the backend"),
                )
                .got(class + &of)
                .expected(self.signature.expected(arrays, at))
                .hint("convert it with `backend.array(x)`")
            }
            (Some(_), Some((dtype, _))) if dtype != slot.ty.dtype => {
                let hint = conversion(name, dtype, slot.ty.dtype);
                Diagnostic { hint, ..self.signature.mismatch(arrays, at) }
            }
            (Some(_), Some(_)) | (None, _) => self.signature.mismatch(arrays, at),
        }
    }
}

/// The hint for converting an array of another dtype. It suggests no cast between masks and
/// numbers, and no cast that rounds.
fn conversion(name: &str, given: DType, wanted: DType) -> Option<String> {
    let cast = || Some(format!("`backend.cast(x, \"{}\")`", wanted.array_name()));
    match (given, wanted) {
        (DType::Bool, _) => Some(format!(
            "`dtypes={{\"{name}\": ml.bool}}` at compile, if it is a mask; `backend.where(x, 1, 0)` \
             makes numbers"
        )),
        (_, DType::Bool) => {
            Some("compare to get bools, such as `x != 0` for ones and zeros".into())
        }
        _ if given.is_float() && wanted.is_float() => {
            Some("`backend.array(x)` casts floats to the backend's dtype".into())
        }
        _ if given.is_float() => {
            Some("round it first if its values are whole numbers: a cast truncates".into())
        }
        _ => cast(),
    }
}

/// The error for params with names from before blocks were added to the model. `None` if there are
/// no such names.
pub fn renamed_params(given: &[&str], own: &[&str]) -> Option<Diagnostic> {
    let renamed = naming::renamed(given, own);
    let (old, new) = renamed.first()?;
    let shown = renamed.iter().take(MAX_SHOWN).map(|(old, new)| format!("`{old}` -> `{new}`"));
    let mut listed: Vec<String> = shown.collect();
    if renamed.len() > MAX_SHOWN {
        listed.push(format!("… ({})", renamed.len()));
    }
    let what = format!(
        "the param `{old}` is called `{new}` now, as sibling blocks have been \
         added or removed"
    );
    let error = Diagnostic::of(ErrorKind::Terminal, what).fact("renamed", listed.join(", "));
    Some(error.hint("use `compiled.rename_params(params)` to get the current names"))
}

/// The number of renamed params that an error lists.
const MAX_SHOWN: usize = 4;
