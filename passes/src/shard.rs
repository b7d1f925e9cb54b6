//! Dividing arrays over the devices of a mesh: layouts, and their propagation through functions.

pub mod attention;
pub mod bill;
pub mod blocks;
pub mod constrain;
pub mod layout;
pub mod machine;
pub mod partial;
pub mod picture;
pub mod problem;
pub mod propagate;
pub mod residuals;
pub mod search;
pub mod shorten;
pub mod tables;
pub mod time;
pub mod unmerge;
