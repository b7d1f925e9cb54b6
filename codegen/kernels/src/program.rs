//! From a function to a program of the runtime: which kernels there are, and on which memory they
//! are launched.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::{Atom, Dim, Symbol};
use mithril_ir::graph::{Function, Value};
use mithril_ir::loc::Loc;
use mithril_ir::shape::Type;
use mithril_ir::tensor::Tensor;
use mithril_passes::outline::{self, Outline};
use mithril_runtime::program::{Buffer, Launch, Place, Program};
use mithril_runtime::size::Size;
use rustc_hash::FxHashMap;

use crate::lower::{Isa, Lowered, lower};
use crate::mlir;

/// A kernel to be compiled.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub function: Function,
    pub lowered: Lowered,
}

impl Kernel {
    /// Its text for MLIR: what is compiled, and what the cache knows it by.
    pub fn text(&self) -> String {
        mlir::print(&self.lowered.code)
    }
}

/// A function as a program.
#[derive(Clone, Debug)]
pub struct Plan {
    pub program: Program,
    /// By number; where the program copies, one number more stands for the runtime's own copy.
    pub kernels: Vec<Kernel>,
    pub copies: bool,
    /// What the constants of the program hold.
    pub constants: Vec<Tensor>,
    /// The symbols of the program, whose values are found in the shapes of the arguments.
    pub symbols: Vec<Symbol>,
    /// The blocks that each launch comes from.
    pub locs: Vec<Loc>,
}

/// The program of a function that was legalized for native code and calls no other.
///
/// Errors: operations without loops; dims that no argument shows.
pub fn plan(function: &Function, isa: &Isa) -> Result<Plan> {
    let outline = outline::outline(function)?;
    let kernels = outline.kernels.iter();
    let kernels = kernels.map(|f| Ok(Kernel { function: f.clone(), lowered: lower(f, isa)? }));
    let kernels = kernels.collect::<Result<Vec<Kernel>>>()?;
    let mut planner = Planner {
        function,
        symbols: symbols(function),
        buffers: Vec::new(),
        of: FxHashMap::default(),
        constants: Vec::new(),
    };
    planner.arguments()?;
    let results = planner.results()?;
    planner.run(outline, kernels, results)
}

/// The symbols that the arguments' shapes show by themselves.
fn symbols(function: &Function) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    for (value, _) in function.arguments() {
        for symbol in function.ty(value).shape.dims.iter().filter_map(Dim::as_symbol) {
            if !symbols.contains(symbol) {
                symbols.push(symbol.clone());
            }
        }
    }
    symbols
}

struct Planner<'f> {
    function: &'f Function,
    symbols: Vec<Symbol>,
    buffers: Vec<Buffer>,
    /// Where each value is read.
    of: FxHashMap<Value, usize>,
    constants: Vec<Tensor>,
}

