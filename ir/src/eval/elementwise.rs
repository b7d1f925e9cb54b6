//! Evaluates elementwise operations by their scalar expressions, with NumPy's broadcasting.

use super::array::{Array, Walk, strides};
use crate::dtype::DType;
use crate::scalar::Scalar;
use crate::scalar::expr::{Expr, Kind};

/// The common broadcast shape of `shapes`: aligned at the last dim, sizes are equal or 1.
///
/// # Errors
/// When two dims differ and neither is 1.
pub fn broadcast_shapes(shapes: &[&[usize]]) -> Result<Vec<usize>, String> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = vec![1; rank];
    for shape in shapes {
        for (dim, &size) in out[rank - shape.len()..].iter_mut().zip(*shape) {
            if *dim != size && *dim != 1 && size != 1 {
                return Err(format!("shapes {shapes:?} do not broadcast: {dim} against {size}"));
            }
            if size != 1 {
                *dim = size;
            }
        }
    }
    Ok(out)
}

/// The offset in an array of shape `from` for each element of the broadcast shape `to`.
pub(super) fn broadcast_walk(from: &[usize], to: &[usize]) -> Walk {
    let mut steps = vec![0; to.len()];
    let own = strides(from);
    let lead = to.len() - from.len();
    for d in 0..from.len() {
        steps[lead + d] = if from[d] == 1 { 0 } else { own[d] };
    }
    Walk::new(to, &steps, 0)
}

/// Evaluates `expr` over the broadcast of `inputs`: operand `i` of the expression is `inputs[i]`.
/// Computes in the dtype of the inputs that it reads as values, or in `dtype_out` where there are
/// none (a cast). The result is of `dtype_out`, or bool for a test.
///
/// # Errors
/// When shapes do not broadcast, dtypes do not match the expression's, or inputs or attributes are
/// missing.
pub fn elementwise(
    expr: &Expr,
    dtype_out: DType,
    inputs: &[&Array],
    attrs: &[Scalar],
) -> Result<Array, String> {
    let (vars, numbers) = expr.reads();
    if inputs.len() < vars || attrs.len() < numbers {
        let (got, given) = (inputs.len(), attrs.len());
        return Err(format!(
            "{vars} inputs and {numbers} attributes needed, got {got} and {given}"
        ));
    }
    let dtype = working_dtype(expr, dtype_out, inputs)?;
    let shapes: Vec<&[usize]> = inputs.iter().map(|a| &a.shape[..]).collect();
    let shape = broadcast_shapes(&shapes)?;
    let own: Vec<DType> = inputs.iter().map(|a| a.dtype).collect();
    let mut walks: Vec<Walk> = shapes.iter().map(|s| broadcast_walk(s, &shape)).collect();
    let mut vars = vec![Scalar::I(0); inputs.len()];
    let mut scratch = vec![];
    let n = shape.iter().product();
    let elements = (0..n).map(|_| {
        for (var, (input, walk)) in vars.iter_mut().zip(inputs.iter().zip(&mut walks)) {
            *var = walk.next().map_or(*var, |i| input.get(i));
        }
        expr.eval_into(&mut scratch, dtype, &own, &vars, attrs)
    });
    Ok(Array::collect(dtype_out, shape, elements))
}

fn working_dtype(expr: &Expr, dtype_out: DType, inputs: &[&Array]) -> Result<DType, String> {
    let mut working = None;
    for (i, input) in inputs.iter().enumerate() {
        let got = input.dtype;
        match expr.var_kind(i as u8) {
            Some(Kind::Bool) if got != DType::Bool => {
                return Err(format!("operand {i} must be bool, got {got}"));
            }
            Some(Kind::Value) if *working.get_or_insert(got) != got => {
                return Err(format!("operand {i} is {got}, another is {}", working.unwrap_or(got)));
            }
            Some(Kind::Bool | Kind::Value | Kind::Foreign) | None => {}
        }
    }
    let working = working.unwrap_or(dtype_out);
    let gives = if expr.is_test() { DType::Bool } else { working };
    if gives != dtype_out {
        return Err(format!("the expression gives {gives}, not {dtype_out}"));
    }
    Ok(working)
}
