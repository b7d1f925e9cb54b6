//! What is wrong with a call, as it is told.

use mithril_ir::diagnostic::{Diagnostic, did_you_mean, near_misses};
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_model::block::quoted;
use mithril_model::naming;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::indices::Outside;
use super::signature::{Binding, Group, Misfit};
use super::{Checker, Dicts, item, pytorch};
use crate::arrays::{Sizes, attributes};

/// Why a call is not right.
pub enum Wrong {
    Names(Group),
    /// No array of the framework: one to be converted, or one that is not there yet.
    Foreign(usize),
    Misfit(Misfit),
    Index(Box<Outside>),
}

impl From<Box<Outside>> for Wrong {
    fn from(outside: Box<Outside>) -> Wrong {
        Wrong::Index(outside)
    }
}

impl Checker {
    pub fn explain(&self, py: Python<'_>, dicts: &Dicts<'_, '_>, wrong: Wrong) -> Diagnostic {
        match wrong {
            Wrong::Names(group) => self.names(dicts[group as usize], group),
            Wrong::Foreign(at) => self.foreign(py, dicts, at),
            Wrong::Misfit(Misfit::Slot(at)) => self.mismatch(py, dicts, at),
            Wrong::Misfit(Misfit::Guard(at, binding)) => self.broken(at, &binding),
            Wrong::Index(outside) => self.out_of_range(&outside),
        }
    }

    /// A guard that does not hold, with the terminals that its dims are of.
    fn broken(&self, at: usize, binding: &Binding) -> Diagnostic {
        let guard = &self.signature.guards[at];
        let (left, relation, right) = guard.relation();
        let mut error =
            Diagnostic::new("Incompatible shapes: the dims of inputs do not fit together");
        error.place = guard.loc.blocks();
        let mut told: Vec<&Symbol> = Vec::new();
        let mut symbols: Vec<Symbol> = Vec::new();
        for dim in [left, right] {
            dim.for_each_symbol(&mut |s| symbols.push(s.clone()));
        }
        for symbol in &symbols {
            let Some(value) = self.signature.evaluate(&Dim::symbol(symbol), binding) else {
                continue;
            };
            if told.contains(&symbol) {
                continue;
            }
            told.push(symbol);
            let home = self.signature.slots.iter().find_map(|slot| {
                let dims = &slot.ty.shape.dims;
                let at = dims.iter().position(|d| d.as_symbol() == Some(symbol))?;
                let axis = match slot.lead {
                    None => at as i64,
                    Some(_) => at as i64 - dims.len() as i64,
                };
                let elsewhere = slot.readers.blocks().filter(|_| slot.readers != guard.loc);
                let readers = elsewhere.map(|blocks| format!(" in {blocks}")).unwrap_or_default();
                Some(format!(", axis {axis} of `{}`{readers}", slot.name))
            });
            error = error.got(format!("{symbol} = {value}{}", home.unwrap_or_default()));
        }
        error.expected(format!("{left} {relation} {right}"))
    }

    /// An array of another framework, where it would fit, or what does not fit.
    fn foreign(&self, py: Python<'_>, dicts: &Dicts<'_, '_>, at: usize) -> Diagnostic {
        let slot = &self.signature.slots[at];
        let value = dicts[slot.group as usize].and_then(|d| item(d, slot.key.bind(py)));
        let mut sizes = Sizes::new();
        let fits = value.as_ref().is_some_and(|value| {
            attributes(value, &mut sizes) == Some(slot.ty.dtype)
                && self.signature.take(at, &sizes, &mut self.signature.binding())
        });
        let Some(value) = value.filter(|_| fits) else {
            return self.mismatch(py, dicts, at);
        };
        let class = value.get_type();
        let class = class.fully_qualified_name().map(|n| n.to_string()).unwrap_or_default();
        let (name, group) = (&slot.name, slot.group.name());
        let wanted =
            value.getattr(intern!(py, "requires_grad")).and_then(|wanted| wanted.is_truthy());
        let why = match wanted.unwrap_or(false) {
            true => ", of which a gradient is wanted, that would not come back to it",
            false => "",
        };
        Diagnostic::new(format!("`{name}` of {group} is an array of another framework"))
            .got(format!("{class}{why}"))
            .expected("an array of the backend")
            .hint("`backend.array(x)` makes one")
    }

    /// A dict that was not given.
    pub fn missing(&self, group: Group) -> Diagnostic {
        self.names(None, group)
    }

