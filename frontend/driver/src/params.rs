//! Reads and writes files of params in the safetensors format, which can be memory-mapped.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use safetensors::tensor::{Dtype, Metadata, TensorView};

use crate::files::{publish, unwritable};

/// Writes params to a file atomically: on failure the previous file is unchanged.
///
/// Errors: a name that the format reserves; those of the system.
pub fn save(path: &Path, params: &[(&str, &Tensor)]) -> Result<()> {
    publish(path, |temporary| write(params, temporary)).map(drop)
}

/// Reads the params of a file, in the order of their offsets.
///
/// Errors: a file that cannot be read or is not safetensors; a dtype that Mithril does not have.
pub fn load(path: &Path) -> Result<Vec<(String, Tensor)>> {
    let place = || path.display().to_string();
    let mut file = File::open(path).map_err(|error| {
        Box::new(Diagnostic::of(ErrorKind::File, "the file cannot be read").at(place()).got(error))
    })?;
    let damaged = |why: String| {
        let what = Diagnostic::new("the file of params is damaged").at(place());
        Box::new(what.got(why).expected("safetensors, as `save_params` writes it"))
    };
    let cut = |error: io::Error| damaged(error.to_string());
    let size = file.metadata().map_err(cut)?.len();
    let head = head(&mut file, size).map_err(cut)?;
    let metadata: Metadata =
        serde_json::from_slice(&head).map_err(|error| damaged(error.to_string()))?;
    let mut all: Vec<_> = metadata.tensors().into_iter().collect();
    all.sort_by(|(one, a), (other, b)| (a.data_offsets, one).cmp(&(b.data_offsets, other)));
    // Parsing the header has checked that the weights are contiguous.
    let mut params = Vec::with_capacity(all.len());
    for (name, info) in all {
        let Some(dtype) = DTYPES.iter().find(|(_, theirs)| *theirs == info.dtype) else {
            let error =
                Diagnostic::new(format!("`{name}` has a dtype that Mithril does not support"));
            return error.at(place()).got(format!("{:?}", info.dtype)).err();
        };
        let length = info.data_offsets.1 - info.data_offsets.0;
        let mut bytes = Vec::new();
        (&file).take(length as u64).read_to_end(&mut bytes).map_err(cut)?;
        if bytes.len() != length {
            return Err(damaged(format!("{} of the {length} bytes of `{name}`", bytes.len())));
        }
        let tensor = Tensor::from_bytes(dtype.0, info.shape.clone(), bytes);
        params.push((name, tensor.map_err(damaged)?));
    }
    Ok(params)
}

/// The byte range of a weight in the file.
pub struct Place {
    pub name: String,
    pub offset: usize,
    pub bytes: usize,
}

/// Writes the file and returns the position of each weight.
///
/// Errors: a name that the format reserves; those of the system.
pub fn write(weights: &[(&str, &Tensor)], path: &Path) -> Result<Vec<Place>> {
    let failed = |why: String| unwritable(path, io::Error::other(why));
    if weights.iter().any(|(name, _)| *name == RESERVED) {
        return Diagnostic::new(format!("a param in a file cannot have the name `{RESERVED}`"))
            .hint("rename it: safetensors reserves this name for metadata")
            .err();
    }
    // The crate makes the file readable by its owner only; restore the permissions that the umask
    // gives.
    let plain = File::create(path).and_then(|file| file.metadata());
    let plain = plain.map_err(|error| unwritable(path, error))?.permissions();
    let bytes: Vec<Bytes> = weights.iter().map(|(_, tensor)| tensor.bytes()).collect();
    safetensors::serialize_to_file(views(weights, &bytes)?, None, path)
        .map_err(|error| failed(error.to_string()))?;
    fs::set_permissions(path, plain).map_err(|error| unwritable(path, error))?;
    let head = File::open(path).and_then(|mut file| head(&mut file, u64::MAX));
    let head = head.map_err(|error| unwritable(path, error))?;
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

/// The number of bytes that store the length of the header.
const LENGTH: usize = 8;
/// The key for metadata, which no param may use.
const RESERVED: &str = "__metadata__";

/// Reads the header, which follows its length, of a file of at most `size` bytes.
fn head(file: &mut File, size: u64) -> io::Result<Vec<u8>> {
    let mut length = [0; LENGTH];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > size {
        return Err(io::Error::other(format!("a header of {length} bytes in {size}")));
    }
    let mut head = Vec::new();
    file.take(length).read_to_end(&mut head)?;
    Ok(head)
}

fn views<'a>(
    weights: &[(&'a str, &'a Tensor)],
    bytes: &'a [Bytes],
) -> Result<Vec<(&'a str, TensorView<'a>)>> {
    let view = |((name, tensor), bytes): (&(&'a str, &'a Tensor), &'a Bytes)| {
        let view = TensorView::new(dtype(tensor.dtype()), tensor.shape().to_vec(), bytes);
        let view = view.map_err(|error| {
            Box::new(
                Diagnostic::of(ErrorKind::File, "a weight cannot be written").at(*name).got(error),
            )
        });
        Ok((*name, view?))
    };
    weights.iter().zip(bytes).map(view).collect()
}

/// Each dtype with its name in the file.
const DTYPES: &[(DType, Dtype)] = &[
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I16, Dtype::I16),
    (DType::I8, Dtype::I8),
    (DType::U64, Dtype::U64),
    (DType::U32, Dtype::U32),
    (DType::U16, Dtype::U16),
    (DType::U8, Dtype::U8),
    (DType::Bool, Dtype::BOOL),
    (DType::F8E4M3, Dtype::F8_E4M3),
    (DType::F8E5M2, Dtype::F8_E5M2),
    // 4-bit elements are stored one to a byte and are loaded as bytes.
    (DType::I4, Dtype::I8),
    (DType::U4, Dtype::U8),
];

fn dtype(dtype: DType) -> Dtype {
    let found = DTYPES.iter().find(|(own, _)| *own == dtype);
    found.expect("the table has every dtype").1
}
