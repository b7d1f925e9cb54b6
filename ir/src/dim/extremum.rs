//! The normal form of min and max: no operand of a min is itself a min (or of a max, a max),
//! operands are sorted with a constant last, and none is known to be redundant.

use super::bounds::Bounds;
use super::{Atom, Dim};

/// The maximum number of operands of one min or max, since each is compared with each.
const MAX_OPERANDS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Extremum {
    Min,
    Max,
}

impl Extremum {
    pub(super) fn of(self, a: &Dim, b: &Dim) -> Dim {
        match (self, a, b) {
            (Extremum::Min, Dim::Const(a), Dim::Const(b)) => return Dim::Const(*a.min(b)),
            (Extremum::Max, Dim::Const(a), Dim::Const(b)) => return Dim::Const(*a.max(b)),
            (_, Dim::Unknown, _) | (_, _, Dim::Unknown) => return Dim::Unknown,
            _ if a == b => return a.clone(),
            _ => {}
        }
        // Compares whole operands first. Once a nested min or max is split into its operands, the
        // comparison may be undecided.
        if let [only] = self.without_redundant(vec![a.clone(), b.clone()]).as_slice() {
            return only.clone();
        }
        if self.operands(a).len() + self.operands(b).len() > MAX_OPERANDS {
            return Dim::Unknown;
        }
        let operands = self.operands(a).iter().chain(self.operands(b)).cloned().collect();
        let kept = self.without_redundant(operands);
        match (self, kept.as_slice()) {
            (_, [only]) => only.clone(),
            (Extremum::Min, _) => Dim::atom(Atom::Min(kept.into())),
            (Extremum::Max, _) => Dim::atom(Atom::Max(kept.into())),
        }
    }

    /// Sorts the operands and drops redundant ones.
    fn without_redundant(self, mut operands: Vec<Dim>) -> Vec<Dim> {
        operands.sort_by(|a, b| {
            let is_const = |dim: &Dim| dim.as_const().is_some();
            is_const(a).cmp(&is_const(b)).then_with(|| a.order(b))
        });
        let mut kept: Vec<Dim> = Vec::with_capacity(operands.len());
        for operand in operands {
            if !kept.iter().any(|other| self.is_redundant(&operand, other)) {
                kept.retain(|other| !self.is_redundant(other, &operand));
                kept.push(operand);
            }
        }
        kept
    }

    fn operands(self, dim: &Dim) -> &[Dim] {
        match (self, dim.as_atom()) {
            (Extremum::Min, Some(Atom::Min(operands))) => operands,
            (Extremum::Max, Some(Atom::Max(operands))) => operands,
            _ => std::slice::from_ref(dim),
        }
    }

    /// Whether `dim` never decides the result when `other` is an operand too.
    fn is_redundant(self, dim: &Dim, other: &Dim) -> bool {
        let (small, large) = match self {
            Extremum::Min => (other, dim),
            Extremum::Max => (dim, other),
        };
        // Compares the bounds first: the difference of the dims may overflow.
        let ends = (Bounds::of(small).hi, Bounds::of(large).lo);
        let is_apart = matches!(ends, (Some(hi), Some(lo)) if hi <= lo);
        is_apart || (large - small).lower_bound().is_some_and(|least| least >= 0)
    }
}
