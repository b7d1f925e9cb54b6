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
    /// A function of a `.mir` text as a block: its terminals are the arguments and results. Without
    /// a name it is the function that no other one of the text calls. The dtype `float` in the text
    /// stands for the dtype of the model's floats.
    ///
    /// Errors: text that is no module, with the line and the column; a name that no function has;
    /// several functions, and no name; a function without results.
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
        let mut fresh = |name: &str| {
            let name = unique.name(&name.replace(['.', '\0'], "_"), |name| names.contains(name));
            names.insert(name.clone());
            name
        };
        let inputs: Vec<Terminal> = own
            .arguments()
            .zip(generic)
            .map(|((value, argument), generic)| {
                terminal(fresh(&argument.name), argument.role, own.ty(value), generic)
            })
            .collect();
        let results = own.results.iter().filter(|result| result.state.is_none());
        let outputs = results.map(|result| Outlet { name: fresh(&result.name), list: None });
        let outputs: Vec<Outlet> = outputs.collect();
        if outputs.is_empty() {
            return Diagnostic::of(
                ErrorKind::FunctionText,
                format!("{WRONG} `{}` gives no results", function.name),
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
    let shape = ty.shape.lead.is_none().then(|| ty.shape.dims.iter().map(spec).collect());
    match role {
        Role::Data | Role::Constant | Role::Cotangent => Terminal { shape, ..plain },
        Role::Key => Terminal { role, ..plain },
        Role::Param | Role::State => {
            let start = if role == Role::State { Init::Zeros } else { Init::Scaled };
            let shape = shape.filter(|_| fixed);
            Terminal { role, ruled: shape.is_none(), shape, start: start.into(), ..plain }
        }
    }
}

/// A dim of the signature, as the author of a model would state it. Symbols are the function's own,
/// so they are not stated.
fn spec(dim: &Dim) -> DimSpec {
    let size = dim.as_const().and_then(|size| u64::try_from(size).ok());
    size.map_or(DimSpec::Any, DimSpec::Number)
}
