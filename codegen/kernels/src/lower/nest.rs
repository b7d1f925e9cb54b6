//! Emits the computation of tensor elements on demand: [`Nest::pull`] computes any value of a
//! kernel at any index.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::{Access, Pieces};
use mithril_ir::op::{self, Meaning};
use mithril_ir::scalar::Scalar;
use mithril_ir::scalar::expr;
use rustc_hash::{FxHashMap, FxHashSet};

use super::ix::{Address, Index, Ix};
use crate::builder::Builder;
use crate::code::{Mem, V};
use crate::isa::Isa;
use crate::loops::Loops;

/// The state of lowering one kernel.
pub struct Nest<'f> {
    pub f: &'f Function,
    pub b: Builder,
    /// The number of elements in a vector.
    pub lanes: u32,
    /// The mask of the lanes that are in range, or `None` if all are.
    pub mask: Option<V>,
    /// Indices that are known to be multiples of `lanes`. Constants are not listed.
    pub multiples: FxHashSet<V>,
    pub results: Vec<Mem>,
    args: Vec<Mem>,
    pub definitions: Vec<Option<u32>>,
    /// The elements that have been computed, by open region, innermost last.
    memo: Vec<FxHashMap<(Value, Index), V>>,
    /// Values of the current row that are kept in scratch memory.
    pub kept: FxHashMap<Value, Kept>,
    /// Memory that is written with streaming stores.
    pub streamed: Vec<Mem>,
    pub fault: Option<Box<Diagnostic>>,
}

/// A value of one row that is kept in scratch memory.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub mem: Mem,
    /// The axis along the row. Its index is the address in `mem`.
    pub axis: usize,
    /// Whether the row has been stored, so that its elements are loaded instead of computed.
    pub stored: bool,
}

pub use crate::scalar::register_dtype;
use crate::scalar::{from_memory, to_memory};

impl<'f> Nest<'f> {
    /// Starts the lowering of a kernel. Its buffers are the arguments, then the results.
    pub fn new(f: &'f Function, isa: &Isa) -> Nest<'f> {
        let mut b = Builder::new(f.args.len() + f.results.len(), symbol_count(f)).for_isa(isa);
        let args = f.arguments().map(|(v, _)| f.ty(v).dtype).enumerate();
        let args: Vec<Mem> = args.map(|(i, dtype)| b.buffer(i, dtype, true)).collect();
        let results = f.results.iter().map(|r| f.ty(r.value).dtype).enumerate();
        let results: Vec<Mem> =
            results.map(|(i, dtype)| b.buffer(args.len() + i, dtype, false)).collect();
        Nest {
            f,
            b,
            lanes: lanes(f, isa),
            mask: None,
            multiples: FxHashSet::default(),
            results,
            args,
            definitions: f.definitions(),
            memo: vec![FxHashMap::default()],
            kept: FxHashMap::default(),
            streamed: Vec::new(),
            fault: None,
        }
    }

    pub fn dims(&self, value: Value) -> &'f [Dim] {
        &self.f.ty(value).shape.dims
    }

    pub fn dtype(&self, value: Value) -> DType {
        self.f.ty(value).dtype
    }

