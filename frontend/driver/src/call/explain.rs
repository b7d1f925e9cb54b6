//! Errors for the arrays of a call that do not fit.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, did_you_mean, near_misses};
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_model::block::quoted;

use super::signature::{Binding, Group, Signature, Sizes, Slot};

/// Access to the arrays of a call for error messages.
pub trait Given {
    /// The names of the arrays in a group.
    fn names(&self, group: Group) -> Vec<String>;

    /// The dtype and the sizes of the array of a slot. `None` if it is missing or not an array.
    fn array(&self, slot: usize) -> Option<(DType, Sizes)>;
}

impl Signature {
    /// The error for a violated guard. It names the terminals whose dims the guard compares.
    pub fn guard_error(&self, at: usize, binding: &Binding) -> Diagnostic {
        let guard = &self.guards[at];
        let (left, relation, right) = guard.relation();
        let mut error =
            Diagnostic::of(ErrorKind::ShapesAtCall, "the dims of inputs do not fit together");
        error.place = guard.loc.blocks();
        let mut explained: Vec<&Symbol> = Vec::new();
        let mut symbols: Vec<Symbol> = Vec::new();
        for dim in [left, right] {
            dim.for_each_symbol(&mut |s| symbols.push(s.clone()));
        }
        for symbol in &symbols {
            let Some(value) = self.evaluate(&Dim::symbol(symbol), binding) else {
                continue;
            };
            if explained.contains(&symbol) {
                continue;
            }
            explained.push(symbol);
            let home = self.slots.iter().find_map(|slot| {
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

    /// The names of a group.
    pub fn names(&self, group: Group) -> Vec<&str> {
        self.slots.iter().filter(|slot| slot.group == group).map(|slot| &*slot.name).collect()
    }

    /// The error for a group whose array names differ from those of the program.
    pub fn names_error(&self, given: &dyn Given, group: Group) -> Diagnostic {
        let (own, keys) = (self.names(group), given.names(group));
        let expected = match own.is_empty() {
            true => "none: the model has none".to_string(),
            false => quoted(&own),
        };
        match keys.iter().find(|key| !own.contains(&key.as_str())) {
            Some(unknown) => self.unknown(unknown, &own, &keys, group).expected(expected),
            None => self.missing(&own, &keys, group).expected(expected),
        }
    }

    fn unknown(&self, unknown: &str, own: &[&str], keys: &[String], group: Group) -> Diagnostic {
        let mut error = Diagnostic::of(
            ErrorKind::Terminal,
            format!("the model has no `{unknown}` among its {}", group.name()),
        );
        if group == Group::Params && keys.iter().all(|key| !own.contains(&key.as_str())) {
            error = error.got(quoted(keys));
        }
        let elsewhere = self.slots.iter().find(|slot| *slot.name == *unknown);
        error.hint = match elsewhere {
            Some(slot) => Some(format!("`{unknown}` is one of {}", slot.group.name())),
            None => {
                did_you_mean(unknown, own.iter().copied()).or_else(|| self.computed_inside(unknown))
            }
        };
        error
    }

    fn missing(&self, own: &[&str], keys: &[String], group: Group) -> Diagnostic {
        let missing: Vec<&str> =
            own.iter().filter(|n| !keys.iter().any(|k| k == *n)).copied().collect();
        let verb = if missing.len() == 1 { "is" } else { "are" };
        let what = format!("{} {verb} missing from {}", quoted(&missing), group.name());
        let mut error = Diagnostic::of(ErrorKind::MissingArray, what);
        error = error.got(if keys.is_empty() { "nothing".into() } else { quoted(keys) });
        error.hint = missing.iter().find_map(|name| self.other_name(name, group));
        error
    }

    /// The hint for an input that may be a value of the model under another name.
    fn other_name(&self, name: &str, group: Group) -> Option<String> {
        if group != Group::Inputs {
            return None;
        }
        let values = self.inner.iter().map(|(name, _)| &**name);
        let near = near_misses(name, values).first().copied()?;
        let (_, block) = self.inner.iter().find(|(own, _)| **own == *near)?;
        let slot = self.slots.iter().find(|s| s.group == group && *s.name == *name)?;
        let readers = slot.readers.blocks();
        let readers = readers.map(|blocks| format!("`{name}` is read by {blocks}; "));
        let readers = readers.unwrap_or_default();
        Some(format!("{readers}did you mean `{near}`, an output of `{block}`?"))
    }

    /// The hint for a name that is a value computed by a block of the model.
    fn computed_inside(&self, name: &str) -> Option<String> {
        let (_, block) = self.inner.iter().find(|(own, _)| **own == *name)?;
        Some(format!("`{name}` is not an input: the block `{block}` computes it"))
    }

    /// The error for an array whose type differs from that of its slot.
    pub fn mismatch(&self, given: &dyn Given, at: usize) -> Diagnostic {
        let slot = &self.slots[at];
        let (name, group) = (&slot.name, slot.group.name());
        let Some((dtype, sizes)) = given.array(at) else {
            return Diagnostic::of(
                ErrorKind::MissingArray,
                format!("`{name}` is missing from {group}"),
            );
        };
        let is_rank = slot.lead.is_none() && sizes.len() != slot.dims.len();
        let wrong = match dtype == slot.ty.dtype {
            false => "dtype",
            true if is_rank => "rank",
            true => "shape",
        };
        let error = Diagnostic::of(
            ErrorKind::ShapesAtCall,
            format!("`{name}` of {group} has the wrong {wrong}"),
        )
        .got(shown(dtype, sizes.iter().map(|s| s.to_string())))
        .expected(self.expected(given, at));
        match self.conflicting_dim(given, at, &sizes) {
            Some(conflicting_dim) if dtype == slot.ty.dtype && !is_rank => {
                error.fact("dims", conflicting_dim)
            }
            _ => error,
        }
    }

    /// Describes a dim that has a different size in an earlier array. Gives both sizes.
    fn conflicting_dim(&self, given: &dyn Given, at: usize, own: &Sizes) -> Option<String> {
        let slot = &self.slots[at];
        let size = |slot: &Slot, sizes: &Sizes, dim: &Dim| {
            let dims = &slot.ty.shape.dims;
            let back = dims.len() - dims.iter().position(|other| other == dim)?;
            sizes.len().checked_sub(back).map(|axis| sizes[axis])
        };
        let mut dims = slot.ty.shape.dims.iter().filter(|dim| dim.as_symbol().is_some());
        dims.find_map(|dim| {
            let here = size(slot, own, dim)?;
            let (other, there) = (0..at).find_map(|other| {
                let there = size(&self.slots[other], &given.array(other)?.1, dim)?;
                (there != here).then_some((other, there))
            })?;
            let (own, other) = (&slot.name, &self.slots[other].name);
            Some(format!("`{dim}` is {there} in `{other}` and {here} in `{own}`"))
        })
    }

    /// The type that a slot must have. Symbols that earlier slots determine are replaced by their
    /// sizes.
    pub fn expected(&self, given: &dyn Given, at: usize) -> String {
        let mut binding = self.binding();
        for before in 0..at {
            if let Some((_, sizes)) = given.array(before) {
                self.take(before, &sizes, &mut binding);
            }
        }
        let slot = &self.slots[at];
        let lead = slot.lead.map(|lead| match &binding.leads[lead] {
            Some(known) => known.iter().map(i64::to_string).collect::<Vec<_>>(),
            None => vec!["...".to_string()],
        });
        let dims = slot.ty.shape.dims.iter().map(|dim| match self.evaluate(dim, &binding) {
            Some(size) if dim.as_const().is_none() => format!("{dim}={size}"),
            _ => dim.to_string(),
        });
        shown(slot.ty.dtype, lead.into_iter().flatten().chain(dims))
    }
}

/// Formats a type, such as `float32[32, 784]`.
fn shown(dtype: DType, dims: impl Iterator<Item = String>) -> String {
    format!("{}[{}]", dtype.array_name(), dims.collect::<Vec<_>>().join(", "))
}
