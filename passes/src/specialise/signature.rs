//! The argument types of a copy of a function: only as specific as its callers require.

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::graph::Function;
use mithril_ir::shape::{Shape, Type};
use mithril_ir::signature::{Binding, bind};
use rustc_hash::{FxHashMap, FxHashSet};

/// The argument types for operands of these types: constant dims become fixed, equal dims become
/// one symbol, ranks become known. Other dims stay symbols of the function itself, so that calls
/// whose dims differ only in names share a copy.
/// Errors: number or types of the operands.
pub fn signature(function: &Function, operands: &[&Type]) -> Result<Vec<Type>> {
    let binding = bind(function, operands, &mut Vec::new())?;
    let args = || function.arguments().map(|(value, _)| function.ty(value));
    let mut names = Names::default();
    for ty in args() {
        ty.shape.for_each_symbol(&mut |symbol| {
            names.taken.insert(symbol.clone());
        });
    }
    let mut own = Binding::default();
    let mut done = FxHashSet::default();
    for ty in args() {
        if let Some(lead) = ty.shape.lead.as_ref().filter(|l| done.insert((*l).clone())) {
            let actual = binding.shape(&Shape::with_lead(lead.clone(), []));
            own.bind_lead(lead.clone(), names.front(lead, &actual));
        }
        for dim in &ty.shape.dims {
            dim.for_each_symbol(&mut |symbol| {
                if done.insert(symbol.clone()) {
                    let actual = binding.dim(&Dim::symbol(symbol));
                    own.bind_dim(symbol.clone(), names.dim(actual, symbol));
                }
            });
        }
    }
    Ok(args().map(|ty| own.ty(ty)).collect())
}

/// Maps the callers' dims to symbols of the function.
#[derive(Default)]
struct Names {
    taken: FxHashSet<Symbol>,
    dims: FxHashMap<Dim, Dim>,
    leads: FxHashMap<Symbol, Symbol>,
}

impl Names {
    fn dim(&mut self, actual: Dim, symbol: &Symbol) -> Dim {
        match actual {
            Dim::Const(_) => actual,
            Dim::Unknown => Dim::symbol(symbol),
            Dim::Expr(_) => self.dims.entry(actual).or_insert_with(|| Dim::symbol(symbol)).clone(),
        }
    }

    /// The shape that replaces a rank variable.
    fn front(&mut self, lead: &Symbol, actual: &Shape) -> Shape {
        let dims: Vec<Dim> = actual
            .dims
            .iter()
            .cloned()
            .enumerate()
            .map(|(i, dim)| {
                let mut name = Symbol::from(format!("{lead}_{i}"));
                while !self.taken.insert(name.clone()) {
                    name = Symbol::from(format!("{name}_"));
                }
                self.dim(dim, &name)
            })
            .collect();
        let own = |actual: &Symbol| {
            self.leads.entry(actual.clone()).or_insert_with(|| lead.clone()).clone()
        };
        Shape { lead: actual.lead.as_ref().map(own), dims: dims.into() }
    }
}
