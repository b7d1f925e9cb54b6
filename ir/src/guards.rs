//! Adding guards to a function: what others say or imply is not said again.

use rustc_hash::FxHashMap;

use crate::dim::{Dim, Symbol};
use crate::graph::Function;
use crate::shape::Guard;

/// The guards of a function by what they say, so that a new one is compared with few.
#[derive(Default)]
pub(crate) struct GuardIndex {
    /// How many guards the function had when it was last seen.
    count: usize,
    places: FxHashMap<(Dim, Dim), usize>,
    /// The least values that guards such as `n >= 2` give to symbols.
    least: FxHashMap<Symbol, i64>,
}

impl GuardIndex {
    /// The index of a function's guards as they are.
    fn of(function: &Function) -> GuardIndex {
        let mut index = GuardIndex::default();
        function.guards.iter().for_each(|guard| index.note(guard));
        index
    }

    fn note(&mut self, guard: &Guard) {
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

    /// Adds a guard to the function, unless others imply it. One that says the same is of both
    /// blocks.
    pub fn require(&mut self, function: &mut Function, guard: Guard) {
        if self.count != function.guards.len() {
            *self = GuardIndex::of(function);
        }
        let Guard { left, right, .. } = &guard;
        let place = |a: &Dim, b: &Dim| self.places.get(&(a.clone(), b.clone())).copied();
        match place(left, right).or_else(|| place(right, left)) {
            Some(at) => function.guards[at].loc.merge(&guard.loc),
            None if self.implies(&guard) => {}
            None => {
                self.note(&guard);
                function.guards.push(guard);
            }
        }
    }

    /// Whether a guard holds because symbols have the least values that other guards say.
    fn implies(&self, guard: &Guard) -> bool {
        let above_least =
            |symbol: &Symbol| self.least.get(symbol).map(|least| Dim::symbol(symbol) + *least);
        guard.left.substitute(&above_least) == guard.right.substitute(&above_least)
    }
}
