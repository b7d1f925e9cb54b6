//! `mithril`: compile and describe models from the command line.

mod bench;
mod cache;
mod compile;
mod diff;
mod error;
mod npz;
mod optimization;
mod output;
mod python;
mod saved;
mod shape;

use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};
use mithril_driver::compile::CompileOptions;
use mithril_driver::cost;
use mithril_driver::summary::table;
use mithril_driver::targets;
use mithril_ir::diagnostic::Result;
use mithril_kernels::host::{self, Host};
use mithril_model::summary::summary;

use compile::{Compile, Failure};
use optimization::OptimizationOptions;
use output::print;
use saved::Saved;

/// Write a model once, run it on any backend.
#[derive(Parser)]
#[command(
    name = "mithril",
    version = mithril_driver::VERSION,
    long_version = &**VERSION,
    arg_required_else_help = true
)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a saved model or a .mir file as source for a framework, as C, or as a shared library
    /// for C.
    Compile(Box<Compile>),
    /// Print a saved model's blocks with their terminals, shapes and numbers of params.
    Summary {
        #[command(flatten)]
        model: Saved,
        /// The number of levels of blocks to show.
        #[arg(short, long, default_value_t = 1)]
        depth: usize,
    },
    /// Print the cost of each block of a saved model in one forward pass: arithmetic, memory
    /// traffic, params, and the peak memory of intermediate values.
    Cost {
        #[command(flatten)]
        model: Saved,
        /// The number of levels of blocks to show.
        #[arg(short, long, default_value_t = 1)]
        depth: usize,
    },
    /// Print the rules that rewrite a saved model, where they fire, and the gain of each.
    Explain {
        #[command(flatten)]
        model: Saved,
        /// The name of the target.
        #[arg(short, long, default_value = targets::CPU.name(),
              help = format!("The target: {}", targets::listing()))]
        target: String,
        #[command(flatten)]
        optimization: OptimizationOptions,
    },
    /// Run a saved model on several backends and compare the results of its blocks. Exits with 1 if
    /// they differ, with 2 if they cannot be compared.
    Diff(Box<diff::Diff>),
    /// Measure the speed of operations on this machine.
    Bench(bench::Bench),
    /// Explain the code of an error, with an example that fails and one that works. Without a code,
    /// list all codes.
    Error { code: Option<String> },
    /// Show or remove the compiled kernels on disk.
    #[command(subcommand)]
    Cache(cache::Command),
}

static VERSION: LazyLock<String> = LazyLock::new(version);

/// The version, this machine's processor, and the levels that it can run native code for.
fn version() -> String {
    let Ok(machine) = host::machine() else { return mithril_driver::VERSION.into() };
    let levels: Vec<String> = host::levels().iter().map(Host::name).collect();
    let mut text = format!(
        "{}\nprocessor: {}\nlevels: {}",
        mithril_driver::VERSION,
        machine.name(),
        levels.join(", ")
    );
    if let Some(set) = host::setting() {
        text += &match host::chosen(None) {
            Ok(host) => format!("\nMITHRIL_CPU: {}", host.name()),
            Err(error) => format!("\nMITHRIL_CPU={set} is ignored: {error}"),
        };
    }
    text
}

fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Diff(diff) => return Ok(diff.run()?),
        Command::Bench(bench) => return Ok(bench.run()?),
        Command::Compile(compile) => compile.run()?,
        Command::Summary { model, depth } => {
            let (block, options) = (model.block()?, model.options()?);
            let rows = match summary(&block, Some(&options), *depth) {
                // Blocks and terminals can be shown even if shapes are not yet known.
                Err(_) if model.is_plain() => summary(&block, None, *depth)?,
                rows => rows?,
            };
            print(table(&rows))?;
        }
        Command::Cost { model, depth } => {
            let blocks = cost::cost(&model.block()?, &model.options()?)?;
            print(mithril_passes::cost::blocks::table(&blocks, *depth).text())?;
        }
        Command::Explain { model, target, optimization } => {
            let options = CompileOptions::new(target, model.options()?, optimization.options())?;
            let program = mithril_driver::compile::compile(&model.block()?, &options)?;
            print(format_args!("{}\n", program.explain()?))?;
        }
        Command::Error { code } => print(error::page(code.as_deref())?)?,
        Command::Cache(command) => cache::run(command)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let command = Options::parse().command;
    let Failure { error, source } = match run(&command) {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    match source {
        Some((name, text)) => eprint!("{}", error.render(&name, &text)),
        None => eprintln!("error: {error}\n  more: mithril error {}", error.kind.code()),
    }
    match command {
        // Exit code 1 means that backends differ.
        Command::Diff(_) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}
