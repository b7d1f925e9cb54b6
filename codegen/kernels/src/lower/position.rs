//! Indices in a tensor, and their addresses.

use smallvec::SmallVec;

use crate::code::V;

/// An index along one axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ix {
    /// The same for all lanes.
    At(V),
    /// Ascending: the first lane's index, and the following ones in the other lanes.
    Lanes(V),
    /// Descending: the first lane's index, and the preceding ones in the other lanes.
    Back(V),
    /// An arbitrary index in each lane: a vector of i64.
    Many(V),
}

/// An index along each axis of a tensor.
pub type Index = SmallVec<[Ix; 4]>;

/// The address of one element or of several, in elements.
pub enum Address {
    One(V),
    /// Contiguous and ascending, from the first lane's address on.
    Row(V),
    /// Contiguous and descending, from the first lane's address on.
    Back(V),
    Many(V),
}

impl Ix {
    pub fn is_one(self) -> bool {
        matches!(self, Ix::At(_))
    }
}
