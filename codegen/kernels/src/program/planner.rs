//! Builds a plan: collects kernels, buffers and launches.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::graph::{Function, Module, Value, ValueInfo};
use mithril_ir::loc::Loc;
use mithril_ir::naming::ValueNames;
use mithril_ir::shape::Type;
use mithril_ir::tensor::Tensor;
use mithril_passes::outline::{self, Outline, Step, outline};
use mithril_runtime::program::{Buffer, Launch, Loop, Place, Program};
use mithril_runtime::size::Size;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Constant, Kernel, Plan, in_caller_symbols, size};
use crate::isa::Isa;
use crate::library;
use crate::lower::packing::Packing;
use crate::lower::{Lowered, lower, packing};

/// The maximum number of elements of a value, which is more than any memory holds. Small multiples
/// of it do not overflow.
const MAX_ELEMENTS: i64 = 1 << 42;

/// Stands for the runtime's copy kernel until the number of kernels is known.
const COPY: usize = usize::MAX;

pub fn plan(module: &Module, function: &Function, isa: &Isa) -> Result<Plan> {
    module.functions.values().map(|own| &**own).chain([function]).try_for_each(fits)?;
    let mut planner = Planner::new(module, symbols(function));
    let mut scope = Scope::new(&mut planner, function, *isa);
    for (at, (value, _)) in function.arguments().enumerate() {
        let buffer = scope.buffer(value, Place::Argument(at))?;
        scope.bind_buffer(value, buffer);
    }
    for (at, result) in function.results.iter().enumerate() {
        let buffer = scope.buffer(result.value, Place::Result(at))?;
        scope.add_result(result.value, buffer);
    }
    scope.run()?;
    Ok(planner.finish(function))
}

/// Returns the symbols that are whole dims in the arguments' shapes.
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

/// Checks the sizes of all values of a function.
///
/// Errors: the known dims of a value alone give more elements than any memory holds.
pub fn fits(function: &Function) -> Result<()> {
    let count = |ty: &Type| {
        let mut dims = ty.shape.dims.iter().filter_map(Dim::as_const);
        dims.try_fold(1i64, |count, dim| count.checked_mul(dim.max(1)))
    };
    let large = |info: &ValueInfo| count(&info.ty).is_none_or(|count| count > MAX_ELEMENTS);
    let Some(at) = function.values.iter().position(large) else {
        return Ok(());
    };
    let value = Value(at as u32);
    let error =
        Diagnostic::of(ErrorKind::Memory, "a value has more elements than any memory holds")
            .got(function.ty(value))
            .expected(format!("at most {MAX_ELEMENTS} elements"));
    let made = function.ops.iter().find(|op| op.results().any(|result| result == value));
    let block = made.and_then(|op| op.loc.shortest()).map(|path| format!("block `{path}`"));
    let argument = function.arguments().find(|(own, _)| *own == value);
    let argument = argument.map(|(_, own)| format!("the {} `{}`", own.role.name(), own.name));
    let place = block.or(argument);
    error.at(place.unwrap_or_else(|| format!("function `{}`", function.name))).err()
}

/// The state that the function and those that it calls share.
pub struct Planner<'m> {
    pub module: &'m Module,
    symbols: Vec<Symbol>,
    buffers: Vec<Buffer>,
    constants: Vec<Constant>,
    pub kernels: Vec<Kernel>,
    /// The numbers of kernels that reduce partial results of other kernels, by their text.
    second_kernels: FxHashMap<String, usize>,
    pub launches: Vec<Launch>,
    pub loops: Vec<Loop>,
    locs: Vec<Loc>,
    launch_names: Vec<Arc<str>>,
    buffer_names: Vec<Arc<str>>,
}

