//! Calls of compiled programs: the arrays that they take, the checks of these arrays, and the
//! errors for arrays that do not fit.

pub mod elements;
pub mod explain;
pub mod indices;
pub mod interface;
pub mod signature;
