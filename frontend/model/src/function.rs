//! Blocks made of functions of the IR.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Role;
use mithril_ir::op::Class;
use mithril_ir::shape::Type;
use rustc_hash::FxHashSet;

use crate::block::Block;
use crate::definition::{Definition, Outlet, Terminal};
use crate::init::Init;
use crate::lower::DimSpec;
use crate::naming::Unique;
use crate::text_function::{TextFunction, WRONG};

pub mod custom;
mod signature;

impl Block {
    /// A block for a function of a `.mir` text. Its terminals are the function's arguments and
    /// results. Without `name`, it is the function that no other function of the text calls. The
    /// dtype `float` in the text stands for the dtype of the model's floats.
    ///
    /// Errors: invalid text, with its line and column; an unknown name; several functions without a
    /// name; a function without results.
    pub fn from_function(text: &str, name: Option<&str>) -> Result<Block> {
        let function = TextFunction::read(text, name, Vec::new())?;
        Ok(Block::new(Definition::function(function)?))
    }
}

impl Definition {
    /// The definition of a function. Errors: it has no results.
    pub(crate) fn function(function: TextFunction) -> Result<Definition> {
        let generic = function.generic_values()?;
        let own = &function.function;
        let mut unique = Unique::default();
        let mut names: FxHashSet<Arc<str>> = FxHashSet::default();
        // Dots join the names of nested blocks, and terminals share a namespace.
        let mut unique_name = |name: &str| {
            let name = unique.name(&name.replace(['.', '\0'], "_"), |name| names.contains(name));
            names.insert(name.clone());
            name
        };
        let inputs: Vec<Terminal> = own
            .arguments()
            .zip(generic)
            .map(|((value, argument), generic)| {
                terminal(unique_name(&argument.name), argument.role, own.ty(value), generic)
            })
            .collect();
        let results = own.results.iter().filter(|result| result.state.is_none());
        let outputs = results.map(|result| Outlet { name: unique_name(&result.name), list: None });
        let outputs: Vec<Outlet> = outputs.collect();
        if outputs.is_empty() {
            return Diagnostic::of(
                ErrorKind::FunctionText,
                format!("{WRONG} `{}` has no results", function.name),
            )
            .err();
        }
        Ok(Definition::of_function(function, inputs, outputs))
    }
}

fn terminal(name: Arc<str>, role: Role, ty: &Type, generic: bool) -> Terminal {
    let class = match ty.dtype {
        _ if role == Role::Key => Class::Key,
        dtype if dtype.is_float() => Class::Float,
        DType::Bool => Class::Bool,
        _ => Class::Int,
    };
    let plain = Terminal {
        own_dtype: !generic,
        dtype: (!generic && role != Role::Key).then_some(ty.dtype),
        ..Terminal::data(name, class)
    };
    let fixed = ty.shape.dims.iter().all(|dim| dim.as_const().is_some());
    let shape = ty.shape.lead.is_none().then(|| ty.shape.dims.iter().map(stated_dim).collect());
    match role {
        Role::Data | Role::Constant | Role::Cotangent => Terminal { shape, ..plain },
        Role::Key => Terminal { role, ..plain },
        Role::Param | Role::State => {
            let start = if role == Role::State { Init::Zeros } else { Init::Scaled };
            let shape = shape.filter(|_| fixed);
            Terminal { role, inferred: shape.is_none(), shape, start: start.into(), ..plain }
        }
    }
}

/// Converts a dim of the signature to a stated dim. A symbol belongs to the function, so it becomes
/// `Any`.
fn stated_dim(dim: &Dim) -> DimSpec {
    let size = dim.as_const().and_then(|size| u64::try_from(size).ok());
    size.map_or(DimSpec::Any, DimSpec::Number)
}