    pub fn definition(&self, value: Value) -> Option<&'f Operation> {
        self.definitions[value.index()].map(|at| &self.f.ops[at as usize])
    }

    /// Returns the memory of an argument, or `None` for other values.
    pub fn arg(&self, value: Value) -> Option<Mem> {
        self.args.get(value.index()).copied()
    }

    /// Runs `body` in a region of its own. Elements computed in the region are not reused after it.
    pub fn scoped<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        self.enter();
        let result = body(self);
        self.leave();
        result
    }

    /// Records the value of an element, so that `pull` reuses it.
    pub fn memoize(&mut self, value: Value, index: Index, v: V) {
        self.memo.last_mut().expect("a region is open").insert((value, index), v);
    }

    pub fn lanes_of(&self, index: &[Ix]) -> u32 {
        if index.iter().all(|ix| ix.is_uniform()) { 1 } else { self.lanes }
    }

    pub fn splat(&mut self, v: V, lanes: u32) -> V {
        self.b.splat(v, lanes)
    }

    /// Emits the computation of the element at an index. Returns a scalar if the index is the same
    /// for all lanes. Otherwise returns a vector, or a scalar if all lanes have the same value.
    pub fn pull(&mut self, value: Value, index: &[Ix]) -> V {
        let key = (value, Index::from(index));
        if let Some(&v) = self.memo.iter().rev().find_map(|known| known.get(&key)) {
            return v;
        }
        let v = match self.kept.get(&value).copied() {
            Some(kept) if kept.stored => self.read_kept(kept, index),
            Some(kept) => {
                let v = self.compute(value, index);
                self.write_kept(kept, index, v)
            }
            None => self.compute(value, index),
        };
        if let Some(op) = self.definition(value) {
            self.b.hint(v, op.op.name);
        }
        self.memoize(value, key.1, v);
        v
    }

    fn read_kept(&mut self, kept: Kept, index: &[Ix]) -> V {
        match index[kept.axis] {
            Ix::Uniform(at) => self.b.load(kept.mem, at, 1, None),
            Ix::Ascending(at) => self.b.load(kept.mem, at, self.lanes, None),
            ix @ (Ix::Descending(_) | Ix::Scattered(_)) => {
                let at = self.as_vector(ix);
                self.b.gather(kept.mem, at, None)
            }
        }
    }

    /// Stores elements of a kept value. Scratch memory is padded to whole vectors, so stores are
    /// unmasked.
    fn write_kept(&mut self, kept: Kept, index: &[Ix], v: V) -> V {
        let v = self.splat(v, self.lanes_of(&index[kept.axis..=kept.axis]));
        match index[kept.axis] {
            Ix::Uniform(at) | Ix::Ascending(at) => self.b.store(kept.mem, at, v, None),
            ix @ (Ix::Descending(_) | Ix::Scattered(_)) => {
                let at = self.as_vector(ix);
                self.b.scatter(kept.mem, at, v, None);
            }
        }
        v
    }

    fn compute(&mut self, value: Value, index: &[Ix]) -> V {
        let Some(op) = self.definition(value) else {
            let mem = self.arg(value).expect("values without operations are arguments");
            return self.read(mem, self.dims(value), index);
        };
        match op.op.access {
            Access::Meaning => match op.op.meaning {
                Meaning::Scalar(_) => self.elementwise(op, index),
                Meaning::Kernel(_) | Meaning::Decompose(_) | Meaning::Call(_) => {
                    self.unsupported(op)
                }
            },
            Access::Constant(constant) => self.constant(op, constant, index),
            Access::View(map) => {
                let place = self.view_operand_index(op, &map(&self.f.view(op)), index);
                self.pull(op.operands[0], &place)
            }
            Access::Pieces(Pieces::Concat) => self.concat(op, index),
            Access::Pieces(Pieces::Pad) => self.pad(op, index),
            Access::Gather(gather) => self.gather(op, gather, index),
            Access::Random(random) => self.random(op, random, index),
            Access::Fold(fold) => self.reduce_at(op, fold, &[index.into()])[0],
            Access::Contract | Access::Scatter(_) | Access::Library(_) => self.unsupported(op),
        }
    }

    /// Records the error that an operation cannot be lowered to loops, and returns a dummy value.
    pub fn unsupported(&mut self, op: &Operation) -> V {
        let fault = Diagnostic::of(
            ErrorKind::Native,
            format!("native code has no loops for `{}`", op.op.name),
        );
        self.fault.get_or_insert_with(|| Box::new(fault));
        let ty = crate::code::Ty::scalar(register_dtype(self.dtype(op.result())));
        self.b.int(ty, 0)
    }

    /// Records the error that a dim is unknown, and returns a dummy value.
    pub fn no_value(&mut self) -> V {
        let fault = Diagnostic::of(ErrorKind::Native, "native code needs the dims of every array")
            .hint("give the shapes of the model's inputs with `shapes=`");
        self.fault.get_or_insert_with(|| Box::new(fault));
        self.b.index(0)
    }

    /// Reads elements of dense memory.
    pub fn read(&mut self, mem: Mem, dims: &[Dim], index: &[Ix]) -> V {
        let v = match self.address(dims, index) {
            // Loads of single elements are masked only if the target may execute them
            // speculatively.
            Address::One(at) => {
                let mask = self.mask.filter(|_| self.b.source().speculates);
                self.b.load(mem, at, 1, mask)
            }
            Address::Ascending(at) => self.b.load(mem, at, self.lanes, self.mask),
            Address::Descending(at) | Address::Scattered(at) if self.lanes == 1 => {
                self.b.load(mem, at, 1, self.mask)
            }
            Address::Descending(at) => self.read_descending(mem, at),
            Address::Scattered(at) => self.b.gather(mem, at, self.mask),
        };
        let dtype = self.b.mem_dtype(mem);
        from_memory(&mut self.b, v, dtype)
    }

    /// Writes elements to dense memory.
    pub fn write(&mut self, mem: Mem, dims: &[Dim], index: &[Ix], v: V) {
        let v = self.splat(v, self.lanes_of(index));
        let dtype = self.b.mem_dtype(mem);
        let v = self.b.convert(v, register_dtype(dtype));
        let v = to_memory(&mut self.b, v, dtype);
        match self.address(dims, index) {
            Address::One(at) => self.b.store(mem, at, v, None),
            Address::Ascending(at) if self.mask.is_none() && self.streamed.contains(&mem) => {
                self.b.stream(mem, at, v);
            }
            Address::Ascending(at) => self.b.store(mem, at, v, self.mask),
            Address::Descending(at) | Address::Scattered(at) if self.lanes == 1 => {
                self.b.store(mem, at, v, self.mask);
            }
            Address::Descending(at) => self.write_descending(mem, at, v),
            Address::Scattered(at) => self.b.scatter(mem, at, v, self.mask),
        }
    }

    /// Loads the element at an address and the ones before it, in descending order.
    fn read_descending(&mut self, mem: Mem, at: V) -> V {
        let (lowest, mask) = self.lowest_lane(at);
        let v = self.b.load(mem, lowest, self.lanes, mask);
        self.reversed(v)
    }

    fn write_descending(&mut self, mem: Mem, at: V, v: V) {
        let (lowest, mask) = self.lowest_lane(at);
        let v = self.reversed(v);
        self.b.store(mem, lowest, v, mask);
    }

    /// Returns the lowest address of descending lanes, which is the last lane's, and the mask in
    /// memory order.
    fn lowest_lane(&mut self, at: V) -> (V, Option<V>) {
        let lowest = self.b.offset(at, 1 - i64::from(self.lanes));
        let mask = self.mask.map(|mask| self.reversed(mask));
        (lowest, mask)
    }

    /// Reverses the lanes of a vector.
    fn reversed(&mut self, v: V) -> V {
        let lanes: Vec<u32> = (0..self.lanes).rev().collect();
        self.b.shuffle(v, v, &lanes)
    }

    /// Maps an index in the result to an index in an operand that is broadcast.
    pub fn broadcast(&mut self, operand: &[Dim], index: &[Ix]) -> Index {
        let lead = index.len() - operand.len();
        let place = |(i, dim): (usize, &Dim)| match dim.as_const() {
            Some(1) => self.zero(),
            _ => index[lead + i],
        };
        operand.iter().enumerate().map(place).collect()
    }

    fn elementwise(&mut self, op: &Operation, index: &[Ix]) -> V {
        let mut args = Vec::with_capacity(op.operands.len());
        for &operand in &op.operands {
            let place = self.broadcast(self.dims(operand), index);
            args.push(self.pull(operand, &place));
        }
        let expr = op::expr(op.op).expect("elementwise operations have an expression");
        let lanes = args.iter().map(|&v| self.b.ty(v).lanes).max().unwrap_or(1);
        let own: Vec<DType> = op.operands.iter().map(|&v| self.dtype(v)).collect();
        let dtype = working_dtype(expr, &own, self.dtype(op.result()));
        let attrs: Vec<Scalar> = op.attrs.iter().map(attr_scalar).collect();
        crate::scalar::expression(&mut self.b, expr, dtype, &own, &args, &attrs, lanes)
    }
}

