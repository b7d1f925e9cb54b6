//! Links objects to a shared library with the linker that the machine has.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_kernels::host::Architecture;

use super::{Object, name_of, put, unwritable};
use crate::native::command::{self, Exit};
use crate::native::objects::interrupted;

/// A linker, or a compiler that calls one.
struct Linker {
    command: &'static str,
    /// Whether it is a compiler, which passes options to its linker.
    is_compiler: bool,
}

/// The linkers for an architecture.
struct Linkers {
    /// In the order in which they are tried. The first one is a compiler.
    all: &'static [Linker],
    /// The command that installs the first one on Debian. `None` if building Mithril needs the
    /// compiler anyway.
    install: Option<&'static str>,
}

const fn compiler(command: &'static str) -> Linker {
    Linker { command, is_compiler: true }
}

const fn linker(command: &'static str) -> Linker {
    Linker { command, is_compiler: false }
}

const X86_64: Linkers = Linkers {
    all: &[compiler("cc"), linker("ld"), linker("ld.lld"), linker("ld.lld-22")],
    install: None,
};

const ARM64: Linkers = Linkers {
    all: &[
        compiler("aarch64-linux-gnu-gcc"),
        linker("aarch64-linux-gnu-ld"),
        linker("ld.lld"),
        linker("ld.lld-22"),
    ],
    install: Some("apt-get install gcc-aarch64-linux-gnu"),
};

fn linkers(architecture: Architecture) -> &'static Linkers {
    match architecture {
        Architecture::X86_64 => &X86_64,
        Architecture::Arm64 => &ARM64,
    }
}

/// Links the objects to `output`. The file name of `library` becomes the soname. If there is no
/// linker, the objects are left in a folder next to the library.
///
/// Errors: no linker; errors of the linker; `stop`.
pub fn link(
    objects: &[Object],
    architecture: Architecture,
    output: &Path,
    library: &Path,
    stop: &AtomicBool,
) -> Result<()> {
    let soname = name_of(library);
    let linkers = linkers(architecture);
    let Some((linker, command)) = find_linker(linkers) else {
        return missing(objects, linkers, library);
    };
    let folder = output.with_extension("objects");
    let files = write(objects, &folder)?;
    let mut command = command_for(linker, &command, &files, output, &soname);
    // If the linker is stopped, its temporary files are deleted with the folder.
    let ran = run(command.env("TMPDIR", &folder), stop);
    let _ = fs::remove_dir_all(&folder);
    ran
}

/// Writes the objects next to the library. Returns the error that there is no linker.
fn missing(objects: &[Object], linkers: &Linkers, library: &Path) -> Result<()> {
    let left = library.with_file_name(format!("{}.objects", name_of(library)));
    let files = write(objects, &left)?;
    let commands: Vec<&str> = linkers.all.iter().map(|linker| linker.command).collect();
    let install =
        linkers.install.map_or(String::new(), |command| format!("; `{command}` installs it"));
    Diagnostic::of(ErrorKind::CCompiler, "the library cannot be linked: there is no linker")
        .expected(commands.join(", "))
        .hint(format!(
            "the {} objects are in {}: `{} -shared -nostdlib -o {} {}/*.o` links them{install}",
            files.len(),
            left.display(),
            commands[0],
            quoted(library),
            quoted(&left)
        ))
        .err()
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
    match linker.is_compiler {
        true => {
            // The objects need no startup files or libraries of the compiler.
            arguments.push("-nostdlib".into());
            arguments.extend(own.iter().flat_map(|option| ["-Xlinker".into(), (*option).into()]));
            // Bodies in C that the user wrote may call functions of `math.h`.
            arguments.extend(["-Xlinker".into(), "--as-needed".into(), "-lm".into()]);
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
        Diagnostic::of(ErrorKind::CCompiler, "the library cannot be linked")
            .at(command.get_program().display().to_string())
            .got(why)
            .err()
    };
    match ended {
        Ok(Exit::Succeeded) => Ok(()),
        Ok(Exit::Failed(stderr)) => failed(String::from_utf8_lossy(&stderr).trim().to_string()),
        Ok(Exit::Stopped) => interrupted(),
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
fn find_linker(linkers: &Linkers) -> Option<(&Linker, PathBuf)> {
    let path = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    linkers.all.iter().find_map(|linker| {
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
