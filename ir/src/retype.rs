//! Infers the types of an operation's results, and compares them with the declared ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::attr::Attr;
use crate::diagnostic::Result;
use crate::dim::{Dim, Symbol};
use crate::graph::{Bound, Constraint, Function, Value};
use crate::op::Op;
use crate::op::infer::{Infer, infer};
use crate::shape::{Guard, Shape, Type};
use crate::signature::{Binding, CallTypes, call_types};
use crate::symbolic;

/// The inferred types of an operation's results, and the facts inferred with them.
pub struct Inferred {
    pub types: SmallVec<[Type; 1]>,
    /// The elements of the only result as dims.
    pub known: Option<Arc<[Dim]>>,
    pub guards: Vec<Guard>,
    /// Symbols that match any symbol in the declared type. Their names cannot occur in text.
    pub fresh: Vec<Symbol>,
}

/// Infers the types of an operation in `f`. A call needs its callee.
/// Errors: wrong number, dtypes or shapes of operands.
pub fn infer_results(
    f: &Function,
    op: Op,
    operands: &[Value],
    attrs: &[Attr],
    callee: Option<&Function>,
) -> Result<Inferred> {
    let types: SmallVec<[&Type; 4]> = operands.iter().map(|v| f.ty(*v)).collect();
    let (mut guards, mut fresh_symbols) = (Vec::new(), Vec::new());
    let mut fresh = || {
        let symbol = Symbol::from(format!("'{}", fresh_symbols.len()));
        fresh_symbols.push(symbol.clone());
        symbol
    };
    let (types, known) = match callee {
        Some(callee) => {
            let cx = CallTypes {
                callee,
                operands: &types,
                attrs,
                guards: &mut guards,
                fresh: &mut fresh,
            };
            let types = call_types(op, cx)?;
            (types.into(), None)
        }
        None => {
            let knowns: SmallVec<[Option<&[Dim]>; 4]> =
                operands.iter().map(|v| f.info(*v).known.as_deref()).collect();
            let mut cx = Infer {
                op,
                operands: &types,
                attrs,
                known: &knowns,
                guards: &mut guards,
                fresh: &mut fresh,
            };
            let ty = infer(&mut cx)?;
            let known = symbolic::value(&cx, &ty);
            (SmallVec::from_iter([ty]), known)
        }
    };
    Ok(Inferred { types, known, guards, fresh: fresh_symbols })
}

/// Matches declared types against inferred ones. They must be equal, except that a fresh symbol
/// matches any symbol that is not `taken`, and that dims may differ if `guards` make them equal.
/// Returns the binding of the fresh symbols. Errors: the index of the result that differs.
pub fn settle(
    inferred: &Inferred,
    declared: &[&Type],
    guards: &Equalities,
    taken: &dyn Fn(&Symbol) -> bool,
) -> Result<Binding, usize> {
    let mut binding = Binding::default();
    if !inferred.fresh.is_empty() {
        bind_fresh(inferred, declared, taken, &mut binding);
    }
    for (i, (want, got)) in inferred.types.iter().zip(declared).enumerate() {
        if want == *got {
            continue;
        }
        let want = binding.ty(want);
        if want.dtype != got.dtype || !same_shape(&want.shape, &got.shape, guards, taken) {
            return Err(i);
        }
    }
    Ok(binding)
}

fn bind_fresh(
    inferred: &Inferred,
    declared: &[&Type],
    taken: &dyn Fn(&Symbol) -> bool,
    binding: &mut Binding,
) {
    let is_fresh = |s: &Symbol| inferred.fresh.contains(s);
    let (mut bound, mut targets): (Vec<Symbol>, Vec<Symbol>) = Default::default();
    for (want, got) in inferred.types.iter().zip(declared) {
        if let (Some(w), Some(g)) = (&want.shape.lead, &got.shape.lead) {
            if is_fresh(w) && !taken(g) {
                binding.bind_lead(w.clone(), Shape::with_lead(g.clone(), []));
            }
        }
        for (w, g) in want.shape.dims.iter().zip(&got.shape.dims) {
            let (Some(symbol), Some(own)) = (w.as_symbol(), g.as_symbol()) else {
                continue;
            };
            if is_fresh(symbol) && !taken(own) && !bound.contains(symbol) {
                binding.bind_dim(symbol.clone(), g.clone());
                bound.push(symbol.clone());
                targets.push(own.clone());
            }
        }
    }
    // Fresh symbols that occur only inside expressions are matched with the new symbols of the
    // declared dim.
    for (want, got) in inferred.types.iter().zip(declared) {
        for (w, g) in want.shape.dims.iter().zip(&got.shape.dims) {
            let (mut open, mut own) = (Vec::new(), Vec::new());
            w.for_each_symbol(&mut |s| {
                if is_fresh(s) && !bound.contains(s) && !open.contains(s) {
                    open.push(s.clone());
                }
            });
            g.for_each_symbol(&mut |s| {
                if !taken(s) && !own.contains(s) && !targets.contains(s) {
                    own.push(s.clone());
                }
            });
            // The normal form sorts symbols by name, so two symbols may be in reverse order.
            for _ in 0..2 {
                let mut guess = binding.clone();
                for (symbol, to) in open.iter().zip(&own) {
                    guess.bind_dim(symbol.clone(), Dim::symbol(to));
                }
                if guess.dim(w) == *g {
                    *binding = guess;
                    bound.append(&mut open);
                    targets.extend(own.iter().cloned());
                }
                own.reverse();
            }
        }
    }
}