impl Loops for Nest<'_> {
    type Inner = Builder;

    fn inner(&mut self) -> &mut Builder {
        &mut self.b
    }

    fn enter(&mut self) {
        self.memo.push(FxHashMap::default());
    }

    fn leave(&mut self) {
        self.memo.pop();
    }
}

/// The dtype in which an expression is computed: that of its first value operand, else the
/// result's.
fn working_dtype(expr: &expr::Expr, own: &[DType], result: DType) -> DType {
    let values = own.iter().enumerate();
    let mut values = values.filter(|(i, _)| expr.var_kind(*i as u8) == Some(expr::Kind::Value));
    values.next().map_or(result, |(_, dtype)| *dtype)
}

fn attr_scalar(attr: &Attr) -> Scalar {
    match attr {
        Attr::Float(x) => Scalar::F(*x),
        Attr::Int(x) => Scalar::I(*x),
        Attr::Bool(x) => Scalar::bool(*x),
        _ => Scalar::F(0.0),
    }
}

/// The number of lanes of a vector: the f64 lanes of a register if the function has any f64,
/// otherwise its f32 lanes.
fn lanes(function: &Function, isa: &Isa) -> u32 {
    let double = function.values.iter().any(|info| info.ty.dtype == DType::F64);
    (isa.bytes / if double { 8 } else { 4 }).max(1)
}

/// The number of symbols of a kernel: one more than the largest symbol number.
pub fn symbol_count(f: &Function) -> usize {
    let mut count = 0;
    let mut note = |symbol: &Symbol| count = count.max(symbol.number().map_or(0, |n| n + 1));
    for info in &f.values {
        info.ty.shape.for_each_symbol(&mut note);
        let known = info.known.iter().flat_map(|known| known.iter());
        known.for_each(|dim| dim.for_each_symbol(&mut note));
    }
    for attr in f.ops.iter().flat_map(|op| &op.attrs) {
        if let Attr::Shape(shape) = attr {
            shape.for_each_symbol(&mut note);
        }
    }
    count
}
