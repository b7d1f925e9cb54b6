//! From a function to a program of the runtime: which kernels there are, and on which memory they
//! are launched.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::{Atom, Dim, Symbol};
use mithril_ir::graph::{Function, Module, Value};
use mithril_ir::loc::Loc;
use mithril_ir::shape::Type;
use mithril_ir::tensor::Tensor;
use mithril_ir::text;
use mithril_passes::cost::{self, Cost};
use mithril_passes::outline::{self, Outline};
use mithril_runtime::program::{Buffer, Launch, Place, Program};
use mithril_runtime::size::Size;
use rustc_hash::FxHashMap;

use crate::lower::packing::Packing;
use crate::lower::{Isa, Lowered, lower, packing};
use crate::mlir;

/// A kernel to be compiled.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub function: Function,
    pub lowered: Lowered,
}

impl Kernel {
    /// What one launch of it costs, for these dims.
    ///
    /// Errors: a composite whose decomposition fails.
    pub fn cost(&self, dims: &[Dim]) -> Result<Cost> {
        let Cost { flops, bytes } = cost::of_kernel(&self.function)?;
        Ok(Cost { flops: outside(&flops, dims), bytes: outside(&bytes, dims) })
    }

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

impl Plan {
    /// What a launch costs, in the symbols of the program where its dims are those.
    ///
    /// Errors: those of [`Kernel::cost`].
    pub fn cost(&self, launch: &Launch) -> Result<Cost> {
        let dim = |(at, size): (usize, &Size)| match size {
            Size::Const(size) => Dim::Const(*size),
            Size::Symbol(symbol) => Dim::symbol(self.symbols[*symbol].clone()),
            _ => Dim::symbol(format!("d{at}").as_str()),
        };
        let dims: Vec<Dim> = launch.dims.iter().enumerate().map(dim).collect();
        self.kernels[launch.kernel].cost(&dims)
    }
}

/// The program of a function that was legalized for native code and calls no other.
///
/// Errors: operations without loops; dims that no argument shows.
pub fn plan(function: &Function, isa: &Isa) -> Result<Plan> {
    let outline = outline::outline(function)?;
    let mut planner = Planner {
        function,
        symbols: symbols(function),
        buffers: Vec::new(),
        of: FxHashMap::default(),
        literals: literals(function),
        packed: FxHashMap::default(),
        constants: Vec::new(),
    };
    planner.arguments()?;
    let results = planner.results()?;
    planner.run(outline, isa, results)
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

/// The values that are literals.
fn literals(function: &Function) -> FxHashMap<Value, &Tensor> {
    let tensors = function.ops.iter().filter_map(|op| match op.attrs.first() {
        Some(Attr::Tensor(tensor)) => Some((op.result(), tensor)),
        _ => None,
    });
    tensors.collect()
}

/// The kernels of an outline, each lowered when it is first launched; once more where arguments are
/// packed.
struct Kernels<'o> {
    outline: &'o Outline,
    isa: &'o Isa,
    made: Vec<Kernel>,
    numbers: FxHashMap<(usize, bool), usize>,
    /// Kernels that finish the results of others, by their texts.
    rests: FxHashMap<String, usize>,
}

impl Kernels<'_> {
    fn number(&mut self, kernel: usize, packing: Option<&Packing>) -> Result<usize> {
        let key = (kernel, packing.is_some());
        if let Some(&number) = self.numbers.get(&key) {
            return Ok(number);
        }
        let function = self.outline.kernels[kernel].clone();
        let lowered = lower(&function, self.isa, packing)?;
        self.made.push(Kernel { function, lowered });
        self.numbers.insert(key, self.made.len() - 1);
        Ok(self.made.len() - 1)
    }

    /// The kernel that finishes a result of another.
    fn rest(&mut self, function: &Function) -> Result<usize> {
        let text = text::print(&Module::of(function.clone()));
        if let Some(&number) = self.rests.get(&text) {
            return Ok(number);
        }
        let lowered = lower(function, self.isa, None)?;
        self.made.push(Kernel { function: function.clone(), lowered });
        self.rests.insert(text, self.made.len() - 1);
        Ok(self.made.len() - 1)
    }
}

/// A dim of a kernel, whose symbols `d0`, `d1`, … are these dims.
fn outside(dim: &Dim, dims: &[Dim]) -> Dim {
    dim.substitute(&|symbol| dims.get(symbol.as_str()[1..].parse::<usize>().ok()?).cloned())
}

