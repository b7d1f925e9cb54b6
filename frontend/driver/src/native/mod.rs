//! Models as machine code: programs for the runtime, whose kernels are compiled at the first call.

use std::fmt::{Display, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mithril_instant::Machine;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::{Function, Module};
use mithril_ir::tensor::Tensor;
use mithril_kernels::c;
use mithril_kernels::host::Host;
use mithril_kernels::isa::Isa;
use mithril_kernels::program::{Constant, Plan, plan};
use mithril_passes::indexed::Indexed;
use mithril_runtime::execute::{Executable, Memory};
use mithril_runtime::kernel::{self, Kernel};
use mithril_runtime::memory::OutOfMemory;
use mithril_runtime::program::Place;
use mithril_runtime::size::Size;

pub mod background;
mod c_library;
pub mod cache;
mod command;
pub mod export;
mod failures;
mod folder;
mod fork;
mod library;
mod objects;
pub mod pool;
mod progress;
mod queue;
mod report;
mod tier;
mod tier_up;
pub mod worker;

use c_library::Unit;
use cache::Miss;
use failures::Warnings;
use fork::between_forks;
pub use library::{Library, Stage};
use objects::Source;
pub use tier::Tier;
use tier_up::TierUp;

/// The functions of a model for this machine.
#[derive(Debug)]
pub struct Native {
    pub forward: PlannedFunction,
    /// Returns the results of `forward`, followed by a gradient for each param that has one.
    pub joint: Option<PlannedFunction>,
    unit: Option<Arc<Unit>>,
}

/// How memory is assigned to inner values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Planning {
    /// Values with disjoint live ranges share memory.
    #[default]
    Greedy,
    /// Each value has its own memory.
    None,
}

impl Planning {
    fn plan(self, module: &Module, function: &Function, isa: &Isa) -> Result<Plan> {
        let mut plan = plan(module, function, isa)?;
        plan.program.separate = self == Planning::None;
        Ok(plan)
    }
}

/// One function. It is planned when the model is compiled; its kernels are compiled at its first
/// call.
#[derive(Debug)]
pub struct PlannedFunction {
    /// The plan without its constants, which move to the executable.
    pub plan: Plan,
    constants: Mutex<Vec<Constant>>,
    name: Arc<str>,
    compiler: KernelCompiler,
    ready: OnceLock<Ready>,
    /// A thread holds this lock while it compiles the function.
    compile_lock: Mutex<()>,
}

/// The compiler for the code of a plan.
#[derive(Clone, Debug)]
enum KernelCompiler {
    /// LLVM or Cranelift, depending on the tier, for a processor.
    Kernels(Host, Tier),
    /// The system's C compiler, for the entry of this index.
    C { unit: Arc<Unit>, entry: usize },
}

/// A function that can run.
pub struct Ready {
    pub executable: Arc<Executable>,
    /// The number of kernels that LLVM had to compile before the first call, and the number that
    /// Cranelift compiled for now.
    pub compiled: usize,
    pub instant: usize,
    /// The number of kernels that Cranelift compiled because LLVM failed on them.
    failed: usize,
    /// The reasons why the cache did not have the kernels, sorted.
    misses: Vec<Miss>,
    pub time: Duration,
    /// The compile time of each kernel. `None` for a kernel that was available; empty for C.
    times: Vec<Option<Duration>>,
    /// The kernels whose code LLVM's will replace. The caller starts it after a call.
    pub tier_up: Option<Arc<TierUp>>,
    /// One for each kernel that LLVM failed on.
    pub warnings: Arc<Warnings>,
    /// Keeps the library of the code loaded. `None` if the executable owns the code.
    _library: Option<Arc<libloading::Library>>,
}

impl Ready {
    /// A function whose code is final: it has no tier-up.
    fn new(
        executable: Arc<Executable>,
        compiled: usize,
        misses: Vec<Miss>,
        time: Duration,
    ) -> Ready {
        Ready {
            executable,
            compiled,
            instant: 0,
            failed: 0,
            misses,
            time,
            times: Vec::new(),
            tier_up: None,
            warnings: Arc::default(),
            _library: None,
        }
    }
}

