//! Random modules for property tests: small functions over all kinds of operations, and calls.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Module, ResultDef, Role, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op;
use mithril_ir::op::infer::complete_attrs;
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;

/// What the symbol `n` is at run time.
pub const N: usize = 2;

/// A small generator of random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Sometimes a special value.
    pub fn number(&mut self) -> f64 {
        const SPECIAL: [f64; 8] =
            [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40];
        match self.below(4) {
            0 => self.pick(&SPECIAL),
            _ => (self.below(64) as f64 - 32.0) / 8.0,
        }
    }
}

/// A module of a few functions that call the earlier ones; the entry comes first.
pub fn module(seed: u64) -> Module {
    let mut random = Random(seed);
    let mut callees: Vec<Function> = Vec::new();
    for i in 0..random.below(4) {
        let size = 1 + random.below(8);
        callees.push(function(&mut random, &format!("f{i}"), size, &callees));
    }
    let size = 4 + random.below(24);
    let mut module = Module::of(function(&mut random, "main", size, &callees));
    for callee in callees {
        module.insert(gradient(&callee));
        module.insert(callee);
    }
    module
}

/// A function that can stand as the gradient of another; no test here asks for its value.
fn gradient(of: &Function) -> Function {
    let b = Builder::new(format!("{}_vjp", of.name));
    let results = of.results.iter().map(|r| of.ty(r.value));
    let args = of.arguments().map(|(value, _)| of.ty(value));
    let cotangents = results.clone().filter(|ty| ty.dtype.is_float());
    let types = args.chain(results).chain(cotangents);
    for (i, ty) in types.enumerate() {
        b.arg(format!("x{i}"), Role::Data, ty.clone());
    }
    let floats = of.arguments().filter(|(value, _)| of.ty(*value).dtype.is_float());
    let results =
        floats.map(|(value, arg)| ResultDef { name: arg.name.clone(), value, state: None });
    b.finish(results.collect()).unwrap()
}

/// Arrays that fit the arguments of a function.
pub fn arguments(function: &Function, seed: u64) -> Vec<Tensor> {
    let mut random = Random(seed ^ 0xa5a5);
    let types = function.arguments().map(|(value, _)| function.ty(value));
    types
        .map(|ty| {
            let size = |d: &Dim| d.evaluate(&|_| Some(N as i64)).unwrap() as usize;
            let shape: Vec<usize> = ty.shape.dims.iter().map(size).collect();
            let count = shape.iter().product();
            let values: Vec<f64> = (0..count).map(|_| random.number()).collect();
            Tensor::from_f64s(ty.dtype, shape, &values)
        })
        .collect()
}

/// A function whose guards hold of `n`: one that cannot run tells nothing.
fn function(random: &mut Random, name: &str, size: usize, callees: &[Function]) -> Function {
    let value = |dim: &Dim| dim.evaluate(&|_| Some(N as i64));
    loop {
        let function = attempt(random, name, size, callees);
        let mut guards = function.guards.iter();
        if guards.all(|guard| value(&guard.left) == value(&guard.right)) {
            return function;
        }
    }
}

fn attempt(random: &mut Random, name: &str, size: usize, callees: &[Function]) -> Function {
    let b = Builder::new(name);
    let n = || Dim::symbol("n");
    let shapes = [
        Shape::new([n(), Dim::Const(3)]),
        Shape::fixed(&[3]),
        Shape::fixed(&[]),
        Shape::fixed(&[2, 3]),
        Shape::new([Dim::Const(3), n()]),
    ];
    let mut values: Vec<Value> = Vec::new();
    for (i, shape) in shapes.iter().enumerate().take(2 + random.below(4)) {
        let dtype = random.pick(&[DType::F32, DType::F32, DType::F64, DType::I32, DType::Bool]);
        values.push(b.arg(format!("x{i}"), Role::Data, Type::new(dtype, shape.clone())));
    }
    let mut tries = 0;
    while b.with(|f| f.ops.len()) < size && tries < size * 40 {
        tries += 1;
        b.set_loc(Loc::path(format!("block_{}", random.below(4))));
        values.extend(operation(random, &b, &values, callees));
    }
    let count = 1 + random.below(3);
    let results = (0..count).map(|i| ResultDef {
        name: format!("out{i}").into(),
        value: values[values.len() - 1 - random.below(values.len().min(6))],
        state: None,
    });
    let results = results.collect();
    b.finish(results).unwrap()
}

/// A random operation; none where its operands do not fit.
fn operation(
    random: &mut Random,
    b: &Builder,
    values: &[Value],
    callees: &[Function],
) -> Vec<Value> {
    // Later values more often: chains are what rules match.
    let value = |random: &mut Random| {
        let back = random.below(values.len()).min(random.below(values.len()));
        values[values.len() - 1 - back]
    };
    match random.below(14) {
        0 => return vec![b.constant(constant(random))],
        1 | 2 if !callees.is_empty() => return call(random, b, values, callees),
        _ => {}
    }
    let x = value(random);
    let (name, attrs) = named(random, b, x);
    let op = op::find(name).unwrap();
    let count = match op.arity() {
        (least, Some(most)) => least + random.below(most - least + 1),
        (_, None) => 1 + random.below(2),
    };
    let mut operands = vec![x];
    while operands.len() < count {
        operands.push(match random.below(3) {
            0 => x,
            1 => b.constant(uniform(random, b.ty(x).dtype)),
            _ => value(random),
        });
    }
    if name == "select" || random.below(4) == 0 {
        operands.rotate_left(1);
    }
    operands.truncate(count);
    b.op(name, &operands, &attrs).into_iter().collect()
}

