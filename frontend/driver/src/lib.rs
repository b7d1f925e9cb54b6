//! Compiles models: to source for array frameworks and in C, and to native code that is cached and run.

pub mod amount;
pub mod arrays;
pub mod budget;
pub mod calibration;
pub mod call;
pub mod compile;
pub mod compiled;
pub mod cost;
mod files;
pub mod kinds;
pub mod native;
pub mod params;
pub mod summary;

/// The guide, whose programs are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/rust.md")]
struct Guide;

/// The version of Mithril, as Python and the commands print it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
