//! Reduce steps: from the loss of each target to one number.

use mithril_ir::diagnostic::Result;

use super::needed;
use crate::block::Block;
use crate::blocks::{Group, build};
use crate::model::Model;

/// The output at which a loss gives the weights of its targets, beside the values, which are
/// multiplied by them already.
pub const WEIGHT: &str = "weight";

/// The last step, ready to be added to `model`, which has the loss and the steps before it; the loss
/// itself where there are no steps.
///
/// A `Mean` that reads a loss with weights divides by the weights. It reads it directly, or behind
/// other means and blocks that only move elements; behind any other step it is a plain mean.
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
                if entry.group == Group::Shape && needed(&step).count() == 1 =>
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

/// The mean by weights in the place of a plain one, with its name and settings.
fn loss_mean(mean: &Block) -> Result<Block> {
    let settings = mean.settings().into_iter().flat_map(|settings| settings.iter());
    let settings = settings.map(|(parameter, value)| (parameter.name, value.clone())).collect();
    let block = build("LossMean", Vec::new(), settings)?;
    match mean.name() {
        Some(name) => block.named(name),
        None => Ok(block),
    }
}
