//! Runs pipelines: verifies after each pass, measures time, collects statistics, and shows the
//! module to an observer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Module;

use crate::context::{PassContext, Rewrite};
use crate::pass::Pass;
use crate::pipeline::Pipeline;

/// When an observer is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    Before,
    /// After a pass, which may have changed the module.
    After {
        changed: bool,
    },
}

/// Sees the module before and after each pass.
pub type Observer<'a> = dyn FnMut(&dyn Pass, Moment, &Module) + 'a;

/// How pipelines are run.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// Whether the module is verified after each pass that changes it.
    pub verify: bool,
}

/// The result of one run of one pass.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub pass: &'static str,
    pub time: Duration,
    pub changed: bool,
    /// In the order in which the pass first counted them.
    pub statistics: Vec<(&'static str, u64)>,
}

/// The results of all passes of a pipeline, and the rewrite log.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub passes: Vec<Outcome>,
    pub rewrites: Vec<Rewrite>,
}

impl Default for Driver {
    /// Verifies in debug builds: a broken pass is our error, not the user's.
    fn default() -> Driver {
        Driver { verify: cfg!(debug_assertions) }
    }
}

impl Driver {
    /// Runs the passes in order.
    /// Errors: the first one of a pass, or of the verifier after it, with the pass's name.
    pub fn run(&self, pipeline: &Pipeline, module: &Module) -> Result<(Module, Report)> {
        self.run_observed(pipeline, module, &mut |_, _, _| {})
    }

    /// Like [`Driver::run`], but calls `observer` before and after each pass.
    /// Errors: as [`Driver::run`].
    pub fn run_observed(
        &self,
        pipeline: &Pipeline,
        module: &Module,
        observer: &mut Observer,
    ) -> Result<(Module, Report)> {
        let mut report = Report::default();
        let mut module = module.clone();
        for pass in &pipeline.passes {
            observer(&**pass, Moment::Before, &module);
            let mut cx = PassContext::new(pass.name());
            let start = Instant::now();
            let next = pass
                .run(&module, &mut cx)
                .map_err(|error| Box::new(error.fact("pass", pass.name())))?;
            let time = start.elapsed();
            let changed = differs(&module, &next);
            module = next;
            observer(&**pass, Moment::After { changed }, &module);
            if self.verify && changed {
                verify(&module, pass.name())?;
            }
            let (statistics, rewrites) = cx.into_parts();
            report.rewrites.extend(rewrites);
            report.passes.push(Outcome { pass: pass.name(), time, changed, statistics });
        }
        Ok((module, report))
    }
}

/// Whether any function was replaced, renamed or moved.
pub fn differs(a: &Module, b: &Module) -> bool {
    a.functions.len() != b.functions.len()
        || (a.functions.iter().zip(&b.functions))
            .any(|((n, f), (m, g))| n != m || !Arc::ptr_eq(f, g))
}

fn verify(module: &Module, after: &str) -> Result<()> {
    mithril_ir::verify::verify(module)
        .map_err(|error| Box::new(error.fact("pass", format!("{after}, which broke the module"))))
}
