//! Reduce steps: from the loss of each target to a scalar.

use mithril_ir::diagnostic::Result;

use super::required_inputs;
use crate::block::Block;
use crate::blocks::{Group, build};
use crate::model::Model;

/// The name of the output at which a loss gives the weights of its targets. The loss values are
/// already multiplied by the weights.
pub const WEIGHT: &str = "weight";

/// Adds the loss and all but the last reduce step to `model`, and returns the last step, ready to
/// be added. Without steps, returns the loss.
///
/// A `Mean` divides by the weights of a loss that has weights, if it reads the loss directly or
/// through other means and blocks that only move elements. After any other step it is a plain mean.
pub(super) fn reduced(model: &Model, loss: Block, steps: Vec<Block>) -> Result<Block> {
    let mut last = loss;
    let mut moved = None;
    for step in steps {
        let (value, own) = model.apply_with(last, WEIGHT)?;
        let (next, weight) = match (own.or(moved), step.entry()) {
            (Some(weight), Some(entry)) if entry.name == "Mean" => {
                (loss_mean(&step)?.connect([("weights", weight)])?, None)
            }
            (Some(weight), Some(entry))
                if entry.group == Group::Shape && required_inputs(&step).count() == 1 =>
            {
                let weight = model.apply(step.clone().input(weight)?)?;
                (step, Some(weight))
            }
            _ => (step, None),
        };
        last = next.input(value)?;
        moved = weight;
    }
    Ok(last)
}

/// The weighted mean that replaces a plain one, with the same name and settings.
fn loss_mean(mean: &Block) -> Result<Block> {
    let settings = mean.settings().into_iter().flat_map(|settings| settings.iter());
    let settings = settings.map(|(parameter, value)| (parameter.name, value.clone())).collect();
    let block = build("LossMean", Vec::new(), settings)?;
    match mean.name() {
        Some(name) => block.named(name),
        None => Ok(block),
    }
}