impl Native {
    /// Plans the functions of a module that are called from outside: its entry, and the entry's
    /// gradients.
    ///
    /// Errors: operations that cannot be lowered to loops; dims that no argument determines.
    pub fn of(module: &Module, host: &Host, tier: Tier, memory: Planning) -> Result<Native> {
        let mut functions = module.called_from_outside();
        let Some(forward) = functions.next() else {
            return Diagnostic::new("the module is empty").err();
        };
        let part = |function: &Function| -> Result<PlannedFunction> {
            let plan = memory.plan(module, function, &host.isa)?;
            Ok(PlannedFunction::new(function, plan, KernelCompiler::Kernels(host.clone(), tier)))
        };
        let joint = functions.next().map(|joint| part(joint)).transpose()?;
        Ok(Native { forward: part(forward)?, joint, unit: None })
    }

    /// Prints the same functions as C. `name` is the name of the model, and `indexed` are the
    /// inputs whose elements the functions check.
    ///
    /// Errors: as for [`Native::of`].
    pub fn of_c(
        module: &Module,
        name: &str,
        memory: Planning,
        indexed: &[Indexed],
    ) -> Result<Native> {
        let functions: Vec<_> = module.called_from_outside().take(2).collect();
        if functions.is_empty() {
            return Diagnostic::new("the module is empty").err();
        }
        let plans = functions.iter().map(|function| memory.plan(module, function, &Isa::PORTABLE));
        let plans = plans.collect::<Result<Vec<Plan>>>()?;
        let all: Vec<(&Function, &Plan)> =
            functions.iter().map(|function| &***function).zip(&plans).collect();
        let unit = Arc::new(Unit::new(c::print(name, &all, indexed)?));
        let compiled_once = functions.iter().zip(plans).enumerate();
        let mut parts = compiled_once.map(|(entry, (function, plan))| {
            PlannedFunction::new(function, plan, KernelCompiler::C { unit: unit.clone(), entry })
        });
        let Some(forward) = parts.next() else {
            return Diagnostic::new("the module is empty").err();
        };
        let joint = parts.next();
        drop(parts);
        Ok(Native { forward, joint, unit: Some(unit) })
    }

    /// The C source, if this was compiled to C.
    pub fn c(&self) -> Option<&str> {
        self.unit.as_ref().map(|unit| unit.source.text.as_str())
    }

    pub fn parts(&self) -> impl Iterator<Item = &PlannedFunction> {
        [&self.forward].into_iter().chain(&self.joint)
    }

    /// Lists the launches and the kernels for people to read; for C, the source.
    pub fn listing(&self) -> String {
        if let Some(text) = self.c() {
            return text.to_string();
        }
        self.parts().map(PlannedFunction::listing).collect::<Vec<_>>().join("\n")
    }
}

impl PlannedFunction {
    fn new(function: &Function, mut plan: Plan, compiler: KernelCompiler) -> PlannedFunction {
        let name = function.name.clone();
        let constants = Mutex::new(std::mem::take(&mut plan.constants));
        PlannedFunction {
            plan,
            constants,
            name,
            compiler,
            ready: OnceLock::new(),
            compile_lock: Mutex::default(),
        }
    }

    /// The compiled function, if it has been made ready.
    pub fn is_ready(&self) -> Option<&Ready> {
        self.ready.get()
    }

    /// Returns the compiled function. The first call compiles it. Once `stop` is set, no more
    /// kernels are compiled; finished ones stay in the cache.
    ///
    /// Errors: those of the native library; no memory for the constants; `stop`.
    pub fn ready(&self, stop: &AtomicBool) -> Result<&Ready> {
        between_forks(|| self.compiled_once(stop))
    }

    fn compiled_once(&self, stop: &AtomicBool) -> Result<&Ready> {
        let _making = self.compile_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = self.ready.get() {
            return Ok(ready);
        }
        let ready = self.make(stop)?;
        Ok(self.ready.get_or_init(|| ready))
    }

    fn make(&self, stop: &AtomicBool) -> Result<Ready> {
        match &self.compiler {
            KernelCompiler::Kernels(host, tier) => self.make_kernels(host, *tier, stop),
            KernelCompiler::C { unit, entry } => self.make_entry(unit, *entry, stop),
        }
    }

