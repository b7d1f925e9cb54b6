//! Reads and writes files of params in the safetensors format, which can be memory-mapped.

use std::cmp::Reverse;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use crate::files::{of_file, publish, rename, temporary, unwritable};

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
    let (mut file, entries) = open(path)?;
    let mut params = Vec::with_capacity(entries.len());
    for entry in entries {
        let mut bytes = Vec::new();
        let read = (&mut file).take(entry.place.bytes as u64).read_to_end(&mut bytes);
        read.map_err(|error| damaged(path, error))?;
        if bytes.len() != entry.place.bytes {
            let what = (bytes.len(), entry.place.bytes, &entry.place.name);
            return Err(damaged(
                path,
                format!("{} of the {} bytes of `{}`", what.0, what.1, what.2),
            ));
        }
        let tensor = Tensor::from_bytes(entry.dtype, entry.shape, bytes);
        params.push((entry.place.name, tensor.map_err(|why| damaged(path, why))?));
    }
    Ok(params)
}

/// A param in a file.
pub struct Entry {
    pub place: Place,
    pub dtype: DType,
    pub shape: Vec<usize>,
}

/// The params of a file, in the order of their offsets. Only the header is read.
///
/// Errors: those of `load`.
pub fn entries(path: &Path) -> Result<Vec<Entry>> {
    let (file, entries) = open(path)?;
    let size = file.metadata().map_err(|error| damaged(path, error))?.len();
    match entries.last().map(|last| (last.place.offset + last.place.bytes) as u64) {
        Some(end) if end > size => Err(damaged(path, format!("{size} of {end} bytes"))),
        _ => Ok(entries),
    }
}

/// Opens a file of params and reads the header.
fn open(path: &Path) -> Result<(File, Vec<Entry>)> {
    let place = || path.display().to_string();
    let mut file = File::open(path).map_err(|error| {
        Box::new(Diagnostic::of(ErrorKind::File, "the file cannot be read").at(place()).got(error))
    })?;
    let size = file.metadata().map_err(|error| damaged(path, error))?.len();
    let head = head(&mut file, size).map_err(|error| damaged(path, error))?;
    let metadata: Metadata = serde_json::from_slice(&head).map_err(|error| damaged(path, error))?;
    let mut all: Vec<_> = metadata.tensors().into_iter().collect();
    all.sort_by(|(one, a), (other, b)| (a.data_offsets, one).cmp(&(b.data_offsets, other)));
    // Parsing the header has checked that the weights are contiguous.
    let entry = |(name, info): (String, &TensorInfo)| {
        let Some(dtype) = DTYPES.iter().find(|(_, theirs)| *theirs == info.dtype) else {
            let error =
                Diagnostic::new(format!("`{name}` has a dtype that Mithril does not support"));
            return error.at(place()).got(format!("{:?}", info.dtype)).err();
        };
        let (start, end) = info.data_offsets;
        let place = Place { name, offset: LENGTH + head.len() + start, bytes: end - start };
        Ok(Entry { place, dtype: dtype.0, shape: info.shape.clone() })
    };
    let entries = all.into_iter().map(entry).collect::<Result<_>>()?;
    Ok((file, entries))
}

fn damaged(path: &Path, why: impl Display) -> Box<Diagnostic> {
    let what = Diagnostic::new("the file of params is damaged").at(path.display().to_string());
    Box::new(what.got(why).expected("safetensors, as `save_params` writes it"))
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
    let described: Vec<Described<'_>> =
        weights.iter().map(|(name, own)| (*name, own.dtype(), own.shape())).collect();
    let (mut file, places, _) = begin(&described, path)?;
    let mut ordered: Vec<_> = places.iter().zip(weights).collect();
    ordered.sort_by_key(|(place, _)| place.offset);
    for (_, (_, tensor)) in ordered {
        file.write_all(&tensor.bytes()).map_err(|error| unwritable(path, error))?;
    }
    Ok(places)
}

/// A name, a dtype and a shape.
pub type Described<'a> = (&'a str, DType, &'a [usize]);

/// Makes a temporary file with room for these weights, and returns their positions. `end` gives it
/// its name, once others have written the weights.
///
/// Errors: a name that the format reserves; those of the system.
pub fn reserve(weights: &[Described<'_>], path: &Path) -> Result<(PathBuf, Vec<Place>)> {
    let temporary = temporary(path);
    let begun = begin(weights, &temporary).and_then(|(file, places, size)| {
        file.set_len(size).map_err(|error| unwritable(path, error))?;
        Ok(places)
    });
    match begun {
        Ok(places) => Ok((temporary, places)),
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(of_file(error, &temporary, path))
        }
    }
}

/// Gives a temporary file its name, or removes it.
///
/// Errors: those of the system.
pub fn end(temporary: &Path, path: &Path, keep: bool) -> Result<()> {
    let renamed = if keep { rename(temporary, path) } else { Ok(()) };
    if !keep || renamed.is_err() {
        let _ = fs::remove_file(temporary);
    }
    renamed
}

/// Writes the header of a file for these weights. Returns also their positions and the size of the
/// whole file.
fn begin(weights: &[Described<'_>], path: &Path) -> Result<(File, Vec<Place>, u64)> {
    if weights.iter().any(|(name, ..)| *name == RESERVED) {
        return Diagnostic::new(format!("a param in a file cannot have the name `{RESERVED}`"))
            .hint("rename it: safetensors reserves this name for metadata")
            .err();
    }
    // The widest elements come first, so that each one is aligned.
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&i| (Reverse(dtype(weights[i].1).bitsize()), weights[i].0));
    let (mut ranges, mut infos, mut end) = (vec![(0, 0); weights.len()], vec![], 0);
    for i in order {
        let (name, own, shape) = weights[i];
        let own = dtype(own);
        let bytes = shape.iter().product::<usize>() * own.bitsize() / 8;
        ranges[i] = (end, bytes);
        end += bytes;
        let info =
            TensorInfo { dtype: own, shape: shape.to_vec(), data_offsets: (end - bytes, end) };
        infos.push((name.to_string(), info));
    }
    let failed = |why: String| unwritable(path, io::Error::other(why));
    let metadata = Metadata::new(None, infos).map_err(|error| failed(error.to_string()))?;
    let mut head = serde_json::to_vec(&metadata).map_err(|error| failed(error.to_string()))?;
    head.resize(head.len().next_multiple_of(LENGTH), b' ');
    let start = LENGTH + head.len();
    let filled = |mut file: File| {
        file.write_all(&(head.len() as u64).to_le_bytes())?;
        file.write_all(&head)?;
        Ok(file)
    };
    let file = File::create(path).and_then(filled).map_err(|error| unwritable(path, error))?;
    let places = weights.iter().zip(ranges).map(|((name, ..), (offset, bytes))| Place {
        name: name.to_string(),
        offset: start + offset,
        bytes,
    });
    Ok((file, places.collect(), (start + end) as u64))
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
