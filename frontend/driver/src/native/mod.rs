//! Models as machine code: programs of the runtime, their kernels compiled when they first run.

use std::fmt::Write;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mithril_instant::Machine;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::graph::{Function, Module};
use mithril_ir::tensor::Tensor;
use mithril_kernels::c;
use mithril_kernels::contract::Isa;
use mithril_kernels::host::Host;
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

/// A model's functions for this machine.
#[derive(Debug)]
pub struct Native {
    pub forward: PlannedFunction,
    /// The results, and behind them a gradient for each param that has one.
    pub joint: Option<PlannedFunction>,
    unit: Option<Arc<Unit>>,
}

/// Where inner values lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Planning {
    /// Those that live at other times share memory.
    #[default]
    Greedy,
    /// Each has its own.
    None,
}

impl Planning {
    fn plan(self, module: &Module, function: &Function, isa: &Isa) -> Result<Plan> {
        let mut plan = plan(module, function, isa)?;
        plan.program.apart = self == Planning::None;
        Ok(plan)
    }
}

/// One function: planned at once, compiled when it is first run.
#[derive(Debug)]
pub struct PlannedFunction {
    /// Without its constants, which are moved to where kernels read them.
    pub plan: Plan,
    constants: Mutex<Vec<Constant>>,
    name: Arc<str>,
    maker: Maker,
    ready: OnceLock<Ready>,
    /// Held by who makes it ready.
    making: Mutex<()>,
}

/// What makes code of a plan.
#[derive(Clone, Debug)]
enum Maker {
    /// LLVM or Cranelift, as the tier is, for a processor.
    Kernels(Host, Tier),
    /// The system's C compiler, of the entry of this number.
    C { unit: Arc<Unit>, entry: usize },
}

/// A function that can be run.
pub struct Ready {
    pub executable: Arc<Executable>,
    /// How many of its kernels had to be compiled before it could run, and how many had to be so
    /// in an instant, by Cranelift.
    pub compiled: usize,
    pub instant: usize,
    /// How many LLVM failed on before, which Cranelift compiled.
    failed: usize,
    /// Why the cache did not have them, in order.
    misses: Vec<Miss>,
    pub time: Duration,
    /// How long each kernel took to compile; none for what was there, or where C is compiled.
    times: Vec<Option<Duration>>,
    /// The kernels that are to be replaced. Whoever calls begins it after a call.
    pub tier_up: Option<Arc<TierUp>>,
    /// Of kernels that LLVM failed on.
    pub warnings: Arc<Warnings>,
    /// Where the code lies, if not in the executable.
    _library: Option<Arc<libloading::Library>>,
}

impl Ready {
    /// A function whose code is final.
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
    /// The functions of a module that call no other: its entry, and the gradients of it.
    ///
    /// Errors: operations without loops; dims that no argument shows.
    pub fn of(module: &Module, host: &Host, tier: Tier, memory: Planning) -> Result<Native> {
        let mut functions = module.called_from_outside();
        let Some(forward) = functions.next() else {
            return Diagnostic::new("the module is empty").err();
        };
        let part = |function: &Function| -> Result<PlannedFunction> {
            let plan = memory.plan(module, function, &host.isa)?;
            Ok(PlannedFunction::new(function, plan, Maker::Kernels(host.clone(), tier)))
        };
        let joint = functions.next().map(|joint| part(joint)).transpose()?;
        Ok(Native { forward: part(forward)?, joint, unit: None })
    }

    /// The same functions as C, by the name of the model; `indexed` are the inputs whose elements
    /// they check.
    ///
    /// Errors: as [`Native::of`].
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
        let made = functions.iter().zip(plans).enumerate();
        let mut parts = made.map(|(entry, (function, plan))| {
            PlannedFunction::new(function, plan, Maker::C { unit: unit.clone(), entry })
        });
        let Some(forward) = parts.next() else {
            return Diagnostic::new("the module is empty").err();
        };
        let joint = parts.next();
        drop(parts);
        Ok(Native { forward, joint, unit: Some(unit) })
    }

    /// The file, where it is C.
    pub fn c(&self) -> Option<&str> {
        self.unit.as_ref().map(|unit| unit.source.text.as_str())
    }

    pub fn parts(&self) -> impl Iterator<Item = &PlannedFunction> {
        [&self.forward].into_iter().chain(&self.joint)
    }

    /// What is launched on what, and the kernels, for people to read; C where it is that.
    pub fn listing(&self) -> String {
        if let Some(text) = self.c() {
            return text.to_string();
        }
        self.parts().map(PlannedFunction::listing).collect::<Vec<_>>().join("\n")
    }
}

impl PlannedFunction {
    fn new(function: &Function, mut plan: Plan, maker: Maker) -> PlannedFunction {
        let name = function.name.clone();
        let constants = Mutex::new(std::mem::take(&mut plan.constants));
        PlannedFunction {
            plan,
            constants,
            name,
            maker,
            ready: OnceLock::new(),
            making: Mutex::default(),
        }
    }

