//! Builds loop code one statement at a time.

use std::mem::{replace, take};

use mithril_ir::dtype::DType;
use mithril_ir::scalar::round;
use rustc_hash::FxHashMap;

use crate::code::{Binary, Callee, Cmp, Code, Fold, Inst, Mem, Region, Stmt, TileOp, Ty, Unary, V};
use crate::isa::{Isa, Source};

mod algebra;
mod memory;

/// The code of a kernel under construction. Each constant, dim and scratch memory is defined once,
/// at the head of the kernel.
pub struct Builder {
    code: Code,
    head: Vec<Stmt>,
    open: Vec<Vec<Stmt>>,
    constants: FxHashMap<(Ty, u64), V>,
    head_values: FxHashMap<Head, V>,
    /// The numbers of the private functions, by name and argument types.
    functions: FxHashMap<(&'static str, Vec<Ty>), u32>,
    /// The values of integer constants and of float constants.
    int_constants: FxHashMap<V, i64>,
    float_constants: FxHashMap<V, f64>,
    /// The normal forms of 64-bit integers that are sums and products of other values.
    forms: FxHashMap<V, algebra::Form>,
    /// The operands of divisions of 64-bit integers by constants.
    quotients: FxHashMap<V, (V, i64)>,
    /// The dtype of the elements of each memory.
    elements: Vec<DType>,
    isa: Isa,
    /// Whether the code is the definition of a function that code for C calls.
    is_definition: bool,
    /// Whether divisions are as cheap as other arithmetic, because the code waits for memory.
    hides_divisions: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Head {
    Dim(u32),
    First,
    Last,
    Iota(Ty),
}

impl Builder {
    /// Creates the builder of a kernel with this many buffers and dims.
    pub fn new(buffers: usize, dims: usize) -> Builder {
        let code = Code { buffers: buffers as u32, dims: dims as u32, ..Code::default() };
        Builder {
            code,
            head: Vec::new(),
            open: vec![Vec::new()],
            constants: FxHashMap::default(),
            head_values: FxHashMap::default(),
            functions: FxHashMap::default(),
            int_constants: FxHashMap::default(),
            float_constants: FxHashMap::default(),
            forms: FxHashMap::default(),
            quotients: FxHashMap::default(),
            elements: Vec::new(),
            isa: Isa::new(0, 0),
            is_definition: false,
            hides_divisions: false,
        }
    }

    /// Sets the target of the code.
    pub fn for_isa(self, isa: &Isa) -> Builder {
        Builder { isa: *isa, ..self }
    }

    /// Creates the builder of a function that code for C calls: a formula on scalars.
    pub fn definition() -> Builder {
        let source = Source { calls: false, ..Source::C };
        let isa = Isa { source, ..Isa::PORTABLE };
        Builder { isa, is_definition: true, ..Builder::new(0, 0) }
    }

    /// Sets whether memory accesses hide the latency of divisions. If so, a division by the same
    /// number for all lanes is compiled to a division instead of a multiplication by the
    /// reciprocal.
    pub fn set_hides_divisions(&mut self, hides: bool) {
        self.hides_divisions = hides;
    }

    pub fn hides_divisions(&self) -> bool {
        self.hides_divisions
    }

    /// The properties of the target that differ for C.
    pub fn source(&self) -> Source {
        self.isa.source
    }

    /// Adds a parameter to a definition.
    pub fn parameter(&mut self, ty: Ty) -> V {
        self.new_value(ty)
    }

    /// Suggests a name for a value in printed C.
    pub fn hint(&mut self, v: V, what: &'static str) {
        if self.source().speculates {
            self.code.hints.push((v, what));
        }
    }

    /// Names a memory in printed C.
    pub fn name(&mut self, mem: Mem, name: &'static str) {
        self.code.names.push((mem, name));
    }

    pub fn finish(mut self) -> Code {
        self.code.body = self.head;
        self.code.body.append(&mut self.open[0]);
        self.code
    }

    pub fn ty(&self, v: V) -> Ty {
        self.code.ty(v)
    }

    fn new_value(&mut self, ty: Ty) -> V {
        self.code.types.push(ty);
        V(self.code.types.len() as u32 - 1)
    }

    fn push(&mut self, ty: Ty, inst: Inst) -> V {
        let v = self.new_value(ty);
        self.place(vec![v], inst);
        v
    }

    fn place(&mut self, results: Vec<V>, inst: Inst) {
        self.open.last_mut().expect("a region is open").push(Stmt { results, inst });
    }

    fn at_head(&mut self, key: Head, ty: Ty, inst: Inst) -> V {
        if let Some(&v) = self.head_values.get(&key) {
            return v;
        }
        let v = self.new_value(ty);
        self.head.push(Stmt { results: vec![v], inst });
        self.head_values.insert(key, v);
        v
    }

    pub fn dim(&mut self, n: usize) -> V {
        self.at_head(Head::Dim(n as u32), Ty::INDEX, Inst::Dim(n as u32))
    }

    /// The first task to run.
    pub fn first(&mut self) -> V {
        if self.source().all_tasks {
            return self.index(0);
        }
        self.at_head(Head::First, Ty::INDEX, Inst::First)
    }

    /// One past the last task to run.
    pub fn last(&mut self) -> V {
        self.at_head(Head::Last, Ty::INDEX, Inst::Last)
    }

    fn bits(&mut self, ty: Ty, bits: u64) -> V {
        if let Some(&v) = self.constants.get(&(ty, bits)) {
            return v;
        }
        let v = self.new_value(ty);
        self.head.push(Stmt { results: vec![v], inst: Inst::Const(bits) });
        self.constants.insert((ty, bits), v);
        v
    }

    /// A float constant in every lane, rounded to the dtype.
    pub fn number(&mut self, ty: Ty, x: f64) -> V {
        if !ty.dtype.is_float() {
            return self.int(ty, x as i64);
        }
        let rounded = round::round(ty.dtype, x);
        let v = self.bits(ty, round::encode(ty.dtype, rounded));
        self.float_constants.insert(v, rounded);
        v
    }

    /// An integer constant or a bool in every lane. Only the low bits are used.
    pub fn int(&mut self, ty: Ty, x: i64) -> V {
        if ty.dtype.is_float() {
            return self.number(ty, x as f64);
        }
        let v = self.bits(ty, x as u64 & (u64::MAX >> (64 - ty.dtype.bits())));
        self.int_constants.insert(v, x);
        v
    }

    /// An index constant.
    pub fn index(&mut self, x: i64) -> V {
        self.int(Ty::INDEX, x)
    }

    /// Returns the value of `v` if it is an integer constant.
    pub fn constant(&self, v: V) -> Option<i64> {
        self.int_constants.get(&v).copied()
    }

    /// Returns the value of `v` if it is a float constant.
    pub fn constant_number(&self, v: V) -> Option<f64> {
        self.float_constants.get(&v).copied()
    }

    /// The vector 0, 1, 2, … of lane numbers.
    pub fn iota(&mut self, ty: Ty) -> V {
        self.at_head(Head::Iota(ty), ty, Inst::Iota)
    }

    pub fn unary(&mut self, op: Unary, x: V) -> V {
        self.push(self.ty(x), Inst::Unary(op, x))
    }

    pub fn binary(&mut self, op: Binary, x: V, y: V) -> V {
        debug_assert_eq!(self.ty(x), self.ty(y), "{op:?}");
        if let Some(v) = self.fold_constants(op, x, y) {
            return v;
        }
        match op {
            Binary::Add | Binary::Sub | Binary::Mul if algebra::has_form(self.ty(x)) => {
                self.simplified(op, x, y)
            }
            Binary::Div if algebra::has_form(self.ty(x)) => self.quotient(x, y),
            _ => self.push(self.ty(x), Inst::Binary(op, x, y)),
        }
    }

    pub fn add(&mut self, x: V, y: V) -> V {
        self.binary(Binary::Add, x, y)
    }

    pub fn sub(&mut self, x: V, y: V) -> V {
        self.binary(Binary::Sub, x, y)
    }

    pub fn mul(&mut self, x: V, y: V) -> V {
        self.binary(Binary::Mul, x, y)
    }

    pub fn div(&mut self, x: V, y: V) -> V {
        self.binary(Binary::Div, x, y)
    }

    /// Adds a constant to an index.
    pub fn offset(&mut self, x: V, by: i64) -> V {
        let by = self.index(by);
        self.add(x, by)
    }

    /// Multiplies an index by a constant.
    pub fn times(&mut self, x: V, by: i64) -> V {
        let by = self.index(by);
        self.mul(x, by)
    }

    /// `a * b + c`, rounded once. In definitions it is rounded once or twice, because their
    /// formulas tolerate both.
    pub fn fma(&mut self, a: V, b: V, c: V) -> V {
        if self.is_definition {
            return self.mul_add(a, b, c);
        }
        self.push(self.ty(a), Inst::Fma(a, b, c))
    }

    /// See [`Inst::MulAdd`].
    pub fn mul_add(&mut self, a: V, b: V, c: V) -> V {
        self.push(self.ty(a), Inst::MulAdd(a, b, c))
    }

    /// Calls a function whose result has this dtype. See [`Inst::Call`].
    pub fn call(&mut self, callee: Callee, dtype: DType, args: &[V]) -> V {
        self.push(Ty::scalar(dtype), Inst::Call(callee, args.into()))
    }

    /// See [`Inst::Scale`]. Returns `None` if the processor lacks the instruction.
    pub fn scale(&mut self, x: V, n: V) -> Option<V> {
        let ty = self.ty(x);
        self.scales(ty).then(|| self.push(ty, Inst::Scale(x, n)))
    }

    /// Whether [`Inst::Scale`] supports a type. It supports 64-byte vectors, but not wider ones,
    /// such as those of f32 vectors that are computed in f64.
    pub fn scales(&self, ty: Ty) -> bool {
        self.isa.extensions.scales && ty.lanes as usize * ty.dtype.bytes() == 64
    }

    /// See [`Inst::DotPairs`].
    pub fn dot_pairs(&mut self, x: V, y: V, sum: V) -> V {
        debug_assert_eq!(self.ty(x), self.ty(y));
        self.push(self.ty(sum), Inst::DotPairs(x, y, sum))
    }

    /// See [`TileOp`].
    pub fn tile(&mut self, op: TileOp) {
        self.place(vec![], Inst::Tile(op));
        self.code.tiles = true;
    }

    pub fn compare(&mut self, op: Cmp, x: V, y: V) -> V {
        debug_assert_eq!(self.ty(x), self.ty(y), "{op:?}");
        self.push(self.ty(x).with(DType::Bool), Inst::Compare(op, x, y))
    }

    pub fn select(&mut self, condition: V, yes: V, no: V) -> V {
        debug_assert_eq!(self.ty(yes), self.ty(no));
        self.push(self.ty(yes), Inst::Select(condition, yes, no))
    }

    /// Converts to another dtype; see [`Inst::Convert`].
    pub fn convert(&mut self, x: V, dtype: DType) -> V {
        let ty = self.ty(x);
        match ty.dtype == dtype {
            true => x,
            false => self.push(ty.with(dtype), Inst::Convert(x)),
        }
    }

    /// See [`Inst::Bitcast`].
    pub fn bitcast(&mut self, x: V, dtype: DType) -> V {
        let ty = self.ty(x);
        let lanes = ty.lanes * ty.dtype.bits() / dtype.bits();
        match ty.dtype == dtype {
            true => x,
            false => self.push(Ty { dtype, lanes }, Inst::Bitcast(x)),
        }
    }

    /// Broadcasts a scalar to all lanes. Returns a vector unchanged.
    pub fn splat(&mut self, x: V, lanes: u32) -> V {
        let ty = self.ty(x);
        if ty.lanes == lanes {
            return x;
        }
        debug_assert_eq!(ty.lanes, 1);
        if let Some(value) = self.constant(x) {
            return self.int(Ty { lanes, ..ty }, value);
        }
        let v = self.push(Ty { lanes, ..ty }, Inst::Splat(x));
        if algebra::has_form(ty) {
            self.record_form(v, self.form(x));
        }
        v
    }

    pub fn extract(&mut self, x: V, lane: u32) -> V {
        self.push(Ty::scalar(self.ty(x).dtype), Inst::Extract(x, lane))
    }

    /// Selects lanes by number from the concatenation of `x` and `y`.
    pub fn shuffle(&mut self, x: V, y: V, lanes: &[u32]) -> V {
        let ty = Ty { lanes: lanes.len() as u32, ..self.ty(x) };
        self.push(ty, Inst::Shuffle(x, y, lanes.into()))
    }

    /// Reduces all lanes to a scalar. Returns a scalar unchanged.
    pub fn fold(&mut self, fold: Fold, x: V) -> V {
        match self.ty(x).lanes {
            1 => x,
            _ => self.push(Ty::scalar(self.ty(x).dtype), Inst::Fold(fold, x)),
        }
    }

    /// Opens the body of a loop. Returns the counter and the carried values inside the body.
    pub fn open_repeat(&mut self, carried: &[V]) -> (V, Vec<V>) {
        let counter = self.new_value(Ty::INDEX);
        let inner = carried.iter().map(|&v| self.new_value(self.ty(v))).collect();
        self.open_region();
        (counter, inner)
    }

    /// Closes the body that [`Builder::open_repeat`] opened. Returns the loop's results.
    #[allow(clippy::too_many_arguments)]
    pub fn close_repeat(
        &mut self,
        from: V,
        to: V,
        step: i64,
        carried: &[V],
        counter: V,
        inner: Vec<V>,
        yields: Vec<V>,
    ) -> Vec<V> {
        debug_assert_eq!(yields.len(), carried.len());
        let step = self.index(step);
        let mut region = self.close_region(yields);
        region.params = [&[counter], &inner[..]].concat();
        let results: Vec<V> = carried.iter().map(|&v| self.new_value(self.ty(v))).collect();
        let inst = Inst::For { from, to, step, carried: carried.to_vec(), region };
        self.place(results.clone(), inst);
        results
    }

    pub fn open_region(&mut self) {
        self.open.push(Vec::new());
    }

    pub fn close_region(&mut self, yields: Vec<V>) -> Region {
        let body = self.open.pop().expect("a region is open");
        Region { params: vec![], body, yields }
    }

    /// Emits an `if` on a scalar bool with two branches, which yield values of the same types.
    pub fn choose(
        &mut self,
        condition: V,
        yes: impl FnOnce(&mut Builder) -> Vec<V>,
        no: impl FnOnce(&mut Builder) -> Vec<V>,
    ) -> Vec<V> {
        let yes = self.region(yes);
        let no = self.region(no);
        self.place_choice(condition, yes, no)
    }

    /// Emits an `if` on a scalar bool with two finished regions.
    pub fn place_choice(&mut self, condition: V, yes: Region, no: Region) -> Vec<V> {
        let results: Vec<V> = yes.yields.iter().map(|&v| self.new_value(self.ty(v))).collect();
        self.place(results.clone(), Inst::If { condition, yes, no });
        results
    }

    /// Emits an `if` on a scalar bool without results.
    pub fn when(&mut self, condition: V, yes: impl FnOnce(&mut Builder)) {
        let body = |b: &mut Builder| {
            yes(b);
            vec![]
        };
        self.choose(condition, body, |_| vec![]);
    }

    /// Calls a private function of the kernel. `body` is emitted once per `name` and argument
    /// types, and may use only its arguments. Meant for long code that runs rarely. Code for C
    /// contains the body inline.
    pub fn call_private(
        &mut self,
        name: &'static str,
        args: &[V],
        body: impl FnOnce(&mut Builder, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        if self.source().vectorizes {
            return body(self, args);
        }
        let types: Vec<Ty> = args.iter().map(|&v| self.ty(v)).collect();
        let number = match self.functions.get(&(name, types.clone())) {
            Some(&number) => number,
            None => {
                let function = self.function(&types, body);
                self.code.functions.push(function);
                let number = self.code.functions.len() as u32 - 1;
                self.functions.insert((name, types), number);
                number
            }
        };
        let given = &self.code.functions[number as usize].yields;
        let types: Vec<Ty> = given.iter().map(|&v| self.ty(v)).collect();
        let results: Vec<V> = types.into_iter().map(|ty| self.new_value(ty)).collect();
        self.place(results.clone(), Inst::CallPrivate(number, args.into()));
        results
    }

    /// Builds a private function, which has its own head for constants.
    fn function(
        &mut self,
        types: &[Ty],
        body: impl FnOnce(&mut Builder, &[V]) -> Vec<V>,
    ) -> Region {
        let outside =
            (take(&mut self.head), take(&mut self.constants), take(&mut self.head_values));
        let params: Vec<V> = types.iter().map(|&ty| self.new_value(ty)).collect();
        let mut function = self.region(|b| body(b, &params));
        let mut statements = replace(&mut self.head, outside.0);
        (self.constants, self.head_values) = (outside.1, outside.2);
        statements.append(&mut function.body);
        Region { params, body: statements, ..function }
    }

    fn region(&mut self, body: impl FnOnce(&mut Builder) -> Vec<V>) -> Region {
        self.open_region();
        let yields = body(self);
        self.close_region(yields)
    }
}