impl Planner<'_> {
    fn buffer(&mut self, value: Value, place: Place) -> Result<usize> {
        let bytes = self.bytes(self.function.ty(value))?;
        self.buffers.push(Buffer { bytes, place });
        Ok(self.buffers.len() - 1)
    }

    fn bytes(&self, ty: &Type) -> Result<Size> {
        let count: Dim = ty.shape.dims.iter().cloned().product();
        Ok(self.size(&count)? * ty.dtype.bytes() as i64)
    }

    fn size(&self, dim: &Dim) -> Result<Size> {
        size(dim, &self.symbols)
    }

    fn arguments(&mut self) -> Result<()> {
        for (at, (value, _)) in self.function.arguments().enumerate() {
            let buffer = self.buffer(value, Place::Argument(at))?;
            self.of.insert(value, buffer);
        }
        for op in &self.function.ops {
            if let Some(Attr::Tensor(tensor)) = op.attrs.first() {
                let place = Place::Constant(self.constants.len());
                self.constants.push(tensor.clone());
                let buffer = self.buffer(op.result(), place)?;
                self.of.insert(op.result(), buffer);
            }
        }
        Ok(())
    }

    /// The buffer of each result, by number; what is read elsewhere too is read there.
    fn results(&mut self) -> Result<Vec<usize>> {
        let mut buffers = Vec::new();
        for (at, result) in self.function.results.iter().enumerate() {
            let buffer = self.buffer(result.value, Place::Result(at))?;
            self.of.entry(result.value).or_insert(buffer);
            buffers.push(buffer);
        }
        Ok(buffers)
    }

    fn run(mut self, outline: Outline, kernels: Vec<Kernel>, results: Vec<usize>) -> Result<Plan> {
        let mut launches = Vec::new();
        let mut locs = Vec::new();
        for launch in &outline.launches {
            let Lowered { tasks, grain, scratch, .. } = &kernels[launch.kernel].lowered;
            let mut buffers = Vec::new();
            for value in &launch.operands {
                buffers.push(self.of[value]);
            }
            for &value in &launch.results {
                buffers.push(self.target(value, &results)?);
            }
            let own = |dim: &Dim| -> Dim {
                dim.substitute(&|symbol| {
                    let number: usize = symbol.as_str()[1..].parse().ok()?;
                    launch.dims.get(number).cloned()
                })
            };
            let dims = launch.dims.iter().map(|dim| self.size(dim)).collect::<Result<_>>()?;
            launches.push(Launch {
                kernel: launch.kernel,
                buffers,
                dims,
                tasks: self.size(&own(tasks))?,
                grain: Size::Const(*grain),
                scratch: self.size(&own(scratch))?,
            });
            locs.push(launch.loc.clone());
        }
        let copies = self.copies(kernels.len(), &results, &mut launches);
        locs.resize(launches.len(), Loc::unknown());
        let program = Program {
            symbols: self.symbols.len(),
            args: self.function.args.len(),
            results: results.len(),
            buffers: self.buffers,
            launches,
        };
        let (constants, symbols) = (self.constants, self.symbols);
        Ok(Plan { program, kernels, copies, constants, symbols, locs })
    }

    /// Where a kernel writes a value: never to an argument or a constant.
    fn target(&mut self, value: Value, results: &[usize]) -> Result<usize> {
        match self.of.get(&value) {
            Some(&at) if matches!(self.buffers[at].place, Place::Result(_) | Place::Temporary) => {
                Ok(at)
            }
            Some(_) => {
                let mut own = self.function.results.iter().zip(results);
                let found = own.find(|(result, _)| result.value == value);
                Ok(*found.expect("only results are written again").1)
            }
            None => {
                let at = self.buffer(value, Place::Temporary)?;
                self.of.insert(value, at);
                Ok(at)
            }
        }
    }

    /// Copies for results that are another result too.
    fn copies(&self, kernel: usize, results: &[usize], launches: &mut Vec<Launch>) -> bool {
        let own = &self.function.results;
        let mut any = false;
        for (at, result) in own.iter().enumerate() {
            let first = own.iter().position(|r| r.value == result.value).unwrap_or(at);
            if first != at {
                let bytes = self.buffers[results[at]].bytes.clone();
                launches.push(Launch::copy(kernel, results[first], results[at], bytes));
                any = true;
            }
        }
        any
    }
}

/// A dim as the runtime evaluates it, for these symbols in their order.
///
/// Errors: an unknown dim, or one of another symbol.
pub fn size(dim: &Dim, symbols: &[Symbol]) -> Result<Size> {
    let poly = match dim {
        Dim::Const(value) => return Ok(Size::Const(*value)),
        Dim::Unknown => return Diagnostic::new("a dim is unknown when code is made").err(),
        Dim::Expr(poly) => poly,
    };
    let mut total = Size::Const(0);
    for (monomial, coefficient) in poly.terms() {
        let mut value = Size::Const(*coefficient);
        for (atom, power) in monomial.factors() {
            let factor = atom_size(atom, symbols)?;
            for _ in 0..*power {
                value = value * factor.clone();
            }
        }
        total = total + value;
    }
    Ok(total)
}

fn atom_size(atom: &Atom, symbols: &[Symbol]) -> Result<Size> {
    if let Atom::Symbol(symbol) = atom {
        return match symbols.iter().position(|s| s == symbol) {
            Some(at) => Ok(Size::Symbol(at)),
            None => Diagnostic::new(format!("no argument shows the dim `{symbol}` by itself"))
                .hint("give the shapes of the model's inputs with `shapes=`")
                .err(),
        };
    }
    let operands = atom.operands().iter().map(|dim| size(dim, symbols));
    let operands = operands.collect::<Result<Vec<Size>>>()?;
    let join = |a: Size, b: Size| match atom {
        Atom::FloorDiv(_) => a.floor_div(b),
        Atom::Mod(_) => a.modulo(b),
        Atom::Min(_) => a.min(b),
        Atom::Max(_) | Atom::Symbol(_) => a.max(b),
    };
    Ok(operands.into_iter().reduce(join).unwrap_or(Size::Const(0)))
}
