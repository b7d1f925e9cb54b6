//! Turns a function into a program of the runtime: its kernels, and the memory on which they are
//! launched.

pub mod external;
mod planner;
mod scan;

use std::sync::Arc;

use bytes::Bytes;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::{Dim, Operator, Symbol, Translator};
use mithril_ir::graph::{Function, Module};
use mithril_ir::loc::Loc;
use mithril_ir::tensor::Tensor;
use mithril_passes::cost::{self, Cost};
use mithril_passes::outline;
use mithril_runtime::memory::OutOfMemory;
use mithril_runtime::program::Program;
use mithril_runtime::size::Size;

use crate::isa::Isa;
use crate::lower::Lowered;
use crate::lower::packing::Packing;
use crate::mlir;
use external::External;

/// A kernel to be compiled.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub outlined: outline::Kernel,
    pub lowered: Lowered,
    /// The body that the user wrote, instead of loop code.
    pub external: Option<Arc<External>>,
}

impl Kernel {
    /// The cost of one launch, for these dims.
    ///
    /// Errors: a composite whose decomposition fails.
    pub fn cost(&self, dims: &[Dim]) -> Result<Cost> {
        if let Some(external) = &self.external {
            let bytes = external.arrays.iter().map(|array| cost::bytes(&array.ty)).sum();
            return Ok(Cost { flops: Dim::Const(0), bytes: outside(&bytes, dims) });
        }
        let Cost { flops, bytes } = cost::of_kernel(&self.outlined.function)?;
        Ok(Cost { flops: outside(&flops, dims), bytes: outside(&bytes, dims) })
    }

    /// The kernel as MLIR text. It is compiled, and it is the key of the compile cache.
    pub fn text(&self) -> String {
        mlir::print(&self.lowered.code)
    }
}

/// A function as a program.
#[derive(Clone, Debug)]
pub struct Plan {
    pub program: Program,
    /// By kernel number; those with bodies of the user come last. If the program copies, the next
    /// number stands for the runtime's own copy.
    pub kernels: Vec<Kernel>,
    pub copies: bool,
    pub constants: Vec<Constant>,
    /// The symbols of the program; their values are read from the shapes of the arguments.
    pub symbols: Vec<Symbol>,
    /// For each launch, the blocks that it comes from.
    pub locs: Vec<Loc>,
    /// For each launch and each buffer, what people would call it. Several may have one name.
    pub launch_names: Vec<Arc<str>>,
    pub buffer_names: Vec<Arc<str>>,
}

/// The contents of a constant of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Constant {
    pub tensor: Tensor,
    /// The layout that kernels read, if it differs from the tensor's.
    pub packing: Option<Packing>,
}

impl Constant {
    /// The number of bytes that kernels read.
    pub fn bytes(&self) -> usize {
        let plain = self.tensor.len() * self.tensor.dtype().bytes();
        self.packing.as_ref().map_or(plain, Packing::bytes)
    }

    /// The elements in the layout that kernels read, packed now if necessary.
    ///
    /// Errors: no memory for it.
    pub fn value(&self) -> Result<Tensor, OutOfMemory> {
        match &self.packing {
            Some(packing) => packing.pack(&self.tensor),
            None => Ok(self.tensor.clone()),
        }
    }

    /// The bytes that kernels read for as long as the kernels live. Packed elements replace the
    /// tensor's own if they are complete and nothing else holds the tensor, so that weights are
    /// stored once.
    ///
    /// Errors: no memory for it.
    pub fn settle(&self) -> Result<Bytes, OutOfMemory> {
        let Some(packing) = &self.packing else { return Ok(self.tensor.keep()) };
        let packed = packing.pack(&self.tensor)?.bytes();
        if let Some(layout) = packing.layout(&self.tensor, packed.clone()) {
            self.tensor.replace(Arc::new(layout));
        }
        Ok(packed)
    }
}

