//! Calls: matches a callee's signature with the types of the operands.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::attr::Attr;
use crate::diagnostic::{Diagnostic, ErrorKind, Name, Result};
use crate::dim::{Dim, Symbol};
use crate::graph::{Constraint, Function, Operation};
use crate::message;
use crate::op::{Gradient, Op, ShapeRule};
use crate::shape::{Guard, Shape, Type, unify};

/// The binding of a signature's symbols at a call.
#[derive(Clone, Default)]
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

    /// Whether all symbols of the shape are bound.
    pub fn knows_shape(&self, shape: &Shape) -> bool {
        shape.lead.as_ref().is_none_or(|lead| self.leads.contains_key(lead))
            && shape.dims.iter().all(|dim| self.knows(dim))
    }

    /// Whether all symbols of the dim are bound.
    fn knows(&self, dim: &Dim) -> bool {
        let mut known = true;
        dim.for_each_symbol(&mut |s| known &= self.dims.contains_key(s));
        known
    }

    pub fn shape(&self, shape: &Shape) -> Shape {
        shape.substitute(&|s| self.dims.get(s).cloned(), &|s| self.leads.get(s).cloned())
    }

    pub fn ty(&self, ty: &Type) -> Type {
        Type { shape: self.shape(&ty.shape), dtype: ty.dtype }
    }

    /// Binds the symbols of `pattern` so that it equals `actual`. Dims that are expressions are
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
            let front = Shape { lead: actual.lead.clone(), dims: front.into() };
            match self.leads.get(lead) {
                None => self.bind_lead(lead.clone(), front),
                Some(bound) if same_shape(bound, &front, guards) => {}
                Some(bound) => return Err(format!("`*{lead}` is already bound to {bound}")),
            }
        }
        for (want, got) in pattern.dims.iter().zip(back) {
            match want.as_symbol() {
                Some(symbol) if !self.dims.contains_key(symbol) => {
                    self.bind_dim(symbol.clone(), got.clone());
                }
                Some(_) => self.equal(want, got, guards)?,
                // Later operands may bind its symbols.
                None => {}
            }
        }
        Ok(())
    }

    fn equal(&self, want: &Dim, got: &Dim, guards: &mut Vec<Guard>) -> Result<(), String> {
        let want = self.dim(want);
        match unify(&want, got, guards) {
            Some(_) => Ok(()),
            None => Err(format!("expected {want}, got {got}")),
        }
    }

    /// Compares the dims that are expressions, once bare symbols are bound. Solves for symbols that
    /// occur only in expressions; those without a solution are bound to a dim from `unknowns`, and
    /// the callee checks them.
    fn expressions_against(
        &mut self,
        pattern: &Shape,
        actual: &Shape,
        guards: &mut Vec<Guard>,
        unknowns: &mut dyn FnMut() -> Dim,
    ) -> Result<(), String> {
        let skipped = actual.dims.len() - pattern.dims.len();
        for (want, got) in pattern.dims.iter().zip(&actual.dims[skipped..]) {
            if want.as_symbol().is_some() {
                continue;
            }
            let mut unbound = Vec::new();
            want.for_each_symbol(&mut |s| {
                if !self.dims.contains_key(s) && !unbound.contains(s) {
                    unbound.push(s.clone());
                }
            });
            if !unbound.is_empty() {
                let solved = solve(want, got, &unbound, &|s| self.dims.get(s).cloned());
                let known = solved.is_some();
                let values = solved.unwrap_or_else(|| unbound.iter().map(|_| unknowns()).collect());
                self.dims.extend(unbound.into_iter().zip(values));
                if !known {
                    continue;
                }
            }
            self.equal(want, got, guards)?;
        }
        Ok(())
    }
}

