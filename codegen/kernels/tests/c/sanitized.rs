//! Runs generated C as programs under ASan and UBSan.

use std::path::Path;
use std::process::Command;

use crate::cases::is_sampled;
use crate::compiled::Check;
use crate::standalone::{Program, each, error_lines};
use crate::{gradients, operations};

/// Warnings are disabled here, because other tests check them.
const FLAGS: [&str; 5] = [
    "-std=c11",
    "-O0",
    "-ffp-contract=off",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];
/// The number of functions per program.
const FUNCTIONS: usize = 64;

/// The available compilers that have sanitizers.
fn compilers(folder: &Path) -> Vec<&'static str> {
    let (source, program) = (folder.join("empty.c"), folder.join("empty"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("the file");
    let makes = |name: &&str| {
        let mut command = Command::new(name);
        let compiled = command.args(FLAGS).arg(&source).arg("-o").arg(&program).output();
        compiled.is_ok_and(|output| output.status.success())
    };
    let found: Vec<&str> = ["gcc", "clang"].into_iter().filter(makes).collect();
    if found.is_empty() { vec!["cc"] } else { found }
}

/// Returns the reports of compilers and sanitizers for a program of some checks.
fn reports(batch: &[Check], folder: &Path, compilers: &[&str]) -> Vec<String> {
    let program = Program::write(batch, folder);
    let mut reports = Vec::new();
    for compiler in compilers {
        match program.compile(compiler, &FLAGS, "main") {
            Err(why) => reports.push(format!("{compiler}:\n{why}")),
            Ok(main) => {
                let ran = Command::new(main).output().expect("the program");
                if !ran.status.success() {
                    reports.push(format!("{compiler}, when run:\n{}", error_lines(&ran)));
                }
            }
        }
    }
    reports
}

#[test]
fn sanitizers_report_nothing_for_any_operation() {
    let mut checks = operations::checks();
    checks.extend(gradients::checks());
    let folder = std::env::temp_dir().join(format!("mithril-c-sanitized-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let compilers = compilers(&folder);
    let batches: Vec<&[Check]> = checks.chunks(FUNCTIONS).collect();
    let sampled = batches.into_iter().enumerate().filter(|(number, _)| is_sampled(*number, 3));
    let batches: Vec<&[Check]> = sampled.map(|(_, batch)| batch).collect();
    let reports =
        each(batches.len(), |at| reports(batches[at], &folder.join(at.to_string()), &compilers));
    std::fs::remove_dir_all(&folder).expect("the folder");
    assert!(reports.is_empty(), "{}", reports.join("\n----\n"));
}