    /// What runs it, if it was made ready.
    pub fn is_ready(&self) -> Option<&Ready> {
        self.ready.get()
    }

    /// What runs it: made now, if it was not before. Once `stop` is set, no more kernels are made;
    /// those that were are kept.
    ///
    /// Errors: those of the native library; no memory for the constants; `stop`.
    pub fn ready(&self, stop: &AtomicBool) -> Result<&Ready> {
        between_forks(|| self.made(stop))
    }

    fn made(&self, stop: &AtomicBool) -> Result<&Ready> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = self.ready.get() {
            return Ok(ready);
        }
        let ready = self.make(stop)?;
        Ok(self.ready.get_or_init(|| ready))
    }

    fn make(&self, stop: &AtomicBool) -> Result<Ready> {
        match &self.maker {
            Maker::Kernels(host, tier) => self.make_kernels(host, *tier, stop),
            Maker::C { unit, entry } => self.make_entry(unit, *entry, stop),
        }
    }

    fn make_kernels(&self, host: &Host, tier: Tier, stop: &AtomicBool) -> Result<Ready> {
        let start = Instant::now();
        let quick = tier::quick(&self.plan, tier);
        let locs = self.plan.locs_of_kernels();
        let sources: Vec<Source> = (self.plan.kernels.iter().zip(quick).zip(locs))
            .map(|((kernel, quick), loc)| {
                let (text, code) = (kernel.text(), &kernel.lowered.code);
                Source { text, code, quick, loc }
            })
            .collect();
        let objects = objects::load(&sources, host, tier == Tier::Instant, stop)?;
        let found = objects.code.iter().map(|code| code.kernel("kernel"));
        let kernels: Option<Vec<Kernel>> = found.collect();
        let mut kernels = kernels.ok_or_else(|| invalid("an object without a kernel"))?;
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
        Ok(Ready { instant, failed, times, tier_up, warnings, ..ready })
    }

    /// The constants as kernels read them. Each is packed and what it was is let go, by all who
    /// know of it, so that it is there twice only as long as that takes. What a kernel reads as it
    /// is stays.
    fn constants(&self, stop: &AtomicBool) -> Result<Vec<Bytes>> {
        let lock = || self.constants.lock().unwrap_or_else(PoisonError::into_inner);
        let packed: Vec<usize> = {
            let constants = lock();
            let plain = constants.iter().filter(|constant| constant.packing.is_none());
            plain.for_each(|constant| drop(constant.tensor.keep()));
            (0..constants.len()).filter(|&at| constants[at].packing.is_some()).collect()
        };
        let made = objects::each(&packed, stop, &|at| {
            let constant = lock()[at].clone();
            let count = constant.bytes() / constant.tensor.dtype().bytes();
            let settled =
                Tensor::from_bytes(constant.tensor.dtype(), vec![count], constant.settle()?);
            lock()[at] = settled.expect("as many as are packed").into();
            Ok(())
        });
        let complete = made.len() == packed.len();
        let made: std::result::Result<(), OutOfMemory> =
            made.into_iter().try_for_each(|(_, made)| made);
        made.map_err(|error| Box::new(Diagnostic::new(error.to_string())))?;
        if !complete {
            return objects::interrupted();
        }
        let constants = std::mem::take(&mut *lock());
        Ok(constants.into_iter().map(|constant| constant.tensor.keep()).collect())
    }

    /// The entry is the one kernel that is launched: what runs is what users get.
    fn make_entry(&self, unit: &Unit, entry: usize, stop: &AtomicBool) -> Result<Ready> {
        let start = Instant::now();
        let loaded = unit.load(stop)?;
        let entry = &unit.source.interface.entries[entry];
        // SAFETY: the file has a kernel of this name.
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

    /// The bytes that a call works with, where these are the dims without numbers.
    ///
    /// Errors: a dim that is not among them.
    pub fn memory(&self, dims: &dyn Fn(&str) -> Option<i64>) -> Result<Memory> {
        let mut symbols = Vec::with_capacity(self.plan.symbols.len());
        for symbol in &self.plan.symbols {
            match dims(symbol.as_ref()) {
                Some(dim) => symbols.push(dim),
                None => {
                    return Diagnostic::new(format!("the dim `{symbol}` has no number"))
                        .hint("memory is known where all dims are")
                        .err();
                }
            }
        }
        Memory::of(&self.plan.program, &symbols)
            .map_err(|error| Box::new(Diagnostic::new(error.to_string())))
    }

    /// What a stage gives for each kernel; nothing for none, which is what they are compiled from.
    ///
    /// Errors: those of the native library.
    pub fn stage(&self, stage: Option<Stage>) -> Result<Vec<Vec<u8>>> {
        let texts = self.plan.kernels.iter().map(|kernel| kernel.text());
        let Some(stage) = stage else { return Ok(texts.map(String::into_bytes).collect()) };
        let Maker::Kernels(host, _) = &self.maker else {
            return Diagnostic::new("C has no such stage").err();
        };
        let library = Library::open()?;
        let made = texts.map(|text| library.compile(&text, host, stage));
        made.map(|made| made.map_err(|why| Box::new(Diagnostic::new(why)))).collect()
    }

    /// The loop code of each kernel, as text.
    pub fn loops(&self) -> impl Iterator<Item = String> {
        self.plan.kernels.iter().map(|kernel| kernel.lowered.code.to_string())
    }

    /// Each kernel as Cranelift is given it.
    ///
    /// Errors: there is no Cranelift for the processor; what it leaves to LLVM; C.
    pub fn clif(&self) -> Result<Vec<String>> {
        let Maker::Kernels(host, _) = &self.maker else {
            return Diagnostic::new("C has no such stage").err();
        };
        let Some(machine) = Machine::of(host) else {
            return Diagnostic::new("Cranelift makes no code for this processor")
                .got(host.name())
                .err();
        };
        let texts = self.plan.kernels.iter().map(|kernel| machine.text(&kernel.lowered.code));
        texts.map(|text| text.map_err(|why| Box::new(Diagnostic::new(why.to_string())))).collect()
    }

    /// The function's launches and kernels, for people to read.
    pub fn listing(&self) -> String {
        let mut text = format!("// {}\n{}", self.name, self.plan.program);
        for (at, kernel) in self.plan.kernels.iter().enumerate() {
            let _ = write!(text, "\n// k{at}: {}", kernel.outlined);
        }
        text
    }

    /// A line about the function and one for each kernel: what all its launches cost, how long it
    /// took to compile and takes in a call where that was measured, what it does and where it is
    /// from.
    pub fn report(&self) -> Vec<String> {
        let plan = &self.plan;
        let (count, kernels) = (plan.program.launches.len(), plan.kernels.len());
        let made = match self.ready.get() {
            None => "not compiled yet".to_string(),
            Some(ready) => ready.report(kernels),
        };
        let mut lines =
            vec![format!("{}: {count} launches of {kernels} kernels ({made})", self.name)];
        let mut launches: Vec<Vec<usize>> = vec![Vec::new(); kernels];
        for (at, launch) in plan.program.launches.iter().enumerate() {
            launches.get_mut(launch.kernel).into_iter().for_each(|own| own.push(at));
        }
        for (at, (kernel, own)) in plan.kernels.iter().zip(&launches).enumerate() {
            let costs = own.iter().filter_map(|&launch| plan.cost(launch).ok());
            let cost =
                costs.reduce(|all, one| all + one).map_or(String::new(), |c| format!(", {c}"));
            let ops = kernel.outlined.function.ops.iter().map(|op| op.op.name).collect::<Vec<_>>();
            let from = own.iter().find_map(|&launch| plan.locs[launch].shortest());
            let from = from.map_or(String::new(), |path| format!(" in {path}"));
            let times = self.ready.get().map_or(String::new(), |ready| ready.times_of(at));
            let count = own.len();
            lines.push(format!("  k{at} x {count}{cost}{times}: {}{from}", ops.join(" ")));
        }
        lines
    }
}

