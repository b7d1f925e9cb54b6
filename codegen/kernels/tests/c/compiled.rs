//! Compares functions compiled from C with the evaluator. One command compiles many functions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use libloading::Library;
use mithril_ir::dim::Symbol;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Module};
use mithril_ir::tensor::Tensor;
use mithril_ir::text;
use mithril_kernels::c::{self, Source, caller};
use mithril_kernels::isa::Isa;
use mithril_kernels::program::{Plan, plan};
use mithril_kernels::target::TARGETS;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;
use mithril_runtime::execute::Executable;
use mithril_runtime::kernel::Kernel;
use mithril_runtime::memory::Block;
use mithril_runtime::program::Place;
use mithril_runtime::size::Size;
use mithril_runtime::threads::Pool;

/// A function of a module, with arguments and the expected results.
pub struct Check {
    pub about: String,
    pub module: Module,
    /// The name of the function in the module. It may call other functions of the module.
    pub function: String,
    pub inputs: Vec<Tensor>,
    pub expected: Vec<Tensor>,
    /// The evaluator's results in f64, if the function has 16-bit floats. The evaluator rounds
    /// intermediate values to 16 bits, but kernels do not.
    pub precise: Option<Vec<Tensor>>,
}

/// The function of a check as C.
pub struct Compiled {
    function: Function,
    plan: Plan,
    pub source: Source,
}

const PIPELINE: &str = "inline{limit=all,repeated=all,custom=true},legalize{target=c},\
                        inline{limit=all,repeated=all,custom=true},canonicalize,cse,dce";
/// Options that the documentation promises to support, and a sanitizer for undefined behaviour.
const FLAGS: [&str; 9] = [
    "-std=c11",
    "-O0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
    "-fsanitize=undefined",
    "-fno-sanitize-recover=all",
    "-fPIC",
];
/// The number of files per run of the compiler.
const FILES: usize = 24;

pub fn make(check: &Check, number: usize) -> Result<Compiled, String> {
    let pipeline = Pipeline::parse(PIPELINE, TARGETS).expect("the pipeline");
    let legal = Driver::default().run(&pipeline, &check.module);
    let (legal, _) = legal.map_err(|error| error.to_string())?;
    let function = legal.get(&check.function).ok_or("the function is gone")?;
    let plan = plan(&legal, function, &Isa::PORTABLE).map_err(|error| error.to_string())?;
    let source = c::print(&format!("m{number}"), &[(function, &plan)], &[]);
    let source = source.map_err(|error| error.to_string())?;
    Ok(Compiled { function: (**function).clone(), plan, source })
}

/// Compiles and runs all checks. Returns the failed checks with the reasons.
pub fn failures(checks: &[Check]) -> Vec<String> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name =
        format!("mithril-c-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).expect("a folder");
    let batches: Vec<&[Check]> = checks.chunks(FILES).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failures = Vec::new();
        while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
            failures.extend(run_batch(batch, &folder));
        }
        failures
    };
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let failures = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().expect("a thread")).collect()
    });
    std::fs::remove_dir_all(&folder).expect("the folder");
    failures
}

fn run_batch(batch: &[Check], folder: &Path) -> Vec<String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let mut failures = Vec::new();
    let mut compiled = Vec::new();
    let mut files = Vec::new();
    for check in batch {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        match make(check, number) {
            Ok(one) => {
                let file = folder.join(format!("m{number}.c"));
                let text = format!("{}{}", one.source.text, caller::print(&one.source));
                std::fs::write(&file, text).expect("the file");
                files.push(file);
                compiled.push((check, one));
            }
            Err(why) => failures.push(format!("{}\n{why}", check.about)),
        }
    }
    let Some(first) = files.first() else { return failures };
    let library = first.with_extension("so");
    let mut command = Command::new("cc");
    command.args(FLAGS).arg("-shared").args(&files).arg("-lm").arg("-o").arg(&library);
    let output = command.output().expect("a C compiler");
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said.lines().take(40).collect();
        let named = |file: &&PathBuf| said.join("\n").contains(&*file.to_string_lossy());
        let texts = files.iter().filter(named).take(1);
        let texts: String = texts.map(|file| std::fs::read_to_string(file).expect("it")).collect();
        failures.push(format!("{}\n{texts}", said.join("\n")));
        return failures;
    }
    // SAFETY: the library runs nothing when it is loaded.
    let library = unsafe { Library::new(&library) }.expect("the library");
    for (check, one) in compiled {
        if let Some(why) = one.run(check, &library) {
            let module = text::print(&check.module);
            failures.push(format!("{}\n{why}\n{module}\n{}", check.about, one.source.text));
        }
    }
    failures
}

