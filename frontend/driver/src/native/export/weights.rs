//! The weights of a library: the params of its entry, in the entry's order.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::tensor::Tensor;
use mithril_kernels::entry::{Entry, Group};

/// Sorts the given params into the order of the entry.
///
/// Errors: a missing or unknown param; a wrong dtype or shape.
pub fn ordered<'a>(
    entry: &Entry,
    given: &'a [(String, Tensor)],
) -> Result<Vec<(&'a str, &'a Tensor)>> {
    let params = || entry.arguments.iter().filter(|array| array.group == Group::Param);
    if let Some((name, _)) = given.iter().find(|(name, _)| params().all(|p| *p.path != **name)) {
        let mut error = Diagnostic::new(format!("the model has no param `{name}`"));
        error.hint = did_you_mean(name, params().map(|param| &*param.path));
        return error.err();
    }
    let find = |name: &str| given.iter().find(|(own, _)| own == name);
    let ordered = params().map(|param| {
        let Some((name, tensor)) = find(&param.path) else {
            return Diagnostic::of(
                ErrorKind::MissingArray,
                format!("the param `{}` is missing", param.path),
            )
            .hint("give all params, or none")
            .err();
        };
        let dims = param.ty.shape.dims.iter().zip(tensor.shape());
        let fits = param.ty.shape.dims.len() == tensor.shape().len()
            && dims.into_iter().all(|(dim, &size)| dim.as_const().is_none_or(|n| n == size as i64));
        if param.ty.dtype != tensor.dtype() || !fits {
            return Diagnostic::new(format!("the param `{name}` has the wrong dtype or shape"))
                .got(format!("{} {:?}", tensor.dtype(), tensor.shape()))
                .expected(&param.ty)
                .err();
        }
        Ok((name.as_str(), tensor))
    });
    ordered.collect()
}