fn call(random: &mut Random, b: &Builder, values: &[Value], callees: &[Function]) -> Vec<Value> {
    let callee = &callees[random.below(callees.len())];
    let mut operands = Vec::new();
    for (arg, _) in callee.arguments() {
        let want = callee.ty(arg);
        let fits = |v: &&Value| {
            let ty = b.ty(**v);
            ty.dtype == want.dtype && ty.shape.dims.len() == want.shape.dims.len()
        };
        let fitting: Vec<Value> = values.iter().filter(fits).copied().collect();
        operands.push(if fitting.is_empty() {
            let number = b.constant(uniform(random, want.dtype));
            let attrs = [("shape", want.shape.clone().into())];
            match b.op("broadcast_in_dim", &[number], &attrs) {
                Ok(value) => value,
                Err(_) => return Vec::new(),
            }
        } else {
            random.pick(&fitting)
        });
    }
    let name: Arc<str> = callee.name.clone();
    let vjp: Arc<str> = format!("{name}_vjp").into();
    let (op, attrs) = match random.below(4) {
        0 => (
            "custom_gradient",
            vec![("callee", Attr::Function(name)), ("vjp", Attr::Function(vjp))],
        ),
        _ => ("call", vec![("callee", Attr::Function(name))]),
    };
    let op = op::get(op);
    let attrs = complete_attrs(op, &attrs).unwrap();
    // Dims that do not fit give an error.
    b.call(op, callee, attrs, &operands).map_or_else(|_| Vec::new(), |v| v.into_vec())
}

fn constant(random: &mut Random) -> Tensor {
    let dtype = random.pick(&[DType::F32, DType::F32, DType::F64, DType::I32, DType::Bool]);
    let shape = random.pick(&[vec![], vec![3], vec![2, 3], vec![1], vec![1, 3]]);
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|_| random.number()).collect();
    Tensor::from_f64s(dtype, shape, &values)
}

fn uniform(random: &mut Random, dtype: DType) -> Tensor {
    let shape = random.pick(&[vec![], vec![], vec![1], vec![3], vec![2, 3]]);
    let value = random.pick(&[0.0, -0.0, 1.0, -1.0, 2.0]);
    let count: usize = shape.iter().product();
    Tensor::from_f64s(dtype, shape, &vec![value; count])
}

type Named = (&'static str, Vec<(&'static str, Attr)>);

/// Names without attributes, the likelier ones several times.
const PLAIN: &[&str] = &[
    "neg",
    "neg",
    "abs",
    "relu",
    "sigmoid",
    "gelu",
    "silu",
    "exp",
    "sqrt",
    "square",
    "floor",
    "sign",
    "not",
    "not",
    "softplus",
    "is_nan",
    "add",
    "add",
    "sub",
    "sub",
    "mul",
    "mul",
    "div",
    "div",
    "minimum",
    "maximum",
    "pow",
    "eq",
    "lt",
    "and",
    "or",
    "xor",
    "floor_div",
    "mod",
    "select",
    "select",
    "select",
    "softmax",
    "log_softmax",
    "layer_norm",
    "matmul",
    "stop_gradient",
    "element_count",
];

/// A name of the table with attributes that may fit `x`.
fn named(random: &mut Random, b: &Builder, x: Value) -> Named {
    let shape = b.ty(x).shape;
    match random.below(5) {
        0..=2 => (random.pick(PLAIN), vec![]),
        3 => shaped(random, &shape),
        _ => on_axes(random, shape.dims.len()),
    }
}

fn shaped(random: &mut Random, shape: &Shape) -> Named {
    let n = Dim::symbol("n");
    let target = random.pick(&[
        shape.clone(),
        shape.clone(),
        Shape::new([n.clone(), Dim::Const(3)]),
        Shape::new([Dim::Const(3), n.clone()]),
        Shape::new([n.clone() * 3]),
        Shape::new([Dim::Const(1), n, Dim::Const(3)]),
        Shape::fixed(&[3]),
        Shape::fixed(&[2, 3]),
        Shape::fixed(&[6]),
        Shape::scalar(),
    ]);
    let name = random.pick(&["reshape", "reshape", "broadcast_in_dim", "sum_to"]);
    (name, vec![("shape", target.into())])
}

fn on_axes(random: &mut Random, rank: usize) -> Named {
    let axis = random.below(rank.max(1)) as i64 - random.below(2) as i64;
    let some: Vec<i64> = (0..rank as i64).filter(|_| random.below(2) == 0).collect();
    let axes = ("axes", Attr::from(&some[..]));
    match random.below(8) {
        0 => {
            let mut order: Vec<i64> = (0..rank as i64).collect();
            if random.below(2) == 0 {
                order.reverse();
            }
            ("transpose", vec![("permutation", order[..].into())])
        }
        1 => (random.pick(&["expand_dims", "squeeze", "reverse"]), vec![axes]),
        2 => {
            let limit = random.pick(&[Dim::Unknown, Dim::Const(2)]);
            let starts = Shape::fixed(&[random.below(2)]);
            let bounds = [("starts", starts), ("limits", Shape::new([limit]))];
            let bounds = bounds.into_iter().map(|(name, at)| (name, at.into()));
            ("slice", [("axes", Attr::ints([axis]))].into_iter().chain(bounds).collect())
        }
        3 => ("concat", vec![("axis", axis.into())]),
        4 => ("dim", vec![("axis", axis.into())]),
        5 => {
            use DType::{Bool, F16, F32, F64, I32, I64};
            ("cast", vec![("dtype", random.pick(&[F32, F64, I32, I64, Bool, F16]).into())])
        }
        _ => {
            let name = random.pick(&["sum", "mean", "max", "prod", "any", "logsumexp"]);
            let keepdim = random.below(2) == 0;
            (name, vec![axes, ("keepdim", keepdim.into())])
        }
    }
}
