//! Adds guards to a function, except those that existing ones repeat or imply.

use rustc_hash::FxHashMap;

use crate::dim::{Dim, Symbol};
use crate::graph::Function;
use crate::shape::Guard;

/// An index of a function's guards by their dims, so that a new guard is compared with few others.
#[derive(Default)]
pub(crate) struct GuardIndex {
    /// How many guards the function had when the index was last updated.
    count: usize,
    positions: FxHashMap<(Dim, Dim), usize>,
    /// Lower bounds of symbols, from guards such as `n >= 2`.
    lower_bounds: FxHashMap<Symbol, i64>,
}

impl GuardIndex {
    /// Builds the index of these guards.
    pub fn of<'g>(guards: impl IntoIterator<Item = &'g Guard>) -> GuardIndex {
        let mut index = GuardIndex::default();
        guards.into_iter().for_each(|guard| index.record(guard));
        index
    }

    /// Records a guard that is added at the end.
    pub fn record(&mut self, guard: &Guard) {
        let sides = (guard.left.clone(), guard.right.clone());
        self.positions.entry(sides).or_insert(self.count);
        self.count += 1;
        if let (dim, ">=", bound) = guard.relation() {
            if let (Some(symbol), Some(bound)) = (dim.as_symbol(), bound.as_const()) {
                let own = self.lower_bounds.entry(symbol.clone()).or_insert(bound);
                *own = bound.max(*own);
            }
        }
    }

    /// Adds a guard to the function, unless others imply it. If the same guard exists, it gets the
    /// locations of both.
    pub fn require(&mut self, function: &mut Function, guard: Guard) {
        if self.count != function.guards.len() {
            *self = GuardIndex::of(&function.guards);
        }
        match self.position(&guard) {
            Some(at) => function.guards[at].loc.merge(&guard.loc),
            None if self.implies(&guard) => {}
            None => {
                self.record(&guard);
                function.guards.push(guard);
            }
        }
    }

    /// Whether other guards repeat or imply this one.
    pub fn covers(&self, guard: &Guard) -> bool {
        self.position(guard).is_some() || self.implies(guard)
    }

    /// The position of the guard with the same two dims, in either order.
    fn position(&self, Guard { left, right, .. }: &Guard) -> Option<usize> {
        let position = |a: &Dim, b: &Dim| self.positions.get(&(a.clone(), b.clone())).copied();
        position(left, right).or_else(|| position(right, left))
    }

    /// Whether a guard holds because of the lower bounds that other guards give to symbols.
    fn implies(&self, guard: &Guard) -> bool {
        let above_bound = |symbol: &Symbol| {
            self.lower_bounds.get(symbol).map(|bound| Dim::symbol(symbol) + *bound)
        };
        guard.left.substitute(&above_bound) == guard.right.substitute(&above_bound)
    }
}
