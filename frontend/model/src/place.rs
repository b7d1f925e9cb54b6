//! Where blocks run.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};

/// Where a block runs, as far as it differs from the model around it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Place {
    /// The name of a backend.
    pub backend: Option<Arc<str>>,
    /// The backend's device.
    pub device: Option<Arc<str>>,
}

impl Place {
    /// Errors: an empty name.
    pub fn new(backend: Option<&str>, device: Option<&str>) -> Result<Place> {
        for (keyword, given) in [("backend", backend), ("device", device)] {
            if given == Some("") {
                let what = format!("`{keyword}` must be a name");
                return Diagnostic::of(ErrorKind::Argument, what)
                    .got("an empty string")
                    .hint(format!("leave `{keyword}=` out"))
                    .err();
            }
        }
        Ok(Place { backend: backend.map(Arc::from), device: device.map(Arc::from) })
    }

    /// Whether the block runs where the model around it does.
    pub fn is_inherited(&self) -> bool {
        *self == Place::default()
    }
}
