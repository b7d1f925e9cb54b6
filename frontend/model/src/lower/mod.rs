//! From blocks to functions of the IR: one instance for each definition and argument types.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Module;

use crate::block::Block;
use crate::literal::Literal;

mod block_error;
mod cx;
mod entry;
mod fix_it;
mod gradient;
mod instance;
mod part;
mod ranks;

pub use cx::Cx;

/// A dim as a model's author states it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DimSpec {
    Number(u64),
    /// May vary.
    Any,
    /// May vary, and is the same wherever the name stands.
    Named(Arc<str>),
}

impl From<u64> for DimSpec {
    fn from(v: u64) -> DimSpec {
        DimSpec::Number(v)
    }
}

impl From<&str> for DimSpec {
    fn from(v: &str) -> DimSpec {
        DimSpec::Named(v.into())
    }
}

/// A dim of this size. Errors: a size that 64 bits do not hold, with a sign.
fn size(n: u64) -> Result<Dim> {
    if let Ok(n) = i64::try_from(n) {
        return Ok(Dim::Const(n));
    }
    Diagnostic::new("Incompatible shapes during compilation: a size is too large")
        .got(n)
        .expected(format!("at most {}", i64::MAX))
        .err()
}

/// Whether dropout drops and normalisations learn, or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    #[default]
    Training,
    Inference,
}

/// What a compile says about the model's terminals.
#[derive(Clone, Debug)]
pub struct Options {
    pub mode: Mode,
    /// Shapes of inputs. Others follow from them, or stay open.
    pub shapes: Vec<(String, Vec<DimSpec>)>,
    /// Dtypes of inputs where they are not what the model's dtype and blocks expect.
    pub dtypes: Vec<(String, DType)>,
    /// The inputs among them whose dtype is that of a call's arrays.
    pub chosen: Vec<String>,
    /// The sizes of a call's arrays. They decide which axes a mask has where dims do not.
    pub sizes: Vec<(String, Vec<i64>)>,
    /// The dtype of floats.
    pub dtype: DType,
    /// The dtype of indices.
    pub index: DType,
    /// Data inputs to be learned.
    pub trainable_keys: Vec<String>,
    /// Learned inputs to be data.
    pub data_keys: Vec<String>,
    /// Inputs that have a value for good.
    pub constant_keys: Vec<(String, Literal)>,
    /// Outputs to be left out.
    pub discard_keys: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::default(),
            shapes: Vec::new(),
            dtypes: Vec::new(),
            chosen: Vec::new(),
            sizes: Vec::new(),
            dtype: DType::F32,
            index: DType::I64,
            trainable_keys: Vec::new(),
            data_keys: Vec::new(),
            constant_keys: Vec::new(),
            discard_keys: Vec::new(),
        }
    }
}

/// The block as a module whose entry is `main`: arguments by name with roles, results by name.
///
/// Errors: "Incompatible shapes during compilation"; "Terminal not found" in the options; dtypes
/// that differ; ranks that `shapes` would have to give.
pub fn lower(block: &Block, options: &Options) -> Result<Module> {
    entry::lower(block, options)
}

pub(crate) use entry::traced as lower_traced;
pub use entry::{open_dtypes, shape};
pub(crate) use instance::Instance;
pub use ranks::{Lowered, Trial, lower_or_try};
