//! Tests generated C with each available compiler at each optimization level.
//!
//! `MITHRIL_TESTS=all` runs every program in every build, or those of `MITHRIL_SHARD`. Otherwise one
//! program in twelve runs, each in one build, chosen by `MITHRIL_SEED` (0 if that is not set). `CC`
//! names the only compiler to test, `CFLAGS` the only options.

use std::env;
use std::fmt::{self, Display};
use std::process::{Command, id};

use crate::cases::{Random, every, in_shard, seed};
use crate::compiled::show_first;
use crate::standalone::{Program, each, error_lines};
use crate::{gradients, operations, programs};

/// Compilers for this machine. Several names of the same compiler count once.
const COMPILERS: [&str; 8] =
    ["gcc", "gcc-11", "gcc-12", "gcc-13", "gcc-14", "gcc-15", "gcc-16", "clang"];
const LEVELS: [&str; 3] = ["-O0", "-O2", "-O3"];
/// Products and sums are not fused, so that results have the same bits as the evaluator's.
const FLAGS: [&str; 4] = ["-std=c11", "-Werror", "-ffp-contract=off", "-fno-math-errno"];
/// A cross compiler, and the emulator that runs its programs.
const CROSS: (&str, &str) = ("aarch64-linux-gnu-gcc", "qemu-aarch64");
const CROSS_MACHINES: [&[&str]; 2] = [&["-static"], &["-static", "-march=armv8.2-a"]];
/// The number of functions per program.
const FUNCTIONS: usize = 64;
/// In a sample, one program in this many runs.
const SAMPLE: usize = 12;

/// A compiler, its options, and the emulator that runs its programs, if any.
#[derive(Clone)]
struct Build {
    compiler: String,
    options: Vec<String>,
    runner: Option<&'static str>,
}

impl Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.compiler, self.options.join(" "))
    }
}

/// Returns the version that a command prints, or `None` if the command does not exist.
fn version(command: &str) -> Option<String> {
    let output = Command::new(command).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The first line starts with the command's name, followed by a space.
    output.status.success().then(|| text.split_once(' ').map_or("", |(_, rest)| rest).to_string())
}

fn builds() -> Vec<Build> {
    let mut builds = Vec::new();
    let mut seen = Vec::new();
    let own: [&[&str]; 2] = [&[], &["-march=native"]];
    let mut add = |compiler: &str, machines: [&[&'static str]; 2], runner| {
        for level in LEVELS {
            for machine in machines {
                let options = [&[level], machine].concat().into_iter().map(String::from).collect();
                builds.push(Build { compiler: compiler.into(), options, runner });
            }
        }
    };
    let named = |name| env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(compiler) = named("CC") {
        add(&compiler, own, None);
        if let Some(flags) = named("CFLAGS") {
            builds.truncate(1);
            builds[0].options = flags.split(' ').map(String::from).collect();
        }
        return builds;
    }
    for compiler in COMPILERS {
        match version(compiler) {
            Some(version) if !seen.contains(&version) => {
                seen.push(version);
                add(compiler, own, None);
            }
            Some(_) | None => {}
        }
    }
    match version(CROSS.0).and(version(CROSS.1)) {
        Some(_) => add(CROSS.0, CROSS_MACHINES, Some(CROSS.1)),
        None => println!("{} or {} is missing: nothing runs as arm64", CROSS.0, CROSS.1),
    }
    builds
}

impl Build {
    /// Compiles and runs the program with this build. Returns the failed checks.
    fn failures(&self, program: &Program, number: usize) -> Vec<String> {
        let own = self.options.iter().map(String::as_str);
        let flags: Vec<&str> = FLAGS.into_iter().chain(own).collect();
        let main = match program.compile(&self.compiler, &flags, &format!("main_{number}")) {
            Ok(main) => main,
            Err(why) => return vec![format!("{self}:\n{why}")],
        };
        let ran = match self.runner {
            Some(runner) => Command::new(runner).arg(main).output(),
            None => Command::new(main).output(),
        };
        let ran = ran.expect("the program");
        if !ran.status.success() {
            return vec![format!("{self}, when run: {}\n{}", ran.status, error_lines(&ran))];
        }
        let failures = program.failures(&ran.stdout).into_iter();
        failures.map(|why| format!("{self}:\n{why}")).collect()
    }
}

#[test]
fn every_build_matches_the_evaluator() {
    let seed = seed();
    let all = every();
    let mut checks = programs::checks();
    checks.extend(operations::long(seed));
    checks.extend(gradients::long(seed));
    let builds = builds();
    let names: Vec<String> = builds.iter().map(Build::to_string).collect();
    println!("MITHRIL_SEED={seed}, builds:\n{}", names.join("\n"));
    let mut random = Random(seed);
    let mut work = Vec::new();
    for (number, batch) in checks.chunks(FUNCTIONS).enumerate() {
        match all {
            true if !in_shard(number) => {}
            true => work.push((batch, builds.clone())),
            false if random.chance(100 / SAMPLE) => {
                work.push((batch, vec![random.pick(&builds).clone()]));
            }
            false => {}
        }
    }
    let folder = env::temp_dir().join(format!("mithril-c-builds-{}", id()));
    std::fs::create_dir(&folder).expect("a folder");
    let failures = each(work.len(), |at| {
        let (batch, builds) = &work[at];
        let program = Program::write(batch, &folder.join(at.to_string()));
        let builds = builds.iter().enumerate();
        let failures: Vec<String> =
            builds.flat_map(|(number, build)| build.failures(&program, number)).collect();
        for failure in &failures {
            // Names the build and the operation.
            let head: Vec<&str> = failure.lines().take(2).collect();
            println!("{}", head.join(" "));
        }
        std::fs::remove_dir_all(&program.folder).expect("the folder");
        failures
    });
    std::fs::remove_dir_all(&folder).expect("the folder");
    let run = work.iter().map(|(batch, builds)| batch.len() * builds.len()).sum();
    show_first(&failures, run);
}
