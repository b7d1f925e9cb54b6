//! Positions in a tensor, and the addresses that they are.

use smallvec::SmallVec;

use crate::code::V;

/// A position along one axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ix {
    /// One for all lanes.
    At(V),
    /// This and those that follow, by lane.
    Lanes(V),
    /// This and those before, by lane.
    Back(V),
    /// Any, by lane: a vector of i64.
    Many(V),
}

/// A position in a tensor, by axis.
pub type Index = SmallVec<[Ix; 4]>;

/// Where elements lie, counted in elements.
pub enum Address {
    One(V),
    /// This and those that follow, by lane.
    Row(V),
    /// This and those before, by lane.
    Back(V),
    Many(V),
}

impl Ix {
    pub fn is_one(self) -> bool {
        matches!(self, Ix::At(_))
    }
}
