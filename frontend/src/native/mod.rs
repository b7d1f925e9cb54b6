//! Models as machine code: programs of the runtime, their kernels compiled when they first run.

use std::fmt::Write;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::graph::{Function, Module};
use mithril_kernels::program::{Plan, plan};
use mithril_runtime::execute::Executable;
use mithril_runtime::kernel;
use mithril_runtime::memory::Block;

pub mod cache;
pub mod export;
pub mod host;
mod library;
mod objects;

pub use host::{Host, host};
pub use library::{Library, Stage};

/// A model's functions for this machine.
#[derive(Debug)]
pub struct Native {
    pub forward: Part,
    /// The results, and behind them a gradient for each param that has one.
    pub joint: Option<Part>,
}

/// One function: planned at once, compiled when it is first run.
#[derive(Debug)]
pub struct Part {
    pub plan: Plan,
    name: Arc<str>,
    host: Host,
    ready: OnceLock<Ready>,
    /// Held by who makes it ready.
    making: Mutex<()>,
}

/// A function that can be run.
pub struct Ready {
    pub executable: Executable,
    /// How many of its kernels had to be compiled.
    pub compiled: usize,
    pub time: Duration,
}

impl Native {
    /// The functions of a module that call no other: its entry, and the gradients of it.
    ///
    /// Errors: operations without loops; dims that no argument shows.
    pub fn of(module: &Module, host: &Host) -> Result<Native> {
        let mut functions = module.called_from_outside();
        let Some(forward) = functions.next() else {
            return Diagnostic::new("the module is empty").err();
        };
        let joint = functions.next().map(|joint| Part::of(joint, host)).transpose()?;
        Ok(Native { forward: Part::of(forward, host)?, joint })
    }

    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        [&self.forward].into_iter().chain(&self.joint)
    }

    /// What is launched on what, and the kernels, for people to read.
    pub fn listing(&self) -> String {
        self.parts().map(Part::listing).collect::<Vec<_>>().join("\n")
    }
}

impl Part {
    fn of(function: &Function, host: &Host) -> Result<Part> {
        let plan = plan(function, &host.isa)?;
        let (name, host) = (function.name.clone(), host.clone());
        Ok(Part { plan, name, host, ready: OnceLock::new(), making: Mutex::default() })
    }

    /// What runs it, if it was made ready.
    pub fn is_ready(&self) -> Option<&Ready> {
        self.ready.get()
    }

    /// What runs it: made now, if it was not before.
    ///
    /// Errors: those of the native library; no memory for the constants.
    pub fn ready(&self) -> Result<&Ready> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = self.ready.get() {
            return Ok(ready);
        }
        let ready = self.make()?;
        Ok(self.ready.get_or_init(|| ready))
    }

    fn make(&self) -> Result<Ready> {
        let start = Instant::now();
        let texts: Vec<String> = self.plan.kernels.iter().map(|kernel| kernel.text()).collect();
        let objects = objects::load(&texts, &self.host)?;
        let invalid = |why: String| {
            Box::new(
                Diagnostic::new("Native code cannot be run")
                    .got(why)
                    .hint("please report it, with what led to it"),
            )
        };
        let found = objects.code.iter().map(|code| code.kernel("kernel"));
        let kernels: Option<Vec<kernel::Kernel>> = found.collect();
        let mut kernels = kernels.ok_or_else(|| invalid("an object without a kernel".into()))?;
        if self.plan.copies {
            kernels.push(kernel::copy);
        }
        let constants = self.plan.constants.iter().map(|tensor| {
            let block = Block::copy_of(tensor.bytes());
            block.map(Arc::new).map_err(|error| Box::new(Diagnostic::new(error.to_string())))
        });
        let constants = constants.collect::<Result<Vec<_>>>()?;
        let executable =
            Executable::new(self.plan.program.clone(), kernels, objects.code, constants)
                .map_err(|error| invalid(error.to_string()))?;
        Ok(Ready { executable, compiled: objects.compiled, time: start.elapsed() })
    }

    /// What a stage gives for each kernel; nothing for none, which is what they are compiled from.
    ///
    /// Errors: those of the native library.
    pub fn stage(&self, stage: Option<Stage>) -> Result<Vec<Vec<u8>>> {
        let texts = self.plan.kernels.iter().map(|kernel| kernel.text());
        let Some(stage) = stage else { return Ok(texts.map(String::into_bytes).collect()) };
        let library = Library::open()?;
        let made = texts.map(|text| library.compile(&text, &self.host, stage));
        made.map(|made| made.map_err(|why| Box::new(Diagnostic::new(why)))).collect()
    }

    /// The function's launches and kernels, for people to read.
    pub fn listing(&self) -> String {
        let mut text = format!("// {}\n{}", self.name, self.plan.program);
        for (at, kernel) in self.plan.kernels.iter().enumerate() {
            let module = Module::of(kernel.function.clone());
            let body = mithril_ir::text::print(&module);
            let _ = write!(text, "\n// k{at}\n{body}");
        }
        text
    }

    /// A line about the function and one for each kernel: what it does and where it is from.
    pub fn report(&self) -> Vec<String> {
        let plan = &self.plan;
        let (launches, kernels) = (plan.program.launches.len(), plan.kernels.len());
        let made = match self.ready.get() {
            None => "not compiled yet".to_string(),
            Some(ready) => format!(
                "{} compiled, {} found, {:.1} ms",
                ready.compiled,
                kernels - ready.compiled,
                1e3 * ready.time.as_secs_f64()
            ),
        };
        let mut lines =
            vec![format!("{}: {launches} launches of {kernels} kernels ({made})", self.name)];
        for (at, kernel) in plan.kernels.iter().enumerate() {
            let own = || plan.program.launches.iter().enumerate().filter(|(_, l)| l.kernel == at);
            let ops = kernel.function.ops.iter().map(|op| op.op.name).collect::<Vec<_>>();
            let from = own().find_map(|(launch, _)| plan.locs[launch].shortest());
            let from = from.map_or(String::new(), |path| format!(" in {path}"));
            lines.push(format!("  k{at} x {}: {}{from}", own().count(), ops.join(" ")));
        }
        lines
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Ready").field("compiled", &self.compiled).finish_non_exhaustive()
    }
}
