//! Compiles checks to one C program, which writes all results to its output. Every array is
//! allocated with exactly its size, so that sanitizers find accesses out of bounds.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mithril_ir::tensor::Tensor;
use mithril_kernels::c::caller;

use crate::compiled::{Check, Compiled, make};

const HEAD: &str = "
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *copy(const unsigned char *from, size_t bytes) {
  unsigned char *memory = malloc(bytes > 0 ? bytes : 1);
  if (memory == NULL) abort();
  for (size_t i = 0; i < bytes; i++) memory[i] = from == NULL ? 0xa5 : from[i];
  return memory;
}

static void give(void *memory, size_t bytes) {
  if (bytes > 0 && fwrite(memory, 1, bytes, stdout) != bytes) abort();
}

";

/// The files of a program, and its functions.
pub struct Program<'a> {
    pub folder: PathBuf,
    files: Vec<PathBuf>,
    checks: &'a [Check],
    compiled: Vec<Compiled>,
}

impl<'a> Program<'a> {
    /// Writes the files to a new folder.
    pub fn write(checks: &'a [Check], folder: &Path) -> Program<'a> {
        std::fs::create_dir(folder).expect("a folder");
        let (mut files, mut all, mut calls) = (Vec::new(), Vec::new(), String::new());
        let mut main = HEAD.to_string();
        for (number, check) in checks.iter().enumerate() {
            let compiled =
                make(check, number).unwrap_or_else(|why| panic!("{}\n{why}", check.about));
            let file = folder.join(format!("m{number}.c"));
            let text = format!("{}{}", compiled.source.text, caller::print(&compiled.source));
            std::fs::write(&file, text).expect("the file");
            files.push(file);
            let entry = &compiled.source.interface.entries[0];
            let dims = vec!["int64_t"; entry.symbols.len()].join(", ");
            let dims = if dims.is_empty() { "void" } else { &dims };
            let _ = write!(
                main,
                "size_t {}_workspace_bytes({dims});\nvoid {}(unsigned char *, void *const *, \
                 const int64_t *, int64_t, int64_t);\n{}",
                entry.name,
                caller::name(entry),
                caller_text(check, &compiled, number)
            );
            let _ = writeln!(calls, "  check_{number}();");
            all.push(compiled);
        }
        let _ = write!(main, "\nint main(void) {{\n{calls}  return 0;\n}}\n");
        let file = folder.join("main.c");
        std::fs::write(&file, main).expect("the file");
        files.push(file);
        Program { folder: folder.into(), files, checks, compiled: all }
    }

    /// Compiles the program to the file `to` in its folder.
    ///
    /// Errors: the compiler's messages.
    pub fn compile(&self, compiler: &str, flags: &[&str], to: &str) -> Result<PathBuf, String> {
        let to = self.folder.join(to);
        let mut command = Command::new(compiler);
        command.args(flags).args(&self.files).arg("-lm").arg("-o").arg(&to);
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(to) } else { Err(error_lines(&output)) }
    }

    /// Compares the output of the program with the expected results. Returns one text per failed
    /// check.
    pub fn failures(&self, mut output: &[u8]) -> Vec<String> {
        let mut failures = Vec::new();
        for (check, compiled) in self.checks.iter().zip(&self.compiled) {
            let mut results = Vec::new();
            for want in &check.expected {
                let Some((own, rest)) = output.split_at_checked(want.bytes().len()) else {
                    return vec!["the output ends too early".into()];
                };
                results.push(own);
                output = rest;
            }
            if let Some(why) = compiled.differs(check, &results) {
                failures.push(format!("{}\n{why}\n{}", check.about, compiled.source.text));
            }
        }
        failures
    }
}

/// Returns the first lines of the errors that a command printed.
pub fn error_lines(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().take(40).collect::<Vec<_>>().join("\n")
}

/// Runs `work` for each number below `count` on all cores, and collects the results.
pub fn each<T: Send>(count: usize, work: impl Fn(usize) -> Vec<T> + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return found;
            }
            found.extend(work(at));
        }
    };
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(|t| t.join().expect("a thread")).collect()
    })
}

/// Prints a function without arguments that calls the function of a check.
fn caller_text(check: &Check, compiled: &Compiled, number: usize) -> String {
    let entry = &compiled.source.interface.entries[0];
    let mut text = format!("\nstatic void check_{number}(void) {{\n");
    let mut buffers = Vec::new();
    for (i, tensor) in check.inputs.iter().enumerate() {
        let bytes: Vec<String> = tensor.bytes().iter().map(u8::to_string).collect();
        // C arrays must have at least one element.
        let _ = writeln!(text, "  static const unsigned char x{i}[] = {{0, {}}};", bytes.join(","));
        buffers.push(format!("copy(x{i} + 1, {})", bytes.len()));
    }
    let mut gives = String::new();
    for bytes in check.expected.iter().map(|tensor: &Tensor| tensor.bytes().len()) {
        let _ = writeln!(gives, "  give(buffers[{}], {bytes});", buffers.len());
        buffers.push(format!("copy(NULL, {bytes})"));
    }
    let symbols: Vec<String> = compiled.symbols(check).iter().map(i64::to_string).collect();
    let _ = write!(
        text,
        "  void *buffers[] = {{{}}};\n  const int64_t dims[] = {{{}}};\n  \
         const size_t bytes = {}_workspace_bytes({});\n  \
         unsigned char *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);\n  \
         {}(scratch, buffers, dims, 0, 1);\n  free(scratch);\n{gives}  \
         for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]);\n}}\n",
        buffers.join(", "),
        [&symbols[..], &["0".to_string()]].concat().join(", "),
        entry.name,
        symbols.join(", "),
        caller::name(entry),
    );
    text
}