    fn make_kernels(&self, host: &Host, tier: Tier, stop: &AtomicBool) -> Result<Ready> {
        let start = Instant::now();
        let quick = tier::quick(&self.plan, tier);
        let locs = self.plan.locs_of_kernels();
        // Kernels whose bodies the user wrote come last.
        let sources: Vec<Source> = (self.plan.kernels.iter().zip(quick).zip(locs))
            .take_while(|((kernel, _), _)| kernel.external.is_none())
            .map(|((kernel, quick), loc)| {
                let (text, code) = (kernel.text(), &kernel.lowered.code);
                Source { text, code, quick, loc }
            })
            .collect();
        let objects = objects::load(&sources, host, tier == Tier::Instant, stop)?;
        let found = objects.code.iter().map(|code| code.kernel("kernel"));
        let kernels: Option<Vec<Kernel>> = found.collect();
        let mut kernels = kernels.ok_or_else(|| invalid("an object without a kernel"))?;
        let library = self.external_kernels(&mut kernels, stop)?;
        if self.plan.copies {
            kernels.push(kernel::copy);
        }
        let constants = self.constants(stop)?;
        let executable =
            Executable::new(self.plan.program.clone(), kernels, objects.code, constants)
                .map_err(invalid)?;
        let executable = Arc::new(executable);
        let (compiled, instant, time) = (objects.compiled, objects.pending.len(), start.elapsed());
        let swaps = tier != Tier::Instant && instant > 0;
        let warnings = Arc::new(Warnings::default());
        let failed = objects.failed.len();
        for (kernel, failure) in objects.failed {
            warnings.add(failure.warning(kernel, &sources[kernel].loc));
        }
        let own = || Arc::new(TierUp::new(&executable, objects.pending, host, warnings.clone()));
        let tier_up = swaps.then(own);
        let (times, mut misses) = (objects.times, objects.misses);
        misses.sort_unstable();
        let ready = Ready::new(executable, compiled, misses, time);
        Ok(Ready { instant, failed, times, tier_up, warnings, _library: library, ..ready })
    }

    /// Adds the kernels whose bodies the user wrote in C, and returns the library that has them, if
    /// there are any.
    fn external_kernels(
        &self,
        kernels: &mut Vec<Kernel>,
        stop: &AtomicBool,
    ) -> Result<Option<Arc<libloading::Library>>> {
        let Some(text) = c_library::external_kernels(&self.plan, &c_library::symbol)? else {
            return Ok(None);
        };
        let library = c_library::load(&text, stop)?.library;
        for at in kernels.len()..self.plan.kernels.len() {
            // SAFETY: the file has a kernel of this name and type.
            let kernel = unsafe { library.get::<Kernel>(c_library::symbol(at).as_bytes()) };
            kernels.push(*kernel.map_err(invalid)?);
        }
        Ok(Some(library))
    }

    /// Packs the constants into the layouts that kernels read. Each original is released as soon as
    /// it is packed, so memory holds at most one constant twice. Constants that kernels read
    /// unpacked are unchanged.
    fn constants(&self, stop: &AtomicBool) -> Result<Vec<Bytes>> {
        let lock = || self.constants.lock().unwrap_or_else(PoisonError::into_inner);
        let packed: Vec<usize> = {
            let constants = lock();
            let plain = constants.iter().filter(|constant| constant.packing.is_none());
            plain.for_each(|constant| drop(constant.tensor.keep()));
            (0..constants.len()).filter(|&at| constants[at].packing.is_some()).collect()
        };
        let compiled_once = objects::each(&packed, stop, &|at| {
            let constant = lock()[at].clone();
            let count = constant.bytes() / constant.tensor.dtype().bytes();
            let settled =
                Tensor::from_bytes(constant.tensor.dtype(), vec![count], constant.settle()?);
            lock()[at] = settled.expect("as many as are packed").into();
            Ok(())
        });
        let complete = compiled_once.len() == packed.len();
        let compiled_once: std::result::Result<(), OutOfMemory> =
            compiled_once.into_iter().try_for_each(|(_, compiled_once)| compiled_once);
        compiled_once.map_err(too_large)?;
        if !complete {
            return objects::interrupted();
        }
        let constants = std::mem::take(&mut *lock());
        Ok(constants.into_iter().map(|constant| constant.tensor.keep()).collect())
    }