/// Solves `pattern == actual` for the unbound symbols of `pattern`: if there is one and `pattern`
/// is linear in it, or by matching symbol with symbol if the two differ only in names.
pub(crate) fn solve(
    pattern: &Dim,
    actual: &Dim,
    unbound: &[Symbol],
    bound: &dyn Fn(&Symbol) -> Option<Dim>,
) -> Option<Vec<Dim>> {
    let with = |values: &[Dim]| {
        pattern.substitute(&|s| match unbound.iter().position(|u| u == s) {
            Some(at) => values.get(at).cloned(),
            None => bound(s),
        })
    };
    if unbound.len() == 1 {
        // A name that cannot occur in text.
        let unknown = Dim::symbol("'unknown");
        let constant = with(&[Dim::Const(0)]);
        let slope = with(&[Dim::Const(1)]) - &constant;
        if with(std::slice::from_ref(&unknown)) == &slope * &unknown + &constant {
            if let Some(value) = (actual - &constant).exact_div(&slope) {
                return Some(vec![value]);
            }
        }
    }
    let mut values: Vec<Dim> = Vec::new();
    actual.for_each_symbol(&mut |s| {
        let dim = Dim::symbol(s);
        if !values.contains(&dim) {
            values.push(dim);
        }
    });
    values.truncate(unbound.len());
    (values.len() == unbound.len() && with(&values) == *actual).then_some(values)
}

fn same_shape(a: &Shape, b: &Shape, guards: &mut Vec<Guard>) -> bool {
    a.lead == b.lead
        && a.dims.len() == b.dims.len()
        && a.dims.iter().zip(&b.dims).all(|(x, y)| unify(x, y, guards).is_some())
}

/// The context of a rule that types the results of an operation that names a function.
pub struct CallTypes<'a> {
    pub callee: &'a Function,
    pub operands: &'a [&'a Type],
    pub attrs: &'a [Attr],
    pub guards: &'a mut Vec<Guard>,
    pub fresh: &'a mut dyn FnMut() -> Symbol,
}

impl CallTypes<'_> {
    /// The result types of one call on operands of these types.
    pub fn instantiate(&mut self, operands: &[&Type]) -> Result<Vec<Type>> {
        instantiate(self.callee, operands, self.guards, self.fresh)
    }
}

/// The result types of an operation that names a function.
/// Errors: wrong number or types of operands.
pub fn call_types(op: Op, mut cx: CallTypes) -> Result<Vec<Type>> {
    match op.shape {
        ShapeRule::Call(rule) => rule(&mut cx),
        ShapeRule::Broadcast | ShapeRule::First | ShapeRule::Rule(_) => {
            Diagnostic::new(message![Name::Operation(op.name), " does not call a function"]).err()
        }
    }
}

