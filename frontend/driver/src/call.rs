//! Calls of compiled programs: the arrays that they take, whether those fit, and what is said of
//! those that do not.

pub mod elements;
pub mod explain;
pub mod indices;
pub mod interface;
pub mod signature;
