//! Source text from Mithril IR: Python for array frameworks.

pub mod python;
pub mod target;
