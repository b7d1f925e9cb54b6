//! Plans the runtime program of a function: its kernels, buffers and launches.

mod control;
pub mod external;
mod planner;

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
use mithril_runtime::program::{Program, UNLIMITED};
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
    /// The body that the user has written, which replaces the loop code.
    pub external: Option<Arc<External>>,
}

impl Kernel {
    /// Returns the cost of one launch for these dims.
    ///
    /// Errors: the decomposition of a composite operation fails.
    pub fn cost(&self, dims: &[Dim]) -> Result<Cost> {
        if let Some(external) = &self.external {
            let bytes = external.arrays.iter().map(|array| cost::bytes(&array.ty)).sum();
            return Ok(Cost { flops: Dim::Const(0), bytes: in_caller_symbols(&bytes, dims) });
        }
        let Cost { flops, bytes } = cost::of_kernel(&self.outlined.function)?;
        Ok(Cost { flops: in_caller_symbols(&flops, dims), bytes: in_caller_symbols(&bytes, dims) })
    }

    /// The kernel as MLIR text, which is compiled and is the key of the compile cache.
    pub fn text(&self) -> String {
        mlir::print(&self.lowered.code)
    }
}

/// The program of a function, with its kernels and constants.
#[derive(Clone, Debug)]
pub struct Plan {
    pub program: Program,
    /// The kernels, by number. Kernels with user-written bodies come last. If `copies` is set, the
    /// next number stands for the runtime's copy kernel.
    pub kernels: Vec<Kernel>,
    pub copies: bool,
    pub constants: Vec<Constant>,
    /// The symbols of the program, whose values are read from the shapes of the arguments.
    pub symbols: Vec<Symbol>,
    /// The blocks from which each launch comes.
    pub locs: Vec<Loc>,
    /// Readable names of launches and buffers. They need not be unique.
    pub launch_names: Vec<Arc<str>>,
    pub buffer_names: Vec<Arc<str>>,
}

/// The contents of a constant of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Constant {
    pub tensor: Tensor,
    /// The layout that kernels read, if it is packed.
    pub packing: Option<Packing>,
}

impl Constant {
    /// The number of bytes that kernels read.
    pub fn bytes(&self) -> usize {
        let plain = self.tensor.len() * self.tensor.dtype().bytes();
        self.packing.as_ref().map_or(plain, Packing::bytes)
    }

    /// Returns the elements in the layout that kernels read. Packs them if necessary.
    ///
    /// Errors: out of memory.
    pub fn value(&self) -> Result<Tensor, OutOfMemory> {
        match &self.packing {
            Some(packing) => packing.pack(&self.tensor),
            None => Ok(self.tensor.clone()),
        }
    }

    /// Returns the bytes that kernels read, for the lifetime of the kernels. Packed elements
    /// replace the tensor's own elements if they are complete and nothing else references the
    /// tensor, so that weights are stored once.
    ///
    /// Errors: out of memory.
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
    /// Returns the blocks from which the first launch of each kernel comes.
    pub fn locs_of_kernels(&self) -> Vec<Loc> {
        let mut locs: Vec<Option<Loc>> = vec![None; self.kernels.len()];
        for (launch, loc) in self.program.launches.iter().zip(&self.locs) {
            // The runtime's copy kernel is not in the plan's list.
            if let Some(own) = locs.get_mut(launch.kernel) {
                own.get_or_insert_with(|| loc.clone());
            }
        }
        locs.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Returns the cost of a launch, for all iterations of the loops around it, in the symbols of
    /// the program.
    ///
    /// Errors: see [`Kernel::cost`].
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
        let trips: Dim = loops
            .map(|(at, l)| match l.trips == UNLIMITED {
                true => Dim::symbol("steps"),
                false => dim(&l.trips, format!("n{at}")),
            })
            .product();
        Ok(Cost { flops: flops * &trips, bytes: bytes * &trips })
    }
}

/// Replaces the kernel's numbered symbols in a dim by the dims of a launch.
fn in_caller_symbols(dim: &Dim, dims: &[Dim]) -> Dim {
    dim.substitute(&|symbol| dims.get(symbol.number()?).cloned())
}

/// Plans the program of a function. The function must be legalized for native code. It may call
/// other functions of the module only in control flow, and it may call external functions.
///
/// Errors: an operation has no loops; a dim cannot be derived from the arguments.
pub fn plan(module: &Module, function: &Function, isa: &Isa) -> Result<Plan> {
    planner::plan(module, function, isa)
}

/// Checks the sizes of all values of a module.
///
/// Errors: a value is too large for any memory, even if its unknown dims are 1.
pub fn fits(module: &Module) -> Result<()> {
    module.functions.values().try_for_each(|function| planner::fits(function))
}

/// Converts a dim to a size that the runtime evaluates. Symbols are numbered in the order of
/// `symbols`.
///
/// Errors: the dim is unknown or contains another symbol.
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
