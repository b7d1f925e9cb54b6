//! All passes by name, for the command line.

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};

use crate::autodiff::Autodiff;
use crate::batch_scans::BatchScans;
use crate::canonicalize::Canonicalize;
use crate::checkpoint::Checkpoint;
use crate::cse::Cse;
use crate::dce::Dce;
use crate::divide::Divide;
use crate::eqsat::Eqsat;
use crate::fold_constants::FoldConstants;
use crate::infer_shapes::InferShapes;
use crate::inline::Inline;
use crate::keep::Keep;
use crate::legalize::Legalize;
use crate::pass::Pass;
use crate::remove_barriers::RemoveBarriers;
use crate::select_bodies::SelectBodies;
use crate::shard::constrain::Shard;
use crate::shard::residuals::ConstrainResiduals;
use crate::shard::shorten::Shorten;
use crate::shard::unmerge::Unmerge;
use crate::specialise::Specialise;
use crate::split_concats::SplitConcats;
use crate::split_reductions::SplitReductions;

/// Constructs each pass with its defaults, in the order of the help.
pub const PASSES: &[fn() -> Box<dyn Pass>] = &[
    || Box::new(SelectBodies::default()),
    || Box::new(Specialise::default()),
    || Box::new(InferShapes::default()),
    || Box::new(BatchScans::default()),
    || Box::new(Inline::default()),
    || Box::new(Keep::default()),
    || Box::new(Divide::default()),
    || Box::new(ConstrainResiduals::default()),
    || Box::new(Shard::default()),
    || Box::new(Shorten::default()),
    || Box::new(Unmerge::default()),
    || Box::new(Canonicalize::default()),
    || Box::new(FoldConstants::default()),
    || Box::new(Cse::default()),
    || Box::new(Dce::default()),
    || Box::new(Eqsat::default()),
    || Box::new(Checkpoint::default()),
    || Box::new(Autodiff::default()),
    || Box::new(RemoveBarriers::default()),
    || Box::new(Legalize::default()),
    || Box::new(SplitConcats::default()),
    || Box::new(SplitReductions::default()),
];

/// The pass of this name with its defaults.
/// Errors: there is none.
pub fn make(name: &str) -> Result<Box<dyn Pass>> {
    let mut passes = PASSES.iter().map(|make| make());
    if let Some(pass) = passes.find(|pass| pass.name() == name) {
        return Ok(pass);
    }
    let names: Vec<&str> = PASSES.iter().map(|make| make().name()).collect();
    let mut error = Diagnostic::new(format!("there is no pass `{name}`"));
    error.hint = did_you_mean(name, names.iter().copied())
        .or_else(|| Some(format!("the passes are {}", names.join(", "))));
    error.err()
}

/// The passes with their options and defaults, for `--help`.
pub fn help() -> String {
    let mut text = String::new();
    for pass in PASSES.iter().map(|make| make()) {
        text += &format!("  {}\n{}", pass.name(), wrapped(&pass.doc(), 6));
        for field in pass.fields() {
            let default = match field.value.as_str() {
                "" => String::new(),
                value => format!(" (default: {value})"),
            };
            text += &wrapped(&format!("{}: {}{default}", field.name, field.doc), 10);
        }
    }
    text
}

/// Wraps text to at most 100 characters per line, indented.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent + line.len() + 1 + word.len() > 100 {
            lines += &format!("{:indent$}{line}\n", "");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &format!("{:indent$}{line}\n", "")
}
