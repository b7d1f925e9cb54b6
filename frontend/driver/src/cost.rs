//! What a model costs, before it is compiled and after.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Module;
use mithril_model::block::Block;
use mithril_model::lower::{Options, lower};
use mithril_passes::cost::blocks::{BlockCost, of_blocks};
use mithril_passes::driver::Driver;
use mithril_passes::inline::Inline;
use mithril_passes::pipeline::Pipeline;
use mithril_passes::specialise::Specialise;
use mithril_passes::specialise::given::Shapes;

/// What each block of a model costs, the whole first: of the operations as it is composed of them,
/// not as they are rewritten.
///
/// Errors: those of [`lower`](mithril_model::lower()).
pub fn cost(block: &Block, options: &Options) -> Result<Vec<BlockCost>> {
    of_functions(&lower(block, options)?, Shapes::default())
}

/// The same of a model's functions, for these shapes of arguments and sizes of dims.
///
/// Errors: names that the functions have not; shapes that do not fit.
pub fn of_functions(module: &Module, shapes: Shapes) -> Result<Vec<BlockCost>> {
    let specialise = Specialise { shapes, ..Specialise::default() };
    let pipeline = Pipeline::default().then(specialise).then(Inline::ALL);
    let (module, _) = Driver::default().run(&pipeline, module)?;
    match module.entry() {
        Some(function) => of_blocks(function),
        None => Ok(Vec::new()),
    }
}