    /// Launches the entry as a single kernel, so that a call runs the same code as the exported C
    /// file.
    fn make_entry(&self, unit: &Unit, entry: usize, stop: &AtomicBool) -> Result<Ready> {
        let start = Instant::now();
        let loaded = unit.load(stop)?;
        let entry = &unit.source.interface.entries[entry];
        // SAFETY: the file has a kernel of this name and type.
        let kernel = unsafe { loaded.library.get::<Kernel>(c::caller::name(entry).as_bytes()) };
        let kernel = *kernel.map_err(invalid)?;
        let buffers = &self.plan.program.buffers;
        let at = |wanted: Place| {
            let found = buffers.iter().find(|buffer| buffer.place == wanted);
            found.map_or(Size::Const(0), |buffer| buffer.bytes.clone())
        };
        let args = (0..entry.arguments.len()).map(|i| at(Place::Argument(i)));
        let results = (0..entry.results.len()).map(|i| at(Place::Result(i)));
        let program = c::caller::program(entry, &args.chain(results).collect::<Vec<_>>());
        let executable = Executable::new(program, vec![kernel], vec![], vec![]).map_err(invalid)?;
        let compiled = if loaded.compiled.is_some() { self.plan.kernels.len() } else { 0 };
        let misses = loaded.compiled.into_iter().collect();
        let _library = Some(loaded.library);
        let (executable, time) = (Arc::new(executable), start.elapsed());
        Ok(Ready { _library, ..Ready::new(executable, compiled, misses, time) })
    }

    /// The memory of a call in bytes, for these values of the symbolic dims.
    ///
    /// Errors: a dim without a value.
    pub fn memory(&self, dims: &dyn Fn(&str) -> Option<i64>) -> Result<Memory> {
        let mut symbols = Vec::with_capacity(self.plan.symbols.len());
        for symbol in &self.plan.symbols {
            match dims(symbol.as_ref()) {
                Some(dim) => symbols.push(dim),
                None => {
                    return Diagnostic::new(format!("the dim `{symbol}` has no number"))
                        .hint("give every dim a number")
                        .err();
                }
            }
        }
        Memory::of(&self.plan.program, &symbols).map_err(too_large)
    }

    /// The output of a stage for each kernel. With `None`, the kernels' text before the first
    /// stage.
    ///
    /// Errors: those of the native library.
    pub fn stage(&self, stage: Option<Stage>) -> Result<Vec<Vec<u8>>> {
        let texts = self.own_kernels().map(|kernel| kernel.text());
        let Some(stage) = stage else { return Ok(texts.map(String::into_bytes).collect()) };
        let KernelCompiler::Kernels(host, _) = &self.compiler else {
            return Diagnostic::of(ErrorKind::Native, "C has no such stage").err();
        };
        let library = Library::open()?;
        let compiled_once = texts.map(|text| library.compile(&text, host, stage));
        compiled_once
            .map(|compiled_once| {
                compiled_once.map_err(|why| Box::new(Diagnostic::of(ErrorKind::Native, why)))
            })
            .collect()
    }

    /// The kernels that have loop code.
    fn own_kernels(&self) -> impl Iterator<Item = &mithril_kernels::program::Kernel> {
        self.plan.kernels.iter().filter(|kernel| kernel.external.is_none())
    }

    /// The loop code of each kernel as text.
    pub fn loops(&self) -> impl Iterator<Item = String> {
        self.own_kernels().map(|kernel| kernel.lowered.code.to_string())
    }

    /// Each kernel in Cranelift's IR.
    ///
    /// Errors: Cranelift does not support the processor, or leaves the kernel to LLVM; the target
    /// is C.
    pub fn clif(&self) -> Result<Vec<String>> {
        let KernelCompiler::Kernels(host, _) = &self.compiler else {
            return Diagnostic::of(ErrorKind::Native, "C has no such stage").err();
        };
        let Some(machine) = Machine::of(host) else {
            return Diagnostic::of(ErrorKind::Native, "Cranelift makes no code for this processor")
                .got(host.name())
                .err();
        };
        let texts = self.own_kernels().map(|kernel| machine.text(&kernel.lowered.code));
        texts
            .map(|text| {
                text.map_err(|why| Box::new(Diagnostic::of(ErrorKind::Native, why.to_string())))
            })
            .collect()
    }

    /// Lists the function's launches and kernels, for people to read.
    pub fn listing(&self) -> String {
        let mut text = format!("// {}\n{}", self.name, self.plan.program);
        for (at, kernel) in self.plan.kernels.iter().enumerate() {
            let _ = match &kernel.external {
                Some(own) => write!(text, "\n// k{at}: {}\n{}\n", own.name, own.text),
                None => write!(text, "\n// k{at}: {}", kernel.outlined),
            };
        }
        text
    }
}

fn invalid(why: impl ToString) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::of(ErrorKind::Native, "Native code cannot be run")
            .got(why.to_string())
            .hint("please report it, with the steps that led to it"),
    )
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Ready").field("compiled", &self.compiled).finish_non_exhaustive()
    }
}

fn too_large(error: impl Display) -> Box<Diagnostic> {
    Box::new(Diagnostic::of(ErrorKind::Memory, error.to_string()))
}
