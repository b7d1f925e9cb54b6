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
    places: FxHashMap<(Dim, Dim), usize>,
    /// Lower bounds of symbols, from guards such as `n >= 2`.
    least: FxHashMap<Symbol, i64>,
}

impl GuardIndex {
    /// Builds the index of these guards.
    pub fn of<'g>(guards: impl IntoIterator<Item = &'g Guard>) -> GuardIndex {
        let mut index = GuardIndex::default();
        guards.into_iter().for_each(|guard| index.note(guard));
        index
    }

    /// Records a guard that is added at the end.
    pub fn note(&mut self, guard: &Guard) {
        let sides = (guard.left.clone(), guard.right.clone());
        self.places.entry(sides).or_insert(self.count);
        self.count += 1;
        if let (dim, ">=", least) = guard.relation() {
            if let (Some(symbol), Some(least)) = (dim.as_symbol(), least.as_const()) {
                let own = self.least.entry(symbol.clone()).or_insert(least);
                *own = least.max(*own);
            }
        }
    }

    /// Adds a guard to the function, unless others imply it. If the same guard exists, it gets the
    /// locations of both.
    pub fn require(&mut self, function: &mut Function, guard: Guard) {
        if self.count != function.guards.len() {
            *self = GuardIndex::of(&function.guards);
        }
        match self.place(&guard) {
            Some(at) => function.guards[at].loc.merge(&guard.loc),
            None if self.implies(&guard) => {}
            None => {
                self.note(&guard);
                function.guards.push(guard);
            }
        }
    }

    /// Whether other guards repeat or imply this one.
    pub fn covers(&self, guard: &Guard) -> bool {
        self.place(guard).is_some() || self.implies(guard)
    }

    /// The position of the guard with the same two dims, in either order.
    fn place(&self, Guard { left, right, .. }: &Guard) -> Option<usize> {
        let place = |a: &Dim, b: &Dim| self.places.get(&(a.clone(), b.clone())).copied();
        place(left, right).or_else(|| place(right, left))
    }

    /// Whether a guard holds because of the lower bounds that other guards give to symbols.
    fn implies(&self, guard: &Guard) -> bool {
        let above_least =
            |symbol: &Symbol| self.least.get(symbol).map(|least| Dim::symbol(symbol) + *least);
        guard.left.substitute(&above_least) == guard.right.substitute(&above_least)
    }
}
