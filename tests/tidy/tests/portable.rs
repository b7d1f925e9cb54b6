//! What only Linux, glibc or x86-64 has stands behind `cfg`, so that the rest builds on macOS.

use mithril_tidy::{Source, sources};

/// What other systems or processors lack. The code generator is built where LLVM is, on Linux alone.
const FOREIGN: [&str; 14] = [
    "libc::SYS_",
    "libc::syscall",
    "libc::FUTEX_",
    "libc::MADV_HUGEPAGE",
    "libc::MADV_DONTNEED",
    "libc::malloc_trim",
    "libc::memfd_create",
    "libc::getpriority",
    "libc::setpriority",
    "libc::sched_",
    "libc::__errno_location",
    "std::os::linux",
    "std::arch::",
    "\"/proc/",
];

/// The folders of code that is built everywhere.
const CODE: [&str; 10] = [
    "ir/src/",
    "passes/src/",
    "codegen/source/src/",
    "codegen/kernels/src/",
    "codegen/instant/src/",
    "runtime/src/",
    "frontend/model/src/",
    "frontend/driver/src/",
    "frontend/python/src/",
    "tools/src/",
];

/// Whether an attribute above a line chooses systems or processors.
fn is_chosen(lines: &[&str], mut at: usize) -> bool {
    while at > 0 {
        at -= 1;
        let line = lines[at].trim_start();
        if line.starts_with("#[cfg(") && line.contains("target_") {
            return true;
        }
        if !(line.starts_with("#[") || line.starts_with("//")) {
            return false;
        }
    }
    false
}

/// The lines, by number, that name something foreign, and that no `cfg` encloses. Code is formatted,
/// so indentation tells what encloses a line.
fn offences(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |at: usize| lines[at].len() - lines[at].trim_start().len();
    let foreign = |line: &&str| FOREIGN.iter().any(|word| line.contains(word));
    let comment = |line: &str| line.trim_start().starts_with("//");
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        if comment(line) || !foreign(line) {
            continue;
        }
        let (mut at, mut outside) = (number, indent(number));
        let mut chosen = is_chosen(&lines, at);
        while !chosen && at > 0 {
            at -= 1;
            if lines[at].trim().is_empty() || indent(at) >= outside {
                continue;
            }
            outside = indent(at);
            chosen = is_chosen(&lines, at);
        }
        if !chosen {
            found.push(number + 1);
        }
    }
    found
}

#[test]
fn what_only_linux_has_stands_behind_cfg() {
    let built = |file: &Source| file.is_rust() && CODE.iter().any(|own| file.path.starts_with(own));
    let mut all = Vec::new();
    for file in sources().into_iter().filter(built) {
        all.extend(offences(&file.text).into_iter().map(|line| format!("{}:{line}", file.path)));
    }
    assert!(all.is_empty(), "without `#[cfg(target_…)]`:\n  {}", all.join("\n  "));
}

#[test]
fn foreign_calls_are_found() {
    let open = "fn f() {\n    unsafe {\n        libc::malloc_trim(0);\n    }\n}\n";
    assert_eq!(offences(open), [3]);
    let inside = open.replace("    unsafe", "    #[cfg(target_env = \"gnu\")]\n    unsafe");
    assert!(offences(&inside).is_empty());
    let whole = format!("#[cfg(target_os = \"linux\")]\n/// Trims.\n{open}");
    assert!(offences(&whole).is_empty());
    let before = format!("#[cfg(target_os = \"linux\")]\nfn g() {{}}\n\n{open}");
    assert_eq!(offences(&before), [6]);
    assert!(offences("// libc::syscall\n").is_empty());
    assert_eq!(offences("let x = fs::read(\"/proc/cpuinfo\");\n"), [1]);
}
