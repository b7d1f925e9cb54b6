//! Starts the Python interpreter that runs backends.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use mithril_ir::diagnostic::Diagnostic;

/// A command that calls `main(argument)` of a module of the Python package. The interpreter is
/// MITHRIL_PYTHON, or `python3` next to this program, or `python3` on the path.
pub fn call(module: &str, argument: &str) -> Command {
    let run = format!("import sys; from mithril.{module} import main; main(sys.argv[1])");
    let mut command = Command::new(interpreter());
    command.args(["-c", &run]).arg(argument);
    command
}

/// The error for an interpreter that cannot be started.
pub fn cannot_start(error: &io::Error) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::new("backends are run by Python, which cannot be started")
            .got(format!("{}: {error}", PathBuf::from(interpreter()).display()))
            .hint("set MITHRIL_PYTHON to the interpreter to use"),
    )
}

fn interpreter() -> OsString {
    let named = env::var_os("MITHRIL_PYTHON");
    let sibling = || Some(env::current_exe().ok()?.with_file_name("python3"));
    let sibling = || sibling().filter(|path| path.exists()).map(OsString::from);
    named.or_else(sibling).unwrap_or_else(|| "python3".into())
}