    /// A dict with other names than the program has.
    fn names(&self, dict: Option<&Bound<'_, PyDict>>, group: Group) -> Diagnostic {
        let where_ = group.name();
        let own: Vec<&str> =
            self.signature.slots.iter().filter(|s| s.group == group).map(|s| &*s.name).collect();
        let keys = dict.map(|d| d.keys().iter().map(|k| k.to_string()).collect::<Vec<_>>());
        let keys = keys.unwrap_or_default();
        let expected = match own.is_empty() {
            true => "none: the model has none".to_string(),
            false => quoted(&own),
        };
        let unknown = keys.iter().find(|key| !own.contains(&key.as_str()));
        if group == Group::Params {
            let given: Vec<&str> = keys.iter().map(String::as_str).collect();
            if let Some(error) = renamed_params(&given, &own) {
                return error;
            }
        }
        if let Some(unknown) = unknown {
            let mut error = Diagnostic::new(format!(
                "Terminal not found: the model has no `{unknown}` among its {where_}"
            ))
            .expected(expected);
            let elsewhere = self.signature.slots.iter().find(|s| *s.name == **unknown);
            let others = keys.iter().all(|key| !own.contains(&key.as_str()));
            if others && group == Group::Params {
                let given = quoted(&keys);
                error.facts.insert(0, ("got".to_string(), given));
            }
            error.hint = match (elsewhere, dict, group) {
                (Some(slot), _, _) => Some(format!("`{unknown}` is one of {}", slot.group.name())),
                (None, Some(dict), Group::Params) if others => {
                    let renamed = pytorch::renamed(dict, &self.signature);
                    let near = || did_you_mean(unknown, own.iter().copied());
                    renamed.or_else(near).or_else(|| {
                        Some(
                            "these are params of another model: `randomize_params()` makes \
                              this one's"
                                .into(),
                        )
                    })
                }
                (None, _, _) => {
                    did_you_mean(unknown, own.iter().copied()).or_else(|| self.made(unknown))
                }
            };
            return error;
        }
        let missing: Vec<&str> =
            own.iter().filter(|n| !keys.iter().any(|k| k == *n)).copied().collect();
        let verb = if missing.len() == 1 { "is" } else { "are" };
        let mut error =
            Diagnostic::new(format!("{} {verb} missing from {where_}", quoted(&missing)));
        error = error.got(if keys.is_empty() { "nothing".into() } else { quoted(&keys) });
        error.hint = missing.iter().find_map(|name| self.misnamed(name, group));
        error.expected(expected)
    }

    /// The hint for an input that may be a value of the model under another name.
    fn misnamed(&self, name: &str, group: Group) -> Option<String> {
        if group != Group::Inputs {
            return None;
        }
        let made = self.signature.inner.iter().map(|(name, _)| &**name);
        let near = near_misses(name, made).first().copied()?;
        let (_, block) = self.signature.inner.iter().find(|(own, _)| **own == *near)?;
        let slot = self.signature.slots.iter().find(|s| s.group == group && *s.name == *name)?;
        let readers = slot.readers.blocks();
        let readers = readers.map(|blocks| format!("`{name}` is read by {blocks}; "));
        let readers = readers.unwrap_or_default();
        Some(format!("{readers}did you mean `{near}`, an output of `{block}`?"))
    }

    /// The hint for a value that a block of the model makes.
    fn made(&self, name: &str) -> Option<String> {
        let (_, block) = self.signature.inner.iter().find(|(own, _)| **own == *name)?;
        Some(format!("`{name}` is no input: the block `{block}` makes it"))
    }

    /// A value that is no array, or of another type.
    fn mismatch(&self, py: Python<'_>, dicts: &Dicts<'_, '_>, at: usize) -> Diagnostic {
        let slot = &self.signature.slots[at];
        let (name, group) = (&slot.name, slot.group.name());
        let value = dicts[slot.group as usize].and_then(|d| item(d, slot.key.bind(py)));
        let Some(value) = value else {
            return Diagnostic::new(format!("`{name}` is missing from {group}"));
        };
        let mut sizes = Sizes::new();
        let expected = self.expected(py, dicts, at);
        let Some(dtype) = attributes(&value, &mut sizes) else {
            let class = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
            let of = value.getattr("dtype").map(|dtype| format!(" of {dtype}")).unwrap_or_default();
            return Diagnostic::new(format!("`{name}` of {group} is no array of the backend"))
                .got(class + &of)
                .expected(expected)
                .hint("`backend.array(x)` makes one");
        };
        let got = shown(dtype, sizes.iter().map(|s| s.to_string()));
        if dtype != slot.ty.dtype {
            let error = Diagnostic::new(format!(
                "Incompatible shapes: `{name}` of {group} has another dtype"
            ))
            .got(got)
            .expected(expected);
            return Diagnostic { hint: conversion(name, dtype, slot.ty.dtype), ..error };
        }
        let what = match slot.lead.is_none() && sizes.len() != slot.dims.len() {
            true => "rank",
            false => "shape",
        };
        let place = if what == "rank" { "another rank" } else { "another shape" };
        let error =
            Diagnostic::new(format!("Incompatible shapes: `{name}` of {group} has {place}"))
                .got(got)
                .expected(expected);
        match self.shared(py, dicts, at, &sizes) {
            Some(shared) if what == "shape" => error.fact("dims", shared),
            _ => error,
        }
    }

