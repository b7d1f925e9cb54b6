//! Links objects to a shared library with the linker that the machine has.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use mithril_ir::diagnostic::{Diagnostic, Result};

use super::{Object, name_of, put, unwritable};
use crate::native::command::{self, Ended};
use crate::native::objects::interrupted;

/// A linker, or a compiler that calls one.
struct Linker {
    command: &'static str,
    /// Whether it is a compiler, which passes options on to its linker.
    through: bool,
}

/// The linkers in the order in which they are tried.
const LINKERS: [Linker; 4] = [
    Linker { command: "cc", through: true },
    Linker { command: "ld", through: false },
    Linker { command: "ld.lld", through: false },
    Linker { command: "ld.lld-22", through: false },
];

/// Links the objects to `output`. The file name of `library` becomes the soname. If there is no
/// linker, the objects are left in a folder next to the library.
///
/// Errors: no linker; errors of the linker; `stop`.
pub fn link(objects: &[Object], output: &Path, library: &Path, stop: &AtomicBool) -> Result<()> {
    let soname = name_of(library);
    let left = library.with_file_name(format!("{soname}.objects"));
    let Some((linker, command)) = found() else {
        let files = write(objects, &left)?;
        return Diagnostic::new("the library cannot be linked: there is no linker")
            .expected(LINKERS.map(|linker| linker.command).join(", "))
            .hint(format!(
                "the {} objects are in {}: `cc -shared -nostdlib -o {} {}/*.o` links them",
                files.len(),
                left.display(),
                quoted(library),
                quoted(&left)
            ))
            .err();
    };
    let folder = output.with_extension("objects");
    let files = write(objects, &folder)?;
    let mut command = command_for(&linker, &command, &files, output, &soname);
    // Temporary files that the linker leaves when it is stopped are deleted with the folder.
    let ran = run(command.env("TMPDIR", &folder), stop);
    let _ = fs::remove_dir_all(&folder);
    ran
}

fn command_for(
    linker: &Linker,
    command: &Path,
    files: &[PathBuf],
    output: &Path,
    soname: &str,
) -> Command {
    let mut arguments: Vec<OsString> = vec!["-shared".into(), "-o".into(), output.into()];
    arguments.extend(files.iter().map(OsString::from));
    let own = ["-soname", soname, "-z", "noexecstack", "-z", "relro", "-z", "now"];
    match linker.through {
        true => {
            // The objects need no startup files or libraries of the compiler.
            arguments.push("-nostdlib".into());
            arguments.extend(own.iter().flat_map(|option| ["-Xlinker".into(), (*option).into()]));
        }
        false => arguments.extend(own.iter().map(OsString::from)),
    }
    let mut command = Command::new(command);
    command.args(arguments);
    command
}

fn run(command: &mut Command, stop: &AtomicBool) -> Result<()> {
    let ended = command::run(command, stop);
    let failed = |why: String| {
        Diagnostic::new("the library cannot be linked")
            .at(command.get_program().display().to_string())
            .got(why)
            .err()
    };
    match ended {
        Ok(Ended::Well) => Ok(()),
        Ok(Ended::Badly(said)) => failed(String::from_utf8_lossy(&said).trim().to_string()),
        Ok(Ended::Stopped) => interrupted(),
        Err(error) => failed(error.to_string()),
    }
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    match path.chars().all(plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

/// The first of the linkers that is in PATH.
fn found() -> Option<(Linker, PathBuf)> {
    let path = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    LINKERS.into_iter().find_map(|linker| {
        let all = folders.iter().map(|folder| folder.join(linker.command));
        let file = all.into_iter().find(|file| file.is_file())?;
        Some((linker, file))
    })
}

fn write(objects: &[Object], folder: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
    let files = objects.iter().map(|object| {
        let file = folder.join(format!("{}.o", object.name));
        put(&file, &object.bytes)?;
        Ok(file)
    });
    files.collect()
}