impl Compiled {
    /// Returns the values of the symbols.
    pub fn symbols(&self, check: &Check) -> Vec<i64> {
        let mut sizes: HashMap<Symbol, i64> = HashMap::new();
        for ((value, _), tensor) in self.function.arguments().zip(&check.inputs) {
            for (dim, size) in self.function.ty(value).shape.dims.iter().zip(tensor.shape()) {
                if let Some(symbol) = dim.as_symbol() {
                    sizes.insert(symbol.clone(), *size as i64);
                }
            }
        }
        self.plan.symbols.iter().map(|s| sizes[s]).collect()
    }

    /// Runs the function. Returns the reason if its results differ from the expected ones.
    fn run(&self, check: &Check, library: &Library) -> Option<String> {
        let entry = &self.source.interface.entries[0];
        // SAFETY: the file has a kernel of this name.
        let kernel = unsafe { library.get::<Kernel>(caller::name(entry).as_bytes()) };
        let kernel = *kernel.expect("the kernel");
        let bytes = |wanted: Place| -> Size {
            let buffers = &self.plan.program.buffers;
            buffers.iter().find(|b| b.place == wanted).expect("a buffer").bytes.clone()
        };
        let args = (0..entry.arguments.len()).map(|i| bytes(Place::Argument(i)));
        let results = (0..entry.results.len()).map(|i| bytes(Place::Result(i)));
        let program = caller::program(entry, &args.chain(results).collect::<Vec<_>>());
        let executable =
            Executable::new(program, vec![kernel], vec![], vec![]).expect("a valid program");
        let symbols = self.symbols(check);
        let bytes = match executable.result_bytes(&symbols) {
            Ok(bytes) => bytes,
            Err(error) => return Some(error.to_string()),
        };
        let mut blocks: Vec<Block> =
            bytes.iter().map(|&n| Block::new(n).expect("memory")).collect();
        blocks.iter_mut().for_each(|block| block.as_mut_slice().fill(0xA5));
        let held: Vec<Block> =
            check.inputs.iter().map(|t| Block::copy_of(&t.bytes()).expect("memory")).collect();
        let from: Vec<*const u8> = held.iter().map(|b| b.as_ptr() as *const u8).collect();
        let to: Vec<*mut u8> = blocks.iter().map(Block::as_ptr).collect();
        // SAFETY: the blocks have the sizes that the program requires.
        let ran = unsafe { executable.run(&from, &symbols, &to, &Pool::new(1)) };
        if let Err(error) = ran {
            return Some(error.to_string());
        }
        self.differs(check, &blocks.iter().map(|block| block.as_slice()).collect::<Vec<_>>())
    }

    /// Compares results, given as bytes, with the expected ones. Returns the difference, if any.
    pub fn differs(&self, check: &Check, results: &[&[u8]]) -> Option<String> {
        let why = self.differs_from(&check.expected, results)?;
        let precise = check.precise.as_ref();
        precise.is_none_or(|own| self.differs_from(own, results).is_some()).then_some(why)
    }

    fn differs_from(&self, expected: &[Tensor], results: &[&[u8]]) -> Option<String> {
        results.iter().zip(expected).enumerate().find_map(|(i, (bytes, want))| {
            let dtype = self.function.ty(self.function.results[i].value).dtype;
            match Tensor::from_bytes(dtype, want.shape().to_vec(), bytes.to_vec()) {
                Ok(got) => difference(want, &got).map(|why| format!("result {i}: {why}")),
                Err(_) => Some(format!("result {i} has {} bytes", bytes.len())),
            }
        })
    }
}

/// Compares a result with the expected one. Returns the difference, if any.
fn difference(want: &Tensor, got: &Tensor) -> Option<String> {
    if !want.dtype().is_float() {
        let same = want.to_i64s() == got.to_i64s();
        return (!same).then(|| format!("{got:?}, expected {want:?}"));
    }
    let tolerance = match want.dtype() {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        _ => 2e-2,
    };
    let (wants, gots) = (want.to_f64s(), got.to_f64s());
    let finite = wants.iter().filter(|x| x.is_finite());
    let largest = finite.fold(1e-30, |a: f64, x| a.max(x.abs()));
    let differs = wants.iter().zip(&gots).any(|(&w, &g)| {
        let same = (w.is_nan() && g.is_nan())
            || (w == g && (w != 0.0 || w.is_sign_negative() == g.is_sign_negative()))
            || (w.is_finite() && (w != 0.0 || g != 0.0) && (w - g).abs() <= tolerance * largest);
        !same
    });
    differs.then(|| format!("{got:?}, expected {want:?}"))
}

/// Compiles and runs all checks. Panics with the first failures, if any.
pub fn expect_no_failures(checks: &[Check]) {
    assert!(!checks.is_empty());
    show_first(&failures(checks), checks.len());
}

/// Panics with the first failures, if there are any. `checks` is the number of checks.
pub fn show_first(failures: &[String], checks: usize) {
    let shown: Vec<&str> = failures.iter().take(4).map(String::as_str).collect();
    assert!(
        failures.is_empty(),
        "{} of {} fail:\n{}",
        failures.len(),
        checks,
        shown.join("\n----\n")
    );
}
