//! Reports of a function's kernels: their costs, the origin of their code and their times.

use std::fmt::Write;
use std::time::Duration;

use super::cache::Miss;
use super::{PlannedFunction, Ready};

impl PlannedFunction {
    /// One line for the function and one for each kernel: the cost of all its launches, its compile
    /// time, its time in a call if that is measured, its operations, and the block that they come
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
        for (at, (kernel, launches)) in plan.kernels.iter().zip(&launches).enumerate() {
            let costs = launches.iter().filter_map(|&launch| plan.cost(launch).ok());
            let cost =
                costs.reduce(|all, one| all + one).map_or(String::new(), |c| format!(", {c}"));
            let ops = kernel.outlined.function.ops.iter().map(|op| op.op.name);
            let own = kernel.external.iter().map(|external| &*external.name);
            let ops = ops.chain(own).collect::<Vec<_>>();
            let from = launches.iter().find_map(|&launch| plan.locs[launch].shortest());
            let from = from.map_or(String::new(), |path| format!(" in {path}"));
            let times = self.ready.get().map_or(String::new(), |ready| ready.times_of(at));
            let count = launches.len();
            lines.push(format!("  k{at} x {count}{cost}{times}: {}{from}", ops.join(" ")));
        }
        lines
    }
}

impl Ready {
    /// Counts the kernels by the origin of their code.
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

    /// The measured times of a kernel, as text.
    fn times_of(&self, kernel: usize) -> String {
        // C has a single kernel in the runtime.
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
