//! Dividing arrays over the devices of a mesh: layouts, and their propagation through functions.

pub mod bill;
pub mod layout;
pub mod propagate;
