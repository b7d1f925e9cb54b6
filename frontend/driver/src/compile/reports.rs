//! Reports about compiled models: costs, rewrites, and the pass that changes numbers.

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::tensor::Tensor;
use mithril_model::lower::{self, DimSpec};
use mithril_passes::bisect::{self, Culprit};
use mithril_passes::cost::blocks::BlockCost;
use mithril_passes::explain::{self, Explanation};

use super::open::{Needs, Waits};
use super::{Code, Program};
use crate::cost;

impl Program {
    /// The cost of each block of the model in one forward pass, for the shapes it was compiled for.
    /// `shapes` and `dims` give those that are not known.
    ///
    /// Errors: inputs or dims that the model does not have; shapes that do not fit; unknown ranks.
    pub fn cost(
        &self,
        shapes: &[(String, Vec<DimSpec>)],
        dims: &[(String, i64)],
    ) -> Result<Vec<BlockCost>> {
        // The cost of a mask does not depend on its dtype, so unknown dtypes are not an error.
        if !matches!(self.waits(), Some(Waits::Inputs(Needs { trial: false, .. }))) {
            self.functions()?;
        }
        let (module, known) = &self.logical;
        let mut given = known.clone();
        for (name, dims) in shapes {
            given.args.retain(|(own, _)| own != name);
            given.args.push((name.clone(), lower::shape(name, dims)?));
        }
        given.symbols.extend(dims.iter().map(|(name, size)| (name.clone(), Dim::Const(*size))));
        cost::of_functions(module, given)
    }

    /// Reports the rewrites: which rules fired, where, and how much each saves.
    ///
    /// Errors: those of compiling; unknown ranks.
    pub fn explain(&self) -> Result<Explanation> {
        self.functions()?;
        if let Code::Parts(own) = &self.code {
            let each = own.parts.iter().map(|part| part.program.explain());
            return Ok(Explanation::joined(each.collect::<Result<_>>()?));
        }
        let (module, shapes) = &self.logical;
        let (target, gradients) = self.recipe.destination(module)?;
        explain::explain(module, shapes, target, gradients, &self.recipe.optimization)
    }

    /// Finds the first pass, and its rule, that changes the model's numbers by more than
    /// `tolerance`. The reference evaluator runs the functions on `args` before and after.
    ///
    /// Errors: those of compiling; unknown ranks; arguments that do not fit.
    pub fn bisect(&self, args: &[Tensor], tolerance: f64) -> Result<Option<Culprit>> {
        self.functions()?;
        let (module, shapes) = &self.logical;
        self.recipe.destination(module)?;
        let pipeline = |without: &[String]| {
            let mut optimization = self.recipe.optimization.clone();
            optimization.without.extend_from_slice(without);
            self.recipe.pipeline(module, shapes.clone(), &optimization).unwrap_or_default()
        };
        bisect::bisect(module, &pipeline, args, tolerance)
    }
}