impl From<Tensor> for Constant {
    fn from(tensor: Tensor) -> Constant {
        Constant { tensor, packing: None }
    }
}

impl Plan {
    /// For each kernel, the blocks that its first launch comes from.
    pub fn locs_of_kernels(&self) -> Vec<Loc> {
        let mut locs: Vec<Option<Loc>> = vec![None; self.kernels.len()];
        for (launch, loc) in self.program.launches.iter().zip(&self.locs) {
            // The runtime's own copy is not a kernel of the plan.
            if let Some(own) = locs.get_mut(launch.kernel) {
                own.get_or_insert_with(|| loc.clone());
            }
        }
        locs.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// The cost of a launch, for all iterations of the loops around it. Dims that are symbols of
    /// the program keep their names.
    ///
    /// Errors: those of [`Kernel::cost`].
    pub fn cost(&self, launch: usize) -> Result<Cost> {
        let dim = |size: &Size, name: String| match size {
            Size::Const(size) => Dim::Const(*size),
            Size::Symbol(symbol) => Dim::symbol(self.symbols[*symbol].clone()),
            _ => Dim::symbol(name.as_str()),
        };
        let own = &self.program.launches[launch];
        let dims = own.dims.iter().enumerate().map(|(at, size)| dim(size, format!("d{at}")));
        let Cost { flops, bytes } = self.kernels[own.kernel].cost(&dims.collect::<Vec<_>>())?;
        let loops = self.program.loops_around(launch).enumerate();
        let trips: Dim = loops.map(|(at, l)| dim(&l.trips, format!("n{at}"))).product();
        Ok(Cost { flops: flops * &trips, bytes: bytes * &trips })
    }
}

/// Replaces the kernel's numbered symbols in a dim by these dims.
fn outside(dim: &Dim, dims: &[Dim]) -> Dim {
    dim.substitute(&|symbol| dims.get(symbol.number()?).cloned())
}

/// Plans the program of a function. It must be legalized for native code, and may call other
/// functions of the module only through scans, and external functions.
///
/// Errors: operations without loops; dims that no argument shows.
pub fn plan(module: &Module, function: &Function, isa: &Isa) -> Result<Plan> {
    planner::plan(module, function, isa)
}

/// Errors: a value of the module that is too large for any memory, whatever its open dims are.
pub fn fits(module: &Module) -> Result<()> {
    module.functions.values().try_for_each(|function| planner::fits(function))
}

/// Converts a dim to a size that the runtime evaluates; symbols are numbered in this order.
///
/// Errors: an unknown dim, or one of another symbol.
pub fn size(dim: &Dim, symbols: &[Symbol]) -> Result<Size> {
    dim.translate(&mut Sizes(symbols))
}

struct Sizes<'a>(&'a [Symbol]);

impl Translator for Sizes<'_> {
    type Value = Size;
    type Error = Box<Diagnostic>;

    fn constant(&mut self, value: i64) -> Result<Size> {
        Ok(Size::Const(value))
    }

    fn symbol(&mut self, symbol: &Symbol) -> Result<Size> {
        match self.0.iter().position(|own| own == symbol) {
            Some(at) => Ok(Size::Symbol(at)),
            None => Diagnostic::new(format!("no argument has the dim `{symbol}` on its own"))
                .hint("give the shapes of the model's inputs with `shapes=`")
                .err(),
        }
    }

    fn unknown(&mut self) -> Result<Size> {
        Diagnostic::of(ErrorKind::Native, "Native code has no arrays of sizes beyond 64 bits")
            .hint("look for a shape that is too large")
            .err()
    }

    fn binary(&mut self, op: Operator, left: Size, right: Size) -> Result<Size> {
        Ok(match op {
            Operator::Add => left + right,
            Operator::Sub => left + -right,
            Operator::Mul => left * right,
            Operator::FloorDiv => left.floor_div(right),
            Operator::Mod => left.modulo(right),
            Operator::Min => left.min(right),
            Operator::Max => left.max(right),
        })
    }
}