/// The result types of a call: those of the signature, with symbols bound by the operands. Symbols
/// that occur only in results become fresh ones. Errors: wrong number or types of operands.
pub fn instantiate(
    callee: &Function,
    operands: &[&Type],
    guards: &mut Vec<Guard>,
    fresh: &mut dyn FnMut() -> Symbol,
) -> Result<Vec<Type>> {
    let mut binding = bind_with_unknowns(callee, operands, guards, &mut || Dim::symbol(fresh()))?;
    for result in &callee.results {
        let shape = &callee.ty(result.value).shape;
        if let Some(lead) = shape.lead.as_ref().filter(|lead| !binding.leads.contains_key(*lead)) {
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
        if !binding.knows(&guard.left) || !binding.knows(&guard.right) {
            // The guard is about a symbol that is bound inside the callee, which checks it.
            continue;
        }
        let (left, right) = (binding.dim(&guard.left), binding.dim(&guard.right));
        let before = guards.len();
        if unify(&left, &right, guards).is_none() {
            return Diagnostic::of(
                ErrorKind::Shapes,
                message![name_of(callee), format!(" needs {} == {}", guard.left, guard.right)],
            )
            .got(format!("{left} and {right}"))
            .err();
        }
        guards[before..].iter_mut().for_each(|own| own.loc = guard.loc.clone());
    }
    Ok(callee.results.iter().map(|r| binding.ty(callee.ty(r.value))).collect())
}

/// Binds a signature's symbols for a call on `operands`; symbols that cannot be determined are
/// unknown. Errors: wrong number or types of operands.
pub fn bind(callee: &Function, operands: &[&Type], guards: &mut Vec<Guard>) -> Result<Binding> {
    bind_with_unknowns(callee, operands, guards, &mut || Dim::Unknown)
}

/// Binds a signature's symbols from those operands whose types are known. Errors: wrong number or
/// types of operands.
pub fn bind_known(
    callee: &Function,
    operands: &[Option<Type>],
    guards: &mut Vec<Guard>,
) -> Result<Binding> {
    let operands: Vec<Option<&Type>> = operands.iter().map(Option::as_ref).collect();
    bind_some(callee, &operands, guards, &mut || Dim::Unknown)
}

fn bind_with_unknowns(
    callee: &Function,
    operands: &[&Type],
    guards: &mut Vec<Guard>,
    unknowns: &mut dyn FnMut() -> Dim,
) -> Result<Binding> {
    let operands: SmallVec<[Option<&Type>; 4]> = operands.iter().map(|ty| Some(*ty)).collect();
    bind_some(callee, &operands, guards, unknowns)
}

fn bind_some(
    callee: &Function,
    operands: &[Option<&Type>],
    guards: &mut Vec<Guard>,
    unknowns: &mut dyn FnMut() -> Dim,
) -> Result<Binding> {
    if callee.args.len() != operands.len() {
        return Diagnostic::new(message![name_of(callee), " got the wrong number of operands"])
            .got(operands.len())
            .expected(callee.args.len())
            .err();
    }
    let mut binding = Binding::default();
    let known = || {
        let all = callee.arguments().zip(operands);
        all.filter_map(|(argument, actual)| Some((argument, (*actual)?)))
    };
    for ((value, arg), actual) in known() {
        let want = callee.ty(value);
        if want.dtype != actual.dtype {
            return Diagnostic::of(
                ErrorKind::DType,
                message![format!("`{}` of ", arg.name), name_of(callee), " has the wrong dtype"],
            )
            .got(actual)
            .expected(want)
            .hint(actual.dtype.conversion(&|dtype| dtype.is_like(want.dtype)))
            .err();
        }
        binding
            .shape_against(&want.shape, &actual.shape, guards)
            .or_else(|why| differs(callee, &arg.name, actual, want, &why))?;
    }
    for ((value, arg), actual) in known() {
        let want = callee.ty(value);
        binding
            .expressions_against(&want.shape, &actual.shape, guards, unknowns)
            .or_else(|why| differs(callee, &arg.name, actual, want, &why))?;
    }
    constraints_hold(callee, &binding)?;
    Ok(binding)
}

/// Errors: a constraint of the signature that these dims violate.
fn constraints_hold(callee: &Function, binding: &Binding) -> Result<()> {
    for Constraint { left, relation, right } in &callee.constraints {
        let sizes = (binding.dim(left).as_const(), binding.dim(right).as_const());
        let (Some(l), Some(r)) = sizes else {
            continue;
        };
        if !relation.holds(l, r) {
            return Diagnostic::of(
                ErrorKind::Shapes,
                message!["a constraint of ", name_of(callee), " does not hold"],
            )
            .got(format!("{l} {relation} {r}"))
            .expected(format!("{left} {relation} {right}"))
            .err();
        }
    }
    Ok(())
}

/// The types of the operands that an operation passes to function number `at` of those that it
/// names.
pub fn passed_types(op: &Operation, at: usize, operands: &[Type]) -> Vec<Type> {
    let mut types: Vec<Type> = op.passed(at).into_iter().map(|own| operands[own].clone()).collect();
    if let Gradient::Scan = op.op.gradient {
        let count = |name| usize::try_from(op.attr(name).as_int()).unwrap_or(0);
        // One step takes slices of the sequences along the first axis.
        for ty in types.iter_mut().skip(count("carries")).take(count("sequences")) {
            if ty.shape.lead.is_none() && !ty.shape.dims.is_empty() {
                ty.shape.dims.remove(0);
            }
        }
    }
    types
}

fn name_of(function: &Function) -> Name {
    Name::Function(function.name.clone())
}

fn differs<T>(callee: &Function, arg: &str, actual: &Type, want: &Type, why: &str) -> Result<T> {
    let what = message![format!("`{arg}` of "), name_of(callee), format!(": {why}")];
    Diagnostic::of(ErrorKind::Shapes, what).got(actual).expected(want).err()
}
