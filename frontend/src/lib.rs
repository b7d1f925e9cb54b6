//! Mithril: logical models, layers and importers, and the Python bindings over them.

#[cfg(feature = "python")]
mod python;

/// The version of Mithril, as Python and the commands print it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
