//! Prints to standard error, in addition to the result: modules between passes, times, counts.

use clap::Args;
use mithril_ir::graph::Module;
use mithril_ir::text;
use mithril_passes::driver::{Moment, Report};
use mithril_passes::registry;

/// The command-line options for output in addition to the result.
#[derive(Args)]
pub struct ReportOptions {
    /// Print the module before these passes, or before every pass if none is named.
    #[arg(long, value_name = "PASSES", value_delimiter = ',', num_args = 0..=1,
          require_equals = true, default_missing_value = "all", value_parser = known_pass)]
    print_ir_before: Vec<String>,

    /// Print the module after these passes, or after every pass if none is named.
    #[arg(long, value_name = "PASSES", value_delimiter = ',', num_args = 0..=1,
          require_equals = true, default_missing_value = "all", value_parser = known_pass)]
    print_ir_after: Vec<String>,

    /// Print the module after each pass that changes it.
    #[arg(long)]
    print_ir_on_change: bool,

    /// Print the time of each pass.
    #[arg(long)]
    timing: bool,

    /// Print the statistics of each pass.
    #[arg(long)]
    statistics: bool,

    /// Print the rewrite log: the rules that were applied, and where.
    #[arg(long)]
    rewrites: bool,
}

/// The name of a pass, or `all`.
fn known_pass(name: &str) -> Result<String, String> {
    match name {
        "all" => Ok(name.to_string()),
        _ => registry::make(name).map(|_| name.to_string()).map_err(|error| error.to_string()),
    }
}

impl ReportOptions {
    /// Prints the module if the options ask for it at this moment.
    pub fn module(&self, pass: &str, moment: Moment, module: &Module) {
        let named = |list: &[String]| list.iter().any(|name| name == "all" || name == pass);
        let (asked, when) = match moment {
            Moment::Before => (named(&self.print_ir_before), "before"),
            Moment::After { changed } => {
                let on_change = self.print_ir_on_change && changed;
                (named(&self.print_ir_after) || on_change, "after")
            }
        };
        if asked {
            eprintln!("// ----- IR {when} {pass} -----\n{}", text::print(module));
        }
    }

    /// Prints the requested parts of the report of a pipeline that has run.
    pub fn report(&self, report: &Report) {
        if self.timing {
            eprintln!("// ----- time -----");
            for pass in &report.passes {
                eprintln!("{:>10.3} ms  {}", pass.time.as_secs_f64() * 1e3, pass.pass);
            }
            let total: f64 = report.passes.iter().map(|p| p.time.as_secs_f64()).sum();
            eprintln!("{:>10.3} ms  total", total * 1e3);
        }
        if self.statistics {
            eprintln!("// ----- statistics -----");
            for pass in &report.passes {
                let changed = if pass.changed { "" } else { ": no change" };
                eprintln!("{}{changed}", pass.pass);
                for (name, count) in &pass.statistics {
                    eprintln!("{count:>10}  {name}");
                }
            }
        }
        if self.rewrites {
            eprintln!("// ----- rewrites -----");
            for rewrite in &report.rewrites {
                eprintln!("{}: {} @ {}", rewrite.pass, rewrite.rule, rewrite.loc);
            }
        }
    }
}