impl Planner<'_> {
    fn new(module: &Module, symbols: Vec<Symbol>) -> Planner<'_> {
        Planner {
            module,
            symbols,
            buffers: Vec::new(),
            constants: Vec::new(),
            kernels: Vec::new(),
            second_kernels: FxHashMap::default(),
            launches: Vec::new(),
            loops: Vec::new(),
            locs: Vec::new(),
            launch_names: Vec::new(),
            buffer_names: Vec::new(),
        }
    }

    pub fn add_buffer(&mut self, bytes: Size, place: Place, name: &str) -> usize {
        self.buffers.push(Buffer { bytes, place });
        self.buffer_names.push(name.into());
        self.buffers.len() - 1
    }

    fn constant(&mut self, constant: Constant) -> usize {
        let (bytes, place) = (constant.bytes(), Place::Constant(self.constants.len()));
        self.constants.push(constant);
        self.add_buffer(Size::Const(bytes as i64), place, "constant")
    }

    pub fn bytes(&self, ty: &Type) -> Result<Size> {
        let count: Dim = ty.shape.dims.iter().cloned().product();
        Ok(self.size(&count)? * ty.dtype.bytes() as i64)
    }

    pub fn size(&self, dim: &Dim) -> Result<Size> {
        size(dim, &self.symbols)
    }

    /// Adds a launch that copies a whole buffer.
    pub fn copy(&mut self, from: usize, to: usize) {
        let bytes = self.buffers[to].bytes.clone();
        self.launches.push(Launch::copy(COPY, from, to, bytes));
    }

    /// Sets the blocks and the name of the most recently added launches.
    pub fn locate(&mut self, loc: &Loc, name: &str) {
        self.locs.resize(self.launches.len(), loc.clone());
        self.launch_names.resize(self.launches.len(), name.into());
    }

    /// Returns the number of a kernel that reduces partial results of another kernel. Adds it if it
    /// is new.
    fn second_kernel(&mut self, kernel: &outline::Kernel, isa: &Isa) -> Result<usize> {
        let text = kernel.to_string();
        if let Some(&number) = self.second_kernels.get(&text) {
            return Ok(number);
        }
        let lowered = lower(kernel, isa, None)?;
        self.kernels.push(Kernel { outlined: kernel.clone(), lowered, external: None });
        self.second_kernels.insert(text, self.kernels.len() - 1);
        Ok(self.kernels.len() - 1)
    }

    /// Adds a launch of a kernel on buffers. `dims` are in the function's symbols.
    pub fn launch(&mut self, kernel: usize, buffers: Vec<usize>, dims: &[Dim]) -> Result<()> {
        let Lowered { tasks, grain, scratch, .. } = &self.kernels[kernel].lowered;
        self.launches.push(Launch {
            kernel,
            buffers,
            dims: dims.iter().map(|dim| self.size(dim)).collect::<Result<_>>()?,
            tasks: self.size(&in_caller_symbols(tasks, dims))?,
            grain: Size::Const(*grain),
            scratch: self.size(&in_caller_symbols(scratch, dims))?,
        });
        Ok(())
    }

    /// Moves kernels with user-written bodies after the other kernels, which are compiled together.
    fn order(&mut self) {
        let is_external = |kernel: &Kernel| kernel.external.is_some();
        let mut order: Vec<usize> = (0..self.kernels.len()).collect();
        order.sort_by_key(|&at| is_external(&self.kernels[at]));
        for launch in self.launches.iter_mut().filter(|launch| launch.kernel != COPY) {
            let place = order.iter().position(|&at| at == launch.kernel);
            launch.kernel = place.expect("each kernel has one place");
        }
        self.kernels.sort_by_key(is_external);
    }

    fn finish(mut self, function: &Function) -> Plan {
        self.locate(&Loc::unknown(), "copy");
        if self.kernels.iter().any(|kernel| kernel.external.is_some()) {
            self.order();
        }
        let mut copies = false;
        for launch in self.launches.iter_mut().filter(|launch| launch.kernel == COPY) {
            launch.kernel = self.kernels.len();
            copies = true;
        }
        let Planner { symbols, buffers, constants, kernels, launches, loops, .. } = self;
        let program = Program {
            symbols: symbols.len(),
            args: function.args.len(),
            results: function.results.len(),
            buffers,
            launches,
            loops,
            separate: false,
        };
        let Planner { locs, launch_names, buffer_names, .. } = self;
        Plan { program, kernels, copies, constants, symbols, locs, launch_names, buffer_names }
    }
}

