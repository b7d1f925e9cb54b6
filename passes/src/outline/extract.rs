//! Extracts groups as functions. Each includes the views it reads through, and names are canonical,
//! so that equal kernels compare equal.

use indexmap::IndexSet;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::graph::{Argument, Function, Operation, ResultDef, Role, Value, ValueInfo};
use mithril_ir::loc::Loc;
use mithril_ir::op::Gradient;
use mithril_ir::op::access::{Access, Constant, Random};
use mithril_ir::shape::{Shape, Type};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::cuts::{self, Cut};
use super::group::Grouped;
use super::schedule::{LoopNest, Schedule};
use super::{Kernel, Launch, Outline, Step, is_call};

/// The kernels of the groups, and a copy kernel for each result that no group computes.
pub fn extract(function: &Function, grouped: &Grouped) -> Result<Outline> {
    let groups = &grouped.groups;
    let definitions = function.definitions();
    let mut kernels = Vec::new();
    let readers_of = read_outside(function, &definitions, grouped);
    for (at, group) in groups.iter().enumerate() {
        if let Some(&op) = group.ops.first().filter(|&&op| is_call(&function.ops[op])) {
            kernels.push(Extracted::Step(match function.ops[op].op.gradient {
                Gradient::Scan | Gradient::Branches | Gradient::While => Step::Control(op),
                _ => Step::Call(op),
            }));
            continue;
        }
        let mut kernel = Extraction::new(function, &definitions, &grouped.views);
        kernel.group.extend(&group.ops);
        for &op in &group.ops {
            kernel.operation(op);
        }
        let results = group.ops.iter().flat_map(|&op| function.ops[op].results());
        let outside = |v: &Value| readers_of[v.index()].is_some_and(|by| by != at);
        let results: Vec<Value> = results.filter(outside).collect();
        kernel.schedule = group.schedule(function, &grouped.windowed, &kernel.ops, &results);
        kernel.find_cuts();
        kernels.push(Extracted::Kernel(kernel.into(), results));
    }
    for value in copies(function, &definitions, grouped) {
        let mut kernel = Extraction::new(function, &definitions, &grouped.views);
        kernel.value(value);
        kernel.schedule = Schedule::Loops(LoopNest::over(&function.ty(value).shape.dims));
        kernel.find_cuts();
        kernels.push(Extracted::Kernel(kernel.into(), vec![value]));
    }
    Ok(steps(kernels))
}

enum Extracted<'f> {
    /// A kernel and its results.
    Kernel(Box<Extraction<'f>>, Vec<Value>),
    /// A step without a kernel of its own.
    Step(Step),
}

/// If at least this many kernels differ only in slice positions, they are shared and the launch
/// supplies the positions.
const MIN_VARIANTS: usize = 8;

/// Deduplicates the kernels, and makes the steps that launch them.
fn steps(extracted: Vec<Extracted>) -> Outline {
    let mut outline = Outline { kernels: Vec::new(), steps: Vec::new() };
    let mut known = FxHashMap::default();
    let mut variants: FxHashMap<String, FxHashSet<String>> = FxHashMap::default();
    for step in &extracted {
        if let Extracted::Kernel(kernel, results) = step
            && !kernel.cuts.is_empty()
        {
            let [symbolic, fixed] =
                [true, false].map(|symbolic| kernel.keyed(results, symbolic).key);
            variants.entry(symbolic).or_default().insert(fixed);
        }
    }
    for step in extracted {
        match step {
            Extracted::Step(step) => outline.steps.push(step),
            Extracted::Kernel(kernel, results) => {
                let symbolic = Some(&kernel.cuts).filter(|cuts| !cuts.is_empty());
                let symbolic = symbolic.map(|_| kernel.keyed(&results, true));
                let many = |symbolic: &KeyedKernel| variants[&symbolic.key].len() >= MIN_VARIANTS;
                let keyed = symbolic.filter(many).unwrap_or_else(|| kernel.keyed(&results, false));
                kernel.launch(keyed, results, &mut outline, &mut known);
            }
        }
    }
    outline
}

/// The reader of each value: none, one group, or MANY for several groups or the caller.
fn read_outside(
    function: &Function,
    definitions: &[Option<u32>],
    grouped: &Grouped,
) -> Vec<Option<usize>> {
    const MANY: usize = usize::MAX;
    let mut readers_of = vec![None; function.values.len()];
    let mut add_reader = |value: Value, by: usize| {
        let mut worklist = vec![value];
        while let Some(value) = worklist.pop() {
            let slot: &mut Option<usize> = &mut readers_of[value.index()];
            *slot = match *slot {
                None => Some(by),
                Some(other) if other == by => Some(by),
                Some(_) => Some(MANY),
            };
            if let Some(at) = definitions[value.index()] {
                let op = &function.ops[at as usize];
                if grouped.views[at as usize] {
                    worklist.extend(op.operands.iter().copied());
                }
            }
        }
    };
    for (at, group) in grouped.groups.iter().enumerate() {
        let operands = group.ops.iter().flat_map(|&op| function.ops[op].operands.iter());
        operands.for_each(|&operand| add_reader(operand, at));
    }
    function.results.iter().for_each(|result| add_reader(result.value, MANY));
    readers_of
}

