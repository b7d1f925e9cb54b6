//! Types of tensor indices and memory addresses.

use smallvec::SmallVec;

use crate::code::V;

/// An index along one axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ix {
    /// The same for all lanes.
    Uniform(V),
    /// Ascending: the first lane's index, and the following ones in the other lanes.
    Ascending(V),
    /// Descending: the first lane's index, and the preceding ones in the other lanes.
    Descending(V),
    /// An arbitrary index in each lane: a vector of i64.
    Scattered(V),
}

/// An index along each axis of a tensor.
pub type Index = SmallVec<[Ix; 4]>;

/// The address of one element, or of a vector of elements. Its unit is the element.
pub enum Address {
    One(V),
    /// Contiguous and ascending, from the first lane's address on.
    Ascending(V),
    /// Contiguous and descending, from the first lane's address on.
    Descending(V),
    /// An arbitrary address in each lane: a vector of i64.
    Scattered(V),
}

impl Ix {
    pub fn is_uniform(self) -> bool {
        matches!(self, Ix::Uniform(_))
    }
}