    /// The dim that an array shares with one before, which has another size: of both.
    fn shared(
        &self,
        py: Python<'_>,
        dicts: &Dicts<'_, '_>,
        at: usize,
        own: &Sizes,
    ) -> Option<String> {
        let slot = &self.signature.slots[at];
        let sizes_of = |at: usize| {
            let slot = &self.signature.slots[at];
            let mut sizes = Sizes::new();
            let value = dicts[slot.group as usize].and_then(|d| item(d, slot.key.bind(py)))?;
            attributes(&value, &mut sizes).map(|_| sizes)
        };
        let size = |at: usize, sizes: &Sizes, dim: &Dim| {
            let dims = &self.signature.slots[at].ty.shape.dims;
            let back = dims.len() - dims.iter().position(|other| other == dim)?;
            sizes.len().checked_sub(back).map(|axis| sizes[axis])
        };
        let mut dims = slot.ty.shape.dims.iter().filter(|dim| dim.as_symbol().is_some());
        dims.find_map(|dim| {
            let here = size(at, own, dim)?;
            let mut before = 0..at;
            let (other, there) = before.find_map(|other| {
                let there = size(other, &sizes_of(other)?, dim)?;
                (there != here).then_some((other, there))
            })?;
            let (own, other) = (&slot.name, &self.signature.slots[other].name);
            Some(format!("`{dim}` is {there} in `{other}` and {here} in `{own}`"))
        })
    }

    /// The type a slot must have, with what the slots before it say of its symbols.
    fn expected(&self, py: Python<'_>, dicts: &Dicts<'_, '_>, at: usize) -> String {
        let mut binding = self.signature.binding();
        let mut sizes = Sizes::new();
        for (before, slot) in self.signature.slots[..at].iter().enumerate() {
            let value = dicts[slot.group as usize].and_then(|d| item(d, slot.key.bind(py)));
            if value.is_some_and(|v| attributes(&v, &mut sizes).is_some()) {
                self.signature.take(before, &sizes, &mut binding);
            }
        }
        let slot = &self.signature.slots[at];
        let lead = slot.lead.map(|lead| match &binding.leads[lead] {
            Some(known) => known.iter().map(i64::to_string).collect::<Vec<_>>(),
            None => vec!["...".to_string()],
        });
        let dims =
            slot.ty.shape.dims.iter().map(|dim| match self.signature.evaluate(dim, &binding) {
                Some(size) if dim.as_const().is_none() => format!("{dim}={size}"),
                _ => dim.to_string(),
            });
        shown(slot.ty.dtype, lead.into_iter().flatten().chain(dims))
    }
}

/// How an array of another dtype is to be given, where numbers keep their meaning: not by a cast that
/// makes numbers of a mask, a mask of numbers, or drops digits.
fn conversion(name: &str, given: DType, wanted: DType) -> Option<String> {
    let cast = || Some(format!("`backend.cast(x, \"{}\")`", wanted.array_name()));
    match (given, wanted) {
        (DType::Bool, _) => Some(format!(
            "`dtypes={{\"{name}\": ml.bool}}` at compile, if it is a mask; `backend.where(x, 1, 0)` \
             makes numbers"
        )),
        (_, DType::Bool) => {
            Some("a comparison makes bools, such as `x != 0` of ones and zeros".into())
        }
        _ if given.is_float() && wanted.is_float() => {
            Some("`backend.array(x)` casts floats to the backend's dtype".into())
        }
        _ if given.is_float() => {
            Some("round it on purpose, if its numbers are whole: a cast drops digits".into())
        }
        _ => cast(),
    }
}

/// The error for params with names that the model had before blocks were added to it; `None`: they
/// have not.
pub fn renamed_params(given: &[&str], own: &[&str]) -> Option<Diagnostic> {
    let renamed = naming::renamed(given, own);
    let (old, new) = renamed.first()?;
    let shown = renamed.iter().take(SHOWN).map(|(old, new)| format!("`{old}` -> `{new}`"));
    let mut told: Vec<String> = shown.collect();
    if renamed.len() > SHOWN {
        told.push(format!("… ({})", renamed.len()));
    }
    let what = format!(
        "Terminal not found: the param `{old}` is called `{new}` now, as blocks have been added or \
         left out beside its own"
    );
    let error = Diagnostic::new(what).fact("renamed", told.join(", "));
    Some(error.hint("`compiled.rename_params(params)` gives them the names they have now"))
}

/// How many renamed params an error lists.
const SHOWN: usize = 4;

/// `float32[32, 784]`.
fn shown(dtype: DType, dims: impl Iterator<Item = String>) -> String {
    format!("{}[{}]", dtype.array_name(), dims.collect::<Vec<_>>().join(", "))
}
