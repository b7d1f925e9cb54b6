//! Lowers blocks to functions of the IR: one instance for each definition and set of argument
//! types.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Module;

use crate::block::Block;
use crate::literal::Literal;

mod block_error;
mod cx;
mod emit;
mod entry;
mod fix_it;
mod gradient;
mod instance;
mod part;
mod ranks;
mod scan;

pub use cx::Cx;
pub use scan::Scan;

/// A dim as stated by a model's author.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DimSpec {
    Number(u64),
    /// May vary.
    Any,
    /// May vary, but is the same wherever the name occurs.
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

/// A dim of this size. Errors: a size that a signed 64-bit integer cannot hold.
fn size(n: u64) -> Result<Dim> {
    if let Ok(n) = i64::try_from(n) {
        return Ok(Dim::Const(n));
    }
    Diagnostic::of(ErrorKind::Shapes, "a size is too large")
        .got(n)
        .expected(format!("at most {}", i64::MAX))
        .err()
}

/// The mode of dropout and normalisation: training drops elements and updates running statistics,
/// inference does neither.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    #[default]
    Training,
    Inference,
}

/// Compile options for the model and its terminals.
#[derive(Clone, Debug)]
pub struct Options {
    pub mode: Mode,
    /// Shapes of inputs. Other shapes are inferred from them, or stay open.
    pub shapes: Vec<(String, Vec<DimSpec>)>,
    /// Dtypes of inputs that differ from the default that the model's dtype and blocks imply.
    pub dtypes: Vec<(String, DType)>,
    /// The inputs in `dtypes` whose dtype comes from the arrays of a call.
    pub chosen: Vec<String>,
    /// The array sizes of a call. They decide which axes a mask has if the dims do not.
    pub sizes: Vec<(String, Vec<i64>)>,
    /// The dtype of floats.
    pub dtype: DType,
    /// The dtype of indices.
    pub index: DType,
    /// Data inputs that become params.
    pub trainable_keys: Vec<String>,
    /// Params that become data inputs.
    pub data_keys: Vec<String>,
    /// Inputs that are fixed to a constant value.
    pub constant_keys: Vec<(String, Literal)>,
    /// Outputs that are left out.
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

/// Lowers the block to a module whose entry is `main`, with named arguments, their roles, and named
/// results.
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
