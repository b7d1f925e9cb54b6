//! Source text from Mithril IR: Python for array frameworks.

pub mod backends;
pub mod custom;
pub mod python;