fn same_shape(
    want: &Shape,
    got: &Shape,
    guards: &Equalities,
    taken: &dyn Fn(&Symbol) -> bool,
) -> bool {
    let open = |w: &Dim, g: &Dim| w.is_unknown() && g.as_symbol().is_some_and(|s| !taken(s));
    want.lead == got.lead
        && want.dims.len() == got.dims.len()
        && want
            .dims
            .iter()
            .zip(&got.dims)
            .all(|(w, g)| w == g || open(w, g) || equal_by(guards, w, g))
}

/// Whether the guards make two dims equal. A guard with a symbol on one side substitutes that
/// symbol.
fn equal_by(guards: &Equalities, a: &Dim, b: &Dim) -> bool {
    let mut rest: Vec<Guard> = guards.about(a, b);
    let (mut a, mut b) = (a.clone(), b.clone());
    while let Some(Guard { left, right, .. }) = rest.pop() {
        if (a == left && b == right) || (a == right && b == left) {
            return true;
        }
        let (symbol, by) = match (left.as_symbol(), right.as_symbol()) {
            (Some(symbol), _) if !mentions(&right, symbol) => (symbol.clone(), right),
            (_, Some(symbol)) if !mentions(&left, symbol) => (symbol.clone(), left),
            _ => continue,
        };
        let replace = |dim: &Dim| dim.substitute(&|s| (*s == symbol).then(|| by.clone()));
        (a, b) = (replace(&a), replace(&b));
        for guard in &mut rest {
            *guard = Guard::new(replace(&guard.left), replace(&guard.right));
        }
        if a == b {
            return true;
        }
    }
    a == b
}

fn mentions(dim: &Dim, symbol: &Symbol) -> bool {
    let mut found = false;
    dim.for_each_symbol(&mut |s| found |= s == symbol);
    found
}

/// Equalities between dims: the guards of a function, and those its signature states.
pub struct Equalities {
    guards: Vec<Guard>,
    by_symbol: FxHashMap<Symbol, Vec<u32>>,
}

impl Equalities {
    pub fn of(guards: &[Guard], constraints: &[Constraint]) -> Equalities {
        let stated = constraints
            .iter()
            .filter(|c| c.relation == Bound::Equal)
            .map(|c| Guard::new(c.left.clone(), c.right.clone()));
        let mut all = Equalities { guards: Vec::new(), by_symbol: FxHashMap::default() };
        guards.iter().cloned().chain(stated).for_each(|guard| all.add(guard));
        all
    }

    pub fn add(&mut self, guard: Guard) {
        let at = self.guards.len() as u32;
        for symbol in guard.left.symbols().into_iter().chain(guard.right.symbols()) {
            let own = self.by_symbol.entry(symbol.clone()).or_default();
            if own.last() != Some(&at) {
                own.push(at);
            }
        }
        self.guards.push(guard);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Guard> {
        self.guards.iter()
    }

    /// The guards that share symbols with two dims, directly or through other guards, in order.
    fn about(&self, a: &Dim, b: &Dim) -> Vec<Guard> {
        let mut seen: FxHashSet<&Symbol> = FxHashSet::default();
        let mut found: BTreeSet<u32> = BTreeSet::new();
        let mut open: Vec<&Symbol> = [a.symbols(), b.symbols()].concat();
        while let Some(symbol) = open.pop() {
            if !seen.insert(symbol) {
                continue;
            }
            for at in self.by_symbol.get(symbol).into_iter().flatten() {
                if found.insert(*at) {
                    let Guard { left, right, .. } = &self.guards[*at as usize];
                    open.extend(left.symbols().into_iter().chain(right.symbols()));
                }
            }
        }
        found.into_iter().map(|at| self.guards[at as usize].clone()).collect()
    }
}
