//! From objects to a shared library, by the linker that the machine has.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mithril_ir::diagnostic::{Diagnostic, Result};

use super::{Object, name_of, put, unwritable};

/// A command that links, and what it takes before the linker's own options.
struct Linker {
    command: &'static str,
    /// Of a compiler: what it is to hand to its linker.
    through: bool,
}

/// In the order in which they are looked for.
const LINKERS: [Linker; 4] = [
    Linker { command: "cc", through: true },
    Linker { command: "ld", through: false },
    Linker { command: "ld.lld", through: false },
    Linker { command: "ld.lld-22", through: false },
];

/// Writes the library of these objects to `output`; programs know it by the name of `library`.
/// Without a linker, the objects are left in a folder beside it.
///
/// Errors: no linker; what it says.
pub fn link(objects: &[Object], output: &Path, library: &Path) -> Result<()> {
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
                library.display(),
                left.display()
            ))
            .err();
    };
    let folder = output.with_extension("objects");
    let files = write(objects, &folder)?;
    let ran = run(&linker, &command, &files, output, &soname);
    let _ = fs::remove_dir_all(&folder);
    ran
}

fn run(
    linker: &Linker,
    command: &Path,
    files: &[PathBuf],
    output: &Path,
    soname: &str,
) -> Result<()> {
    let mut arguments: Vec<OsString> = vec!["-shared".into(), "-o".into(), output.into()];
    arguments.extend(files.iter().map(OsString::from));
    let own = ["-soname", soname, "-z", "noexecstack", "-z", "relro", "-z", "now"];
    match linker.through {
        true => {
            // The objects need nothing of what a compiler would add.
            arguments.push("-nostdlib".into());
            arguments.extend(own.iter().flat_map(|option| ["-Xlinker".into(), (*option).into()]));
        }
        false => arguments.extend(own.iter().map(OsString::from)),
    }
    let failed = |why: String| {
        Diagnostic::new("the library cannot be linked")
            .at(command.display().to_string())
            .got(why)
            .err()
    };
    match Command::new(command).args(arguments).output() {
        Ok(ran) if ran.status.success() => Ok(()),
        Ok(ran) => failed(String::from_utf8_lossy(&ran.stderr).trim().to_string()),
        Err(error) => failed(error.to_string()),
    }
}

/// The first of the linkers that the search path has.
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
