//! The values of symbols during evaluation.

use rustc_hash::FxHashMap;

use crate::dim::{Dim, Symbol};
use crate::shape::{Shape, Type};
use crate::signature::solve;

/// The values of a function's symbols in one evaluation.
#[derive(Default)]
pub struct Dims {
    dims: FxHashMap<Symbol, i64>,
    leads: FxHashMap<Symbol, Vec<usize>>,
}

impl Dims {
    pub(super) fn get(&self, dim: &Dim) -> Option<i64> {
        dim.evaluate(&|s| self.dims.get(s).copied())
    }

    /// The shape in numbers; at most one dim may be unknown, as `None`.
    pub(super) fn shape(&self, shape: &Shape) -> Vec<Option<usize>> {
        let lead = shape.lead.as_ref().and_then(|l| self.leads.get(l)).cloned().unwrap_or_default();
        let dims = shape.dims.iter().map(|d| self.get(d).and_then(|v| usize::try_from(v).ok()));
        lead.into_iter().map(Some).chain(dims).collect()
    }

    /// A dim of the shape that has no value yet, although it is not `?`.
    pub(super) fn unbound<'s>(&self, shape: &'s Shape) -> Option<&'s Dim> {
        let unbound = |dim: &&Dim| !dim.is_unknown() && self.get(dim).is_none();
        shape.dims.iter().find(unbound)
    }

    /// Binds the symbols of a type from the shape of an array of that type.
    /// Errors: the array has the wrong rank or another dim.
    pub(super) fn bind(&mut self, ty: &Type, actual: &[usize]) -> Result<(), String> {
        let count = ty.shape.dims.len();
        if actual.len() < count || (ty.shape.lead.is_none() && actual.len() > count) {
            return Err(format!("{} dims for {ty}", actual.len()));
        }
        let (front, back) = actual.split_at(actual.len() - count);
        if let Some(lead) = &ty.shape.lead {
            let known = self.leads.entry(lead.clone()).or_insert_with(|| front.to_vec());
            if *known != front {
                return Err(format!("dims {front:?} where *{lead} is {known:?}"));
            }
        }
        for (dim, &size) in ty.shape.dims.iter().zip(back) {
            match self.get(dim) {
                Some(known) if known != size as i64 => {
                    return Err(format!("a dim of {size} where {dim} is {known}"));
                }
                Some(_) => {}
                None => self.bind_dim(dim, size),
            }
        }
        Ok(())
    }

    /// Binds the only unbound symbol of a dim, if it has just one, from the dim's size.
    fn bind_dim(&mut self, dim: &Dim, size: usize) {
        let mut unbound = Vec::new();
        dim.for_each_symbol(&mut |s| {
            if !self.dims.contains_key(s) && !unbound.contains(s) {
                unbound.push(s.clone());
            }
        });
        let known = |s: &Symbol| self.dims.get(s).copied().map(Dim::Const);
        let solved = solve(dim, &Dim::from(size), &unbound, &known);
        if let Some(Dim::Const(value @ 0..)) = solved.and_then(|v| v.into_iter().next()) {
            self.dims.insert(unbound.remove(0), value);
        }
    }
}
