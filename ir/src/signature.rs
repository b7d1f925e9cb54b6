//! Calls: a callee's signature against the types of the operands.

use rustc_hash::FxHashMap;

use crate::attr::Attr;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::{Dim, Symbol};
use crate::graph::Function;
use crate::op::{Op, ShapeRule};
use crate::shape::{Guard, Shape, Type, unify};

/// What the symbols of a signature stand for at a call.
#[derive(Default)]
pub struct Binding {
    dims: FxHashMap<Symbol, Dim>,
    leads: FxHashMap<Symbol, Shape>,
}

impl Binding {
    pub fn bind_dim(&mut self, symbol: Symbol, dim: Dim) {
        self.dims.insert(symbol, dim);
    }

    pub fn bind_lead(&mut self, symbol: Symbol, shape: Shape) {
        self.leads.insert(symbol, shape);
    }

    pub fn dim(&self, dim: &Dim) -> Dim {
        dim.substitute(&|s| self.dims.get(s).cloned())
    }

    pub fn shape(&self, shape: &Shape) -> Shape {
        shape.substitute(&|s| self.dims.get(s).cloned(), &|s| {
            self.leads.get(s).cloned()
        })
    }

    pub fn ty(&self, ty: &Type) -> Type {
        Type {
            shape: self.shape(&ty.shape),
            dtype: ty.dtype,
        }
    }

    /// Binds the symbols of `pattern` so that it becomes `actual`. Dims that are expressions are
    /// compared once their symbols are bound. Errors: a dim or the number of dims differs.
    fn shape_against(
        &mut self,
        pattern: &Shape,
        actual: &Shape,
        guards: &mut Vec<Guard>,
    ) -> Result<(), String> {
        let (count, have) = (pattern.dims.len(), actual.dims.len());
        match &pattern.lead {
            None if actual.lead.is_some() || have != count => {
                return Err(format!("{count} dims are expected"));
            }
            Some(_) if have < count => return Err(format!("at least {count} dims are expected")),
            _ => {}
        }
        let (front, back) = actual.dims.split_at(have - count);
        if let Some(lead) = &pattern.lead {
            let front = Shape {
                lead: actual.lead.clone(),
                dims: front.into(),
            };
            match self.leads.get(lead) {
                None => self.bind_lead(lead.clone(), front),
                Some(bound) if same_shape(bound, &front, guards) => {}
                Some(bound) => return Err(format!("`*{lead}` is {bound} elsewhere")),
            }
        }
        for (want, got) in pattern.dims.iter().zip(back) {
            match want.as_symbol() {
                Some(symbol) if !self.dims.contains_key(symbol) => {
                    self.bind_dim(symbol.clone(), got.clone());
                }
                _ => {
                    let want = self.dim(want);
                    if unify(&want, got, guards).is_none() {
                        return Err(format!("{want} is expected, not {got}"));
                    }
                }
            }
        }
        Ok(())
    }
}

fn same_shape(a: &Shape, b: &Shape, guards: &mut Vec<Guard>) -> bool {
    a.lead == b.lead
        && a.dims.len() == b.dims.len()
        && a.dims
            .iter()
            .zip(&b.dims)
            .all(|(x, y)| unify(x, y, guards).is_some())
}

/// What a rule knows of an operation that names a function, to type its results.
pub struct CallTypes<'a> {
    pub callee: &'a Function,
    pub operands: &'a [&'a Type],
    pub attrs: &'a [Attr],
    pub guards: &'a mut Vec<Guard>,
    pub fresh: &'a mut dyn FnMut() -> Symbol,
}

impl CallTypes<'_> {
    /// The types of one call's results on operands of these types.
    pub fn instantiate(&mut self, operands: &[&Type]) -> Result<Vec<Type>> {
        instantiate(self.callee, operands, self.guards, self.fresh)
    }
}

/// The types of the results of an operation that names a function.
/// Errors: number or types of the operands.
pub fn call_types(op: Op, mut cx: CallTypes) -> Result<Vec<Type>> {
    match op.shape {
        ShapeRule::Call(rule) => rule(&mut cx),
        ShapeRule::Broadcast | ShapeRule::First | ShapeRule::Rule(_) => {
            Diagnostic::new(format!("`{}` calls no function", op.name)).err()
        }
    }
}

/// The types of a call's results: the signature with its symbols bound by the operands. Symbols
/// that results alone have become fresh ones. Errors: number or types of the operands.
pub fn instantiate(
    callee: &Function,
    operands: &[&Type],
    guards: &mut Vec<Guard>,
    fresh: &mut dyn FnMut() -> Symbol,
) -> Result<Vec<Type>> {
    let mut binding = bind(callee, operands, guards)?;
    for result in &callee.results {
        let shape = &callee.ty(result.value).shape;
        if let Some(lead) = shape
            .lead
            .as_ref()
            .filter(|lead| !binding.leads.contains_key(*lead))
        {
            binding.bind_lead(lead.clone(), Shape::with_lead(fresh(), []));
        }
        for dim in &shape.dims {
            dim.for_each_symbol(&mut |symbol| {
                if !binding.dims.contains_key(symbol) {
                    binding.dims.insert(symbol.clone(), Dim::symbol(fresh()));
                }
            });
        }
    }
    for guard in &callee.guards {
        let (left, right) = (binding.dim(&guard.left), binding.dim(&guard.right));
        if unify(&left, &right, guards).is_none() {
            return Diagnostic::new(format!(
                "Incompatible shapes during compilation: `{}` needs {} == {}",
                callee.name, guard.left, guard.right
            ))
            .got(format!("{left} and {right}"))
            .err();
        }
    }
    Ok(callee
        .results
        .iter()
        .map(|r| binding.ty(callee.ty(r.value)))
        .collect())
}

/// What a signature's symbols stand for where it is called on `operands`.
/// Errors: number or types of the operands.
pub fn bind(callee: &Function, operands: &[&Type], guards: &mut Vec<Guard>) -> Result<Binding> {
    if callee.args.len() != operands.len() {
        return Diagnostic::new(format!(
            "`{}` takes another number of operands",
            callee.name
        ))
        .got(operands.len())
        .expected(callee.args.len())
        .err();
    }
    let mut binding = Binding::default();
    for ((value, arg), actual) in callee.arguments().zip(operands) {
        let want = callee.ty(value);
        if want.dtype != actual.dtype {
            return Diagnostic::new(format!(
                "`{}` of `{}` has another dtype",
                arg.name, callee.name
            ))
            .got(actual)
            .expected(want)
            .hint("make the dtype explicit with `cast`")
            .err();
        }
        if let Err(why) = binding.shape_against(&want.shape, &actual.shape, guards) {
            return Diagnostic::new(format!(
                "Incompatible shapes during compilation: `{}` of `{}`: {why}",
                arg.name, callee.name
            ))
            .got(actual)
            .expected(want)
            .err();
        }
    }
    Ok(binding)
}
