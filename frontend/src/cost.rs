//! What a model costs, before it is compiled.

use mithril_ir::diagnostic::Result;
use mithril_passes::cost::blocks::{BlockCost, of_blocks};
use mithril_passes::driver::Driver;
use mithril_passes::inline::Inline;
use mithril_passes::pipeline::Pipeline;

use crate::block::Block;
use crate::lower::{Options, lower};

/// What each block of a model costs, the whole first: of the operations as it is composed of them,
/// not as they are rewritten.
///
/// Errors: those of [`lower`](crate::lower()).
pub fn cost(block: &Block, options: &Options) -> Result<Vec<BlockCost>> {
    let module = lower(block, options)?;
    let (module, _) = Driver::default().run(&Pipeline::default().then(Inline::ALL), &module)?;
    match module.entry() {
        Some(function) => of_blocks(function),
        None => Ok(Vec::new()),
    }
}