struct Planner<'f> {
    function: &'f Function,
    symbols: Vec<Symbol>,
    buffers: Vec<Buffer>,
    /// Where each value is read.
    of: FxHashMap<Value, usize>,
    literals: FxHashMap<Value, &'f Tensor>,
    /// Where literals are read that were packed.
    packed: FxHashMap<(Value, Packing), usize>,
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
        Ok(())
    }

    /// The buffer of a value that is read; literals get theirs when they first are.
    fn source(&mut self, value: Value) -> usize {
        if let Some(&buffer) = self.of.get(&value) {
            return buffer;
        }
        let tensor = self.literals.get(&value).expect("only literals are not made before");
        let buffer = self.constant((*tensor).clone());
        self.of.insert(value, buffer);
        buffer
    }

    fn packed(&mut self, value: Value, packing: &Packing) -> usize {
        let key = (value, packing.clone());
        if let Some(&buffer) = self.packed.get(&key) {
            return buffer;
        }
        let buffer = self.constant(packing.pack(self.literals[&value]));
        self.packed.insert(key, buffer);
        buffer
    }

    fn constant(&mut self, tensor: Tensor) -> usize {
        let (bytes, place) = (tensor.bytes().len(), Place::Constant(self.constants.len()));
        self.constants.push(tensor);
        self.buffers.push(Buffer { bytes: Size::Const(bytes as i64), place });
        self.buffers.len() - 1
    }

    /// The buffer of each result, by number; what is read elsewhere too is read there.
    fn results(&mut self) -> Result<Vec<usize>> {
        let mut buffers = Vec::new();
        for (at, result) in self.function.results.iter().enumerate() {
            if self.literals.contains_key(&result.value) {
                self.source(result.value);
            }
            let buffer = self.buffer(result.value, Place::Result(at))?;
            self.of.entry(result.value).or_insert(buffer);
            buffers.push(buffer);
        }
        Ok(buffers)
    }

    fn run(mut self, outline: Outline, isa: &Isa, results: Vec<usize>) -> Result<Plan> {
        let mut launches = Vec::new();
        let mut locs = Vec::new();
        let (numbers, rests) = (FxHashMap::default(), FxHashMap::default());
        let mut kernels = Kernels { outline: &outline, isa, made: Vec::new(), numbers, rests };
        for launch in &outline.launches {
            self.launch(launch, &mut kernels, &results, &mut launches)?;
            locs.resize(launches.len(), launch.loc.clone());
        }
        let kernels = kernels.made;
        let copies = self.copies(kernels.len(), &results, &mut launches);
        locs.resize(launches.len(), Loc::unknown());
        let program = Program {
            symbols: self.symbols.len(),
            args: self.function.args.len(),
            results: results.len(),
            buffers: self.buffers,
            launches,
            apart: false,
        };
        let (constants, symbols) = (self.constants, self.symbols);
        Ok(Plan { program, kernels, copies, constants, symbols, locs })
    }

    /// One launch of the outline, and those that finish its results.
    fn launch(
        &mut self,
        launch: &outline::Launch,
        kernels: &mut Kernels,
        results: &[usize],
        launches: &mut Vec<Launch>,
    ) -> Result<()> {
        let packing = packing(&kernels.outline.kernels[launch.kernel], kernels.isa);
        let packing = packing.filter(|p| self.literals.contains_key(&launch.operands[p.arg]));
        let kernel = kernels.number(launch.kernel, packing.as_ref())?;
        let mut buffers = Vec::new();
        for (at, &value) in launch.operands.iter().enumerate() {
            buffers.push(match packing.as_ref().filter(|packing| packing.arg == at) {
                Some(packing) => self.packed(value, packing),
                None => self.source(value),
            });
        }
        for &value in &launch.results {
            buffers.push(self.target(value, results)?);
        }
        let own = |dim: &Dim| outside(dim, &launch.dims);
        let mut rests = Vec::new();
        for partial in kernels.made[kernel].lowered.partials.clone() {
            let place = &mut buffers[launch.operands.len() + partial.result];
            let bytes = self.size(&own(&partial.bytes))?;
            self.buffers.push(Buffer { bytes, place: Place::Temporary });
            let pair = vec![self.buffers.len() - 1, *place];
            *place = pair[0];
            rests.push((
                kernels.rest(&partial.rest)?,
                pair,
                [own(&partial.count), own(&partial.length)],
            ));
        }
        let lowered = &kernels.made[kernel].lowered;
        launches.push(self.one(lowered, kernel, buffers, &launch.dims)?);
        for (kernel, pair, dims) in rests {
            let lowered = &kernels.made[kernel].lowered;
            let dims = &dims[..lowered.code.dims as usize];
            launches.push(self.one(lowered, kernel, pair, dims)?);
        }
        Ok(())
    }

    /// A launch of a kernel on buffers, with what its dims are in the function.
    fn one(
        &self,
        lowered: &Lowered,
        kernel: usize,
        buffers: Vec<usize>,
        dims: &[Dim],
    ) -> Result<Launch> {
        Ok(Launch {
            kernel,
            buffers,
            dims: dims.iter().map(|dim| self.size(dim)).collect::<Result<_>>()?,
            tasks: self.size(&outside(&lowered.tasks, dims))?,
            grain: Size::Const(lowered.grain),
            scratch: self.size(&outside(&lowered.scratch, dims))?,
        })
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
