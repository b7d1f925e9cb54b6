//! What goes to standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use mithril_ir::diagnostic::{Diagnostic, Result};

/// Prints it, all of it at once. That whoever reads has read enough is no error.
///
/// Errors: it cannot be written.
pub fn print(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.to_string().as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Diagnostic::new("standard output cannot be written").got(error).err()
        }
        _ => Ok(()),
    }
}