/// Results that are arguments, literals or views, each once. They need a copy.
fn copies(function: &Function, definitions: &[Option<u32>], grouped: &Grouped) -> Vec<Value> {
    let mut copies: IndexSet<Value, FxBuildHasher> = IndexSet::default();
    for result in &function.results {
        let computed = definitions[result.value.index()].is_some_and(|at| {
            let op = &function.ops[at as usize];
            let stored = !grouped.views[at as usize];
            stored && !matches!(op.op.access, Access::Constant(Constant::Literal))
        });
        if !computed {
            copies.insert(result.value);
        }
    }
    copies.into_iter().collect()
}

/// A kernel under construction.
struct Extraction<'f> {
    source: &'f Function,
    definitions: &'f [Option<u32>],
    views: &'f [bool],
    /// The operations of the group, without views.
    group: FxHashSet<usize>,
    operands: IndexSet<Value, FxBuildHasher>,
    /// Its operations, including views, in order.
    ops: IndexSet<usize, FxBuildHasher>,
    /// Slices of arguments that nothing else in the kernel reads, by the argument.
    cuts: FxHashMap<Value, usize>,
    /// Dims are those of the source.
    schedule: Schedule,
}

/// A kernel, its text as the key for deduplication, and the values of its symbols.
struct KeyedKernel {
    kernel: Kernel,
    key: String,
    dims: Vec<Dim>,
}

impl<'f> Extraction<'f> {
    fn new(source: &'f Function, definitions: &'f [Option<u32>], views: &'f [bool]) -> Self {
        Extraction {
            source,
            definitions,
            views,
            group: FxHashSet::default(),
            operands: IndexSet::default(),
            ops: IndexSet::default(),
            cuts: FxHashMap::default(),
            schedule: Schedule::Loops(LoopNest::over(&[])),
        }
    }

    /// Adds an operation, after those that compute its operands.
    fn operation(&mut self, at: usize) {
        if self.ops.contains(&at) {
            return;
        }
        let op = &self.source.ops[at];
        op.operands.iter().for_each(|&operand| self.value(operand));
        self.ops.insert(at);
    }

    fn is_view(&self, at: usize) -> bool {
        self.views[at]
    }

    /// Makes a value available: as an argument, or by adding the operation that computes it.
    fn value(&mut self, value: Value) {
        match self.definitions[value.index()] {
            Some(at) if self.group.contains(&(at as usize)) => self.operation(at as usize),
            Some(at) if self.is_view(at as usize) => self.operation(at as usize),
            _ => {
                self.operands.insert(value);
            }
        }
    }

    /// Records the slices whose positions the launch could supply.
    fn find_cuts(&mut self) {
        let mut readers: FxHashMap<Value, u32> = FxHashMap::default();
        let operands = self.ops.iter().flat_map(|&at| &self.source.ops[at].operands);
        operands.for_each(|&operand| *readers.entry(operand).or_default() += 1);
        self.cuts = self
            .ops
            .iter()
            .filter_map(|&at| {
                let op = &self.source.ops[at];
                let operand = *op.operands.first()?;
                let only_reader = self.operands.contains(&operand) && readers[&operand] == 1;
                (only_reader && cuts::is_cut(self.source, op)).then_some((operand, at))
            })
            .collect();
    }

    /// The kernel as a function. With `symbolic`, the launch supplies the positions of its slices.
    fn keyed(&self, results: &[Value], symbolic: bool) -> KeyedKernel {
        let mut naming = Naming::default();
        let function = self.function(results, &mut naming, symbolic);
        let schedule = self.schedule.map_dims(|dim| naming.dim(dim));
        let kernel = Kernel { function, schedule };
        KeyedKernel { key: kernel.to_string(), kernel, dims: naming.dims }
    }

    /// The blocks that the kernel computes. Constants count only if there is nothing else, because
    /// they may be shared by all blocks of the model.
    fn loc(&self) -> Loc {
        let is_constant = |op: &Operation| matches!(op.op.access, Access::Constant(_));
        let ops = || self.ops.iter().map(|&at| &self.source.ops[at]);
        match Loc::union(ops().filter(|op| !is_constant(op)).map(|op| &op.loc)) {
            loc if loc.is_unknown() => Loc::union(ops().map(|op| &op.loc)),
            loc => loc,
        }
    }

