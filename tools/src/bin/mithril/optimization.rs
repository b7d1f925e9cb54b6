//! The command-line options for optimization.

use clap::Args;
use mithril_passes::pipeline::{self, Level};
use mithril_passes::rules::Class;

/// The optimization options.
#[derive(Args)]
pub struct OptimizationOptions {
    /// The optimizations beyond those that the target needs: none, basic or full.
    #[arg(long, default_value = "full", value_parser = level)]
    optimization_level: Level,
    /// The classes of rewrite rules to use: exact, recognise, reassociate or fast.
    #[arg(long, default_value = "recognise", value_parser = math)]
    math: Class,
}

impl OptimizationOptions {
    pub fn options(&self) -> pipeline::OptimizationOptions {
        let (level, math) = (self.optimization_level, self.math);
        pipeline::OptimizationOptions { level, math, ..pipeline::OptimizationOptions::default() }
    }
}

fn level(text: &str) -> Result<Level, String> {
    let found = Level::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, level)| level).ok_or_else(|| "one of none, basic, full is expected".to_string())
}

fn math(text: &str) -> Result<Class, String> {
    mithril_passes::pass::OptionValue::parse(text, &[])
}