impl Ready {
    /// Where the code of its kernels is from.
    fn report(&self, kernels: usize) -> String {
        let Ready { compiled, instant, failed, .. } = self;
        let found = kernels - compiled - instant - failed;
        let mut text = format!("{compiled} compiled, ");
        if *instant > 0 {
            let _ = write!(text, "{instant} instant, ");
        }
        if *failed > 0 {
            let _ = write!(text, "{failed} by Cranelift since LLVM failed, ");
        }
        let _ = write!(text, "{found} found, {:.1} ms", 1e3 * self.time.as_secs_f64());
        for same in self.misses.chunk_by(Miss::eq) {
            let _ = write!(text, "; {} {}", same.len(), same[0]);
        }
        if let Some(times) = self.executable.times() {
            let all: Duration = times.iter().sum();
            let _ = write!(text, "; {} a call", print(all));
        }
        if let Some(tier_up) = &self.tier_up {
            let (total, done) = tier_up.progress();
            let _ = write!(text, "; {done} of {total} replaced");
            if let Some(why) = self.warnings.first() {
                let _ = write!(text, "; {why}");
            }
        }
        text
    }

    /// What is known of the times of a kernel.
    fn times_of(&self, kernel: usize) -> String {
        // C has one kernel of the runtime for all.
        let Some(compiled) = self.times.get(kernel) else { return String::new() };
        let compiled = compiled.map(|time| format!(", compiled in {}", print(time)));
        let run = self.executable.times().map(|times| format!(", {} a call", print(times[kernel])));
        compiled.unwrap_or_default() + &run.unwrap_or_default()
    }
}

fn print(time: Duration) -> String {
    let ms = 1e3 * time.as_secs_f64();
    if ms < 1.0 { format!("{:.1} µs", 1e3 * ms) } else { format!("{ms:.1} ms") }
}

fn invalid(why: impl ToString) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::new("Native code cannot be run")
            .got(why.to_string())
            .hint("please report it, with what led to it"),
    )
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Ready").field("compiled", &self.compiled).finish_non_exhaustive()
    }
}
