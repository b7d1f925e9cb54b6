//! Prints to standard output.

use std::fmt::Display;
use std::io::{self, Write};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};

/// Prints the text and flushes it. A pipe that the reader has closed is not an error.
///
/// Errors: standard output cannot be written for another reason.
pub fn print(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.to_string().as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Diagnostic::of(ErrorKind::File, "standard output cannot be written").got(error).err()
        }
        _ => Ok(()),
    }
}
