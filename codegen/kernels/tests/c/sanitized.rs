//! Generated C as programs under ASan and UBSan.

use std::path::Path;
use std::process::Command;

use crate::compiled::Check;
use crate::standalone::{Program, each, said};
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

/// What a compiler or a sanitizer has to say of a program of some checks.
fn reports(batch: &[Check], folder: &Path, compilers: &[&str]) -> Vec<String> {
    let program = Program::write(batch, folder);
    let mut reports = Vec::new();
    for compiler in compilers {
        match program.compile(compiler, &FLAGS, "main") {
            Err(why) => reports.push(format!("{compiler}:\n{why}")),
            Ok(main) => {
                let ran = Command::new(main).output().expect("the program");
                if !ran.status.success() {
                    reports.push(format!("{compiler}, when run:\n{}", said(&ran)));
                }
            }
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
    let reports =
        each(batches.len(), |at| reports(batches[at], &folder.join(at.to_string()), &compilers));
    std::fs::remove_dir_all(&folder).expect("the folder");
    assert!(reports.is_empty(), "{}", reports.join("\n----\n"));
}
