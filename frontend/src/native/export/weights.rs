//! The file of weights: safetensors, which can be mapped.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use mithril_kernels::entry::{Entry, Group};
use safetensors::tensor::{Dtype, Metadata, TensorView};

use super::unwritable;

/// The params of an entry, in its order.
///
/// Errors: one that is missing, or is none; another dtype or shape.
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
            return Diagnostic::new(format!("the param `{}` is missing", param.path))
                .hint("give all params, or none")
                .err();
        };
        let dims = param.ty.shape.dims.iter().zip(tensor.shape());
        let fits = param.ty.shape.dims.len() == tensor.shape().len()
            && dims.into_iter().all(|(dim, &size)| dim.as_const().is_none_or(|n| n == size as i64));
        if param.ty.dtype != tensor.dtype() || !fits {
            return Diagnostic::new(format!("the param `{name}` has another type"))
                .got(format!("{} {:?}", tensor.dtype(), tensor.shape()))
                .expected(&param.ty)
                .err();
        }
        Ok((name.as_str(), tensor))
    });
    ordered.collect()
}

/// Where a weight lies in the file, in bytes from its beginning.
pub struct Place {
    pub name: String,
    pub offset: usize,
    pub bytes: usize,
}

/// Writes the file; where each weight lies in it.
///
/// Errors: what the system says.
pub fn write(weights: &[(&str, &Tensor)], path: &Path) -> Result<Vec<Place>> {
    let failed = |why: String| unwritable(path, std::io::Error::other(why));
    safetensors::serialize_to_file(views(weights)?, None, path)
        .map_err(|error| failed(error.to_string()))?;
    let head = head(path).map_err(|error| unwritable(path, error))?;
    let metadata: Metadata =
        serde_json::from_slice(&head).map_err(|error| failed(error.to_string()))?;
    let all = metadata.tensors();
    let places = weights.iter().filter_map(|(name, _)| {
        let (start, end) = all.get(*name)?.data_offsets;
        let offset = LENGTH + head.len() + start;
        Some(Place { name: name.to_string(), offset, bytes: end - start })
    });
    Ok(places.collect())
}

/// How many bytes say how long the head is.
const LENGTH: usize = 8;

/// What stands between its own length and the elements.
fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut length = [0; LENGTH];
    file.read_exact(&mut length)?;
    let mut head = Vec::new();
    file.take(u64::from_le_bytes(length)).read_to_end(&mut head)?;
    Ok(head)
}

fn views<'a>(weights: &[(&'a str, &'a Tensor)]) -> Result<Vec<(&'a str, TensorView<'a>)>> {
    let view = |(name, tensor): &(&'a str, &'a Tensor)| {
        let view = TensorView::new(dtype(tensor.dtype()), tensor.shape().to_vec(), tensor.bytes());
        let view = view.map_err(|error| {
            Box::new(Diagnostic::new("a weight cannot be written").at(*name).got(error))
        });
        Ok((*name, view?))
    };
    weights.iter().map(view).collect()
}

/// Elements of four bits are kept one to a byte.
fn dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::I16 => Dtype::I16,
        DType::I8 | DType::I4 => Dtype::I8,
        DType::U64 => Dtype::U64,
        DType::U32 => Dtype::U32,
        DType::U16 => Dtype::U16,
        DType::U8 | DType::U4 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
    }
}
