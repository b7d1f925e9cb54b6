//! Compiles models to source for array frameworks, to C, and to native code, which it caches and
//! runs.

pub mod amount;
pub mod arrays;
pub mod budget;
pub mod calibration;
pub mod call;
pub mod compile;
pub mod compiled;
pub mod cost;
pub mod files;
pub mod native;
pub mod params;
pub mod summary;
pub mod targets;

/// The guide, whose examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/rust.md")]
struct Guide;

/// The version of Mithril that Python and the commands print.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