    /// Adds the kernel, unless an equal one exists, and its launch.
    fn launch(
        self,
        KeyedKernel { kernel, key, dims }: KeyedKernel,
        results: Vec<Value>,
        outline: &mut Outline,
        known: &mut FxHashMap<String, usize>,
    ) {
        let kernel = *known.entry(key).or_insert_with(|| {
            outline.kernels.push(kernel);
            outline.kernels.len() - 1
        });
        let loc = self.loc();
        let operands = self.operands.into_iter().collect();
        outline.steps.push(Step::Launch(Launch { kernel, operands, results, dims, loc }));
    }

    fn function(&self, results: &[Value], naming: &mut Naming, symbolic: bool) -> Function {
        let mut out = Function::new("kernel");
        let mut map: FxHashMap<Value, Value> = FxHashMap::default();
        let mut cuts: FxHashMap<usize, Cut> = FxHashMap::default();
        for (i, &operand) in self.operands.iter().enumerate() {
            let name: std::sync::Arc<str> = format!("a{i}").into();
            out.args.push(Argument { name, role: Role::Data, donated: false });
            map.insert(operand, Value(out.values.len() as u32));
            let mut info = naming.info(self.source.info(operand));
            if let Some(&at) = self.cuts.get(&operand).filter(|_| symbolic)
                && let (op, whole) = (&self.source.ops[at], &mut info.ty.shape)
                && let Some(cut) = cuts::cut(self.source, op, whole, |n| naming.number(n))
            {
                cuts.insert(at, cut);
            }
            out.values.push(info);
        }
        for &at in &self.ops {
            let op = &self.source.ops[at];
            let first = Value(out.values.len() as u32);
            for (i, value) in op.results().enumerate() {
                map.insert(value, Value(first.0 + i as u32));
                out.values.push(naming.info(self.source.info(value)));
            }
            let mut attrs: SmallVec<_> = op.attrs.iter().map(|a| naming.attr(a)).collect();
            if let Some(cut) = cuts.remove(&at) {
                (attrs[1], attrs[2]) = (cut.starts, cut.limits);
            }
            // The launch supplies the number that is folded into a key, because it differs between
            // random blocks.
            if matches!(op.op.access, Access::Random(Random::KeyFold))
                && let Attr::Int(data) = &attrs[0]
            {
                attrs[0] = Shape::new(vec![naming.number((*data as u32).into())]).into();
            }
            out.ops.push(Operation {
                operands: op.operands.iter().map(|v| map[v]).collect(),
                attrs,
                first,
                loc: Loc::unknown(),
                ..*op
            });
        }
        for (i, value) in results.iter().enumerate() {
            let name = format!("r{i}").into();
            out.results.push(ResultDef { name, value: map[value], state: None });
        }
        out
    }
}

/// Numbers the symbols of a kernel: symbol number `i` stands for `dims[i]`, a dim of the function.
#[derive(Default)]
struct Naming {
    dims: Vec<Dim>,
}

impl Naming {
    fn symbol(&mut self, symbol: &Symbol) -> Dim {
        let symbol = Dim::symbol(symbol.clone());
        let at = self.dims.iter().position(|dim| *dim == symbol);
        let at = at.unwrap_or_else(|| {
            self.dims.push(symbol);
            self.dims.len() - 1
        });
        Dim::symbol(Symbol::numbered(at as u32))
    }

    /// A new symbol that has this value at the launch.
    fn number(&mut self, number: i64) -> Dim {
        self.dims.push(Dim::Const(number));
        Dim::symbol(Symbol::numbered(self.dims.len() as u32 - 1))
    }

    fn dim(&mut self, dim: &Dim) -> Dim {
        if dim.as_const().is_some() {
            return dim.clone();
        }
        let mut names: FxHashMap<Symbol, Dim> = FxHashMap::default();
        dim.for_each_symbol(&mut |symbol| {
            let name = self.symbol(symbol);
            names.insert(symbol.clone(), name);
        });
        dim.substitute(&|symbol| names.get(symbol).cloned())
    }

    fn shape(&mut self, shape: &Shape) -> Shape {
        Shape { lead: shape.lead.clone(), dims: shape.dims.iter().map(|d| self.dim(d)).collect() }
    }

    fn info(&mut self, info: &ValueInfo) -> ValueInfo {
        let known = info.known.as_ref().map(|dims| dims.iter().map(|d| self.dim(d)).collect());
        ValueInfo { ty: Type::new(info.ty.dtype, self.shape(&info.ty.shape)), name: None, known }
    }

    fn attr(&mut self, attr: &Attr) -> Attr {
        match attr {
            Attr::Shape(shape) => self.shape(shape).into(),
            _ => attr.clone(),
        }
    }
}