/// A function that is being planned: that of the program, or one that control flow calls.
pub struct Scope<'p, 'm, 'f> {
    pub planner: &'p mut Planner<'m>,
    pub function: &'f Function,
    pub isa: Isa,
    names: ValueNames<'f>,
    /// The buffer from which each value is read.
    sources: FxHashMap<Value, usize>,
    /// The values that are literals.
    literals: FxHashMap<Value, &'f Tensor>,
    /// The literals and arguments, which no kernel writes.
    read_only: FxHashSet<Value>,
    /// The buffers of packed literals.
    packed: FxHashMap<(Value, Packing), usize>,
    /// The numbers of lowered kernels, by number in the outline and whether an argument is packed.
    numbers: FxHashMap<(usize, bool), usize>,
    /// The buffer of each result, and the first result buffer of each value.
    results: Vec<usize>,
    result_buffers: FxHashMap<Value, usize>,
}

impl<'p, 'm, 'f> Scope<'p, 'm, 'f> {
    /// Starts the plan of a function. Kernels may use the instructions of `isa`.
    pub fn new(
        planner: &'p mut Planner<'m>,
        function: &'f Function,
        isa: Isa,
    ) -> Scope<'p, 'm, 'f> {
        let literals: FxHashMap<Value, &Tensor> =
            (function.ops.iter().filter_map(|op| match op.attrs.first() {
                Some(Attr::Tensor(tensor)) => Some((op.result(), &**tensor)),
                _ => None,
            }))
            .collect();
        Scope {
            planner,
            function,
            isa,
            names: ValueNames::of(function),
            sources: FxHashMap::default(),
            read_only: literals.keys().copied().collect(),
            literals,
            packed: FxHashMap::default(),
            numbers: FxHashMap::default(),
            results: Vec::new(),
            result_buffers: FxHashMap::default(),
        }
    }

    pub fn buffer(&mut self, value: Value, place: Place) -> Result<usize> {
        let bytes = self.planner.bytes(self.function.ty(value))?;
        Ok(self.planner.add_buffer(bytes, place, &self.names.value(value)))
    }

    /// Sets the buffer of an argument.
    pub fn bind_buffer(&mut self, argument: Value, buffer: usize) {
        self.sources.insert(argument, buffer);
        self.read_only.insert(argument);
    }

    /// Declares that an argument always has the value of a literal.
    pub fn bind_literal(&mut self, argument: Value, literal: &'f Tensor) {
        self.literals.insert(argument, literal);
    }

    pub fn literal(&self, value: Value) -> Option<&'f Tensor> {
        self.literals.get(&value).copied()
    }

    /// Sets the buffer of the next result. If the value already has a buffer, it is still read from
    /// there.
    pub fn add_result(&mut self, value: Value, buffer: usize) {
        if self.literals.contains_key(&value) {
            self.source(value);
        }
        self.sources.entry(value).or_insert(buffer);
        self.results.push(buffer);
        self.result_buffers.entry(value).or_insert(buffer);
    }

    /// Returns the buffer from which a value is read. A literal gets a buffer on its first use.
    pub fn source(&mut self, value: Value) -> usize {
        if let Some(&buffer) = self.sources.get(&value) {
            return buffer;
        }
        let tensor = self.literals.get(&value).expect("only literals are not made before");
        let buffer = self.planner.constant((*tensor).clone().into());
        self.sources.insert(value, buffer);
        buffer
    }

    fn packed(&mut self, value: Value, packing: &Packing) -> usize {
        let key = (value, packing.clone());
        if let Some(&buffer) = self.packed.get(&key) {
            return buffer;
        }
        let (tensor, packing) = (self.literals[&value].clone(), Some(packing.clone()));
        let buffer = self.planner.constant(Constant { tensor, packing });
        self.packed.insert(key, buffer);
        buffer
    }

    /// Adds the launches of the function.
    ///
    /// Errors: an operation has no loops; a dim cannot be derived from the arguments.
    pub fn run(&mut self) -> Result<()> {
        let outline = outline(self.function, library::kernel)?;
        for step in &outline.steps {
            match step {
                Step::Launch(launch) => {
                    self.launch(&outline, launch)?;
                    let name = self.names.code(&launch.operands, &launch.results);
                    self.planner.locate(&launch.loc, &name);
                }
                Step::Control(at) => self.control(&self.function.ops[*at])?,
                Step::Call(at) => self.call(&self.function.ops[*at])?,
            }
        }
        self.copies();
        Ok(())
    }

    fn number(
        &mut self,
        outline: &Outline,
        kernel: usize,
        packing: Option<&Packing>,
    ) -> Result<usize> {
        let key = (kernel, packing.is_some());
        if let Some(&number) = self.numbers.get(&key) {
            return Ok(number);
        }
        let kernel = &outline.kernels[kernel];
        let lowered = lower(kernel, &self.isa, packing)?;
        let kernels = &mut self.planner.kernels;
        kernels.push(Kernel { outlined: kernel.clone(), lowered, external: None });
        self.numbers.insert(key, kernels.len() - 1);
        Ok(kernels.len() - 1)
    }

    /// Adds a launch of the outline, and the launches that reduce its partial results.
    fn launch(&mut self, outline: &Outline, launch: &outline::Launch) -> Result<()> {
        let packing = packing(&outline.kernels[launch.kernel], &self.isa);
        let packing = packing.filter(|p| self.literals.contains_key(&launch.operands[p.arg]));
        let kernel = self.number(outline, launch.kernel, packing.as_ref())?;
        let mut buffers = Vec::new();
        for (at, &value) in launch.operands.iter().enumerate() {
            buffers.push(match packing.as_ref().filter(|packing| packing.arg == at) {
                Some(packing) => self.packed(value, packing),
                None => self.source(value),
            });
        }
        for &value in &launch.results {
            buffers.push(self.target(value)?);
        }
        let own = |dim: &Dim| in_caller_symbols(dim, &launch.dims);
        let mut second_kernels = Vec::new();
        for partial in self.planner.kernels[kernel].lowered.partials.clone() {
            let place = &mut buffers[launch.operands.len() + partial.result];
            let bytes = self.planner.size(&own(&partial.bytes))?;
            let sums = self.planner.add_buffer(bytes, Place::Temporary, "partial_sums");
            let pair = vec![sums, *place];
            *place = pair[0];
            let rest = self.planner.second_kernel(&partial.second, &self.isa)?;
            second_kernels.push((rest, pair, [own(&partial.count), own(&partial.length)]));
        }
        self.planner.launch(kernel, buffers, &launch.dims)?;
        for (kernel, pair, dims) in second_kernels {
            let count = self.planner.kernels[kernel].lowered.code.dims as usize;
            self.planner.launch(kernel, pair, &dims[..count])?;
        }
        Ok(())
    }

    /// Returns the buffer to which a value is written. It is never that of an argument or a
    /// literal.
    pub fn target(&mut self, value: Value) -> Result<usize> {
        if self.read_only.contains(&value) {
            return Ok(*self.result_buffers.get(&value).expect("only results are written again"));
        }
        if let Some(&at) = self.sources.get(&value) {
            return Ok(at);
        }
        let at = self.buffer(value, Place::Temporary)?;
        self.sources.insert(value, at);
        Ok(at)
    }

    /// Adds copies for values that are returned more than once.
    fn copies(&mut self) {
        let mut known: FxHashMap<Value, usize> = FxHashMap::default();
        for (at, result) in self.function.results.iter().enumerate() {
            let first = *known.entry(result.value).or_insert(at);
            if first != at {
                self.planner.copy(self.results[first], self.results[at]);
            }
        }
    }
}
