//! The cost of a model, before and after it is compiled.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Module;
use mithril_model::block::Block;
use mithril_model::lower::{Options, lower};
use mithril_passes::cost::blocks::{BlockCost, of_blocks};
use mithril_passes::driver::Driver;
use mithril_passes::inline::Inline;
use mithril_passes::pipeline::Pipeline;
use mithril_passes::specialise::Specialise;
use mithril_passes::specialise::shapes::Shapes;

/// The cost of each block of a model, the whole model first. It counts the operations before any
/// rewriting.
///
/// Errors: those of [`lower`](mithril_model::lower()).
pub fn cost(block: &Block, options: &Options) -> Result<Vec<BlockCost>> {
    of_functions(&lower(block, options)?, Shapes::default())
}

/// The cost of each block of a model's functions, for these shapes of arguments and sizes of dims.
///
/// Errors: names that the functions do not have; shapes that do not fit.
pub fn of_functions(module: &Module, shapes: Shapes) -> Result<Vec<BlockCost>> {
    let specialise = Specialise { shapes, ..Specialise::default() };
    let pipeline = Pipeline::default().then(specialise).then(Inline::ALL);
    let (module, _) = Driver::default().run(&pipeline, module)?;
    match module.entry() {
        Some(function) => of_blocks(&module, function),
        None => Ok(Vec::new()),
    }
}
