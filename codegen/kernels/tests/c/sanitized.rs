//! Generated C as programs under ASan and UBSan, every array in memory of exactly its size.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mithril_ir::tensor::Tensor;
use mithril_kernels::c::caller;

use crate::compiled::{Check, Made, make};
use crate::{gradients, operations};

/// Of warnings tell the tests beside this one.
const FLAGS: [&str; 5] = [
    "-std=c11",
    "-O0",
    "-ffp-contract=off",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];
/// Functions of one program.
const FUNCTIONS: usize = 64;

const HEAD: &str = "
#include <stdlib.h>

static void *copy(const unsigned char *from, size_t bytes) {
  unsigned char *memory = malloc(bytes > 0 ? bytes : 1);
  if (memory == NULL) abort();
  for (size_t i = 0; i < bytes; i++) memory[i] = from == NULL ? 0xa5 : from[i];
  return memory;
}
";

/// The compilers that are there and have sanitizers.
fn compilers(folder: &Path) -> Vec<&'static str> {
    let (source, program) = (folder.join("empty.c"), folder.join("empty"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("the file");
    let makes = |name: &&str| {
        let mut command = Command::new(name);
        let made = command.args(FLAGS).arg(&source).arg("-o").arg(&program).output();
        made.is_ok_and(|output| output.status.success())
    };
    let found: Vec<&str> = ["gcc", "clang"].into_iter().filter(makes).collect();
    if found.is_empty() { vec!["cc"] } else { found }
}

/// A function without arguments that calls a check's, and the call of it.
fn caller_text(check: &Check, made: &Made, number: usize) -> String {
    let entry = &made.source.interface.entries[0];
    let mut text = format!("\nstatic void check_{number}(void) {{\n");
    let mut buffers = Vec::new();
    for (i, tensor) in check.inputs.iter().enumerate() {
        let bytes: Vec<String> = tensor.bytes().iter().map(u8::to_string).collect();
        // An array has an element.
        let _ = writeln!(text, "  static const unsigned char x{i}[] = {{0, {}}};", bytes.join(","));
        buffers.push(format!("copy(x{i} + 1, {})", bytes.len()));
    }
    let results = check.expected.iter().map(|tensor: &Tensor| tensor.bytes().len());
    buffers.extend(results.map(|bytes| format!("copy(NULL, {bytes})")));
    let symbols: Vec<String> = made.symbols(check).iter().map(i64::to_string).collect();
    let _ = write!(
        text,
        "  void *buffers[] = {{{}}};\n  const int64_t dims[] = {{{}}};\n  \
         const size_t bytes = {}_workspace_bytes({});\n  \
         unsigned char *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);\n  \
         {}(scratch, buffers, dims, 0, 1);\n  free(scratch);\n  \
         for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]);\n}}\n",
        buffers.join(", "),
        [&symbols[..], &["0".to_string()]].concat().join(", "),
        entry.name,
        symbols.join(", "),
        caller::name(entry),
    );
    text
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().take(40).collect::<Vec<_>>().join("\n")
}

/// One program of some checks; what a compiler or a sanitizer has to say of it.
fn reports(batch: &[Check], folder: &Path, compilers: &[&str]) -> Vec<String> {
    std::fs::create_dir(folder).expect("a folder");
    let (mut files, mut calls, mut main) = (Vec::new(), String::new(), String::new());
    for (number, check) in batch.iter().enumerate() {
        let made = make(check, number).unwrap_or_else(|why| panic!("{}\n{why}", check.about));
        let file = folder.join(format!("m{number}.c"));
        let text = format!("{}{}", made.source.text, caller::print(&made.source));
        std::fs::write(&file, text).expect("the file");
        files.push(file);
        let entry = &made.source.interface.entries[0];
        let dims = vec!["int64_t"; entry.symbols.len()].join(", ");
        let dims = if dims.is_empty() { "void" } else { &dims };
        let _ = write!(
            main,
            "size_t {}_workspace_bytes({dims});\nvoid {}(unsigned char *, void *const *, \
             const int64_t *, int64_t, int64_t);\n{}",
            entry.name,
            caller::name(entry),
            caller_text(check, &made, number)
        );
        let _ = writeln!(calls, "  check_{number}();");
    }
    let text =
        format!("#include <stdint.h>{HEAD}{main}\nint main(void) {{\n{calls}  return 0;\n}}\n");
    let (source, program) = (folder.join("main.c"), folder.join("main"));
    std::fs::write(&source, text).expect("the file");
    let mut reports = Vec::new();
    for compiler in compilers {
        let mut command = Command::new(compiler);
        command.args(FLAGS).args(&files).arg(&source).arg("-lm").arg("-o").arg(&program);
        let made = command.output().expect("a C compiler");
        if !made.status.success() {
            reports.push(format!("{compiler}:\n{}", said(&made)));
            continue;
        }
        let ran = Command::new(&program).output().expect("the program");
        if !ran.status.success() {
            reports.push(format!("{compiler}, when run:\n{}", said(&ran)));
        }
    }
    reports
}

#[test]
fn nothing_is_reported_of_any_operation() {
    let mut checks = operations::checks();
    checks.extend(gradients::checks());
    let folder = std::env::temp_dir().join(format!("mithril-c-sanitized-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let compilers = compilers(&folder);
    let batches: Vec<&[Check]> = checks.chunks(FUNCTIONS).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = batches.get(at) else { return found };
            found.extend(reports(batch, &folder.join(at.to_string()), &compilers));
        }
    };
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let reports: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().expect("a thread")).collect()
    });
    std::fs::remove_dir_all(&folder).expect("the folder");
    assert!(reports.is_empty(), "{}", reports.join("\n----\n"));
}
