//! The reference evaluator: defines the meaning of every operation.

mod dims;

use crate::algebra::Rule;
use crate::attr::Attr;
use crate::builder::Builder;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::eval::{Array, elementwise, reduce};
use crate::graph::{Function, Module, Operation, ResultDef, Role, Value};
use crate::nesting::deeper;
use crate::op::infer::{as_ints, find_attr};
use crate::op::{Meaning, Op, expr};
use crate::scalar::Scalar;
use crate::shape::{Shape, Type};
use crate::tensor::Tensor;
pub use dims::Dims;

/// The arguments of a kernel of the op table: operands and attributes, with dims as numbers.
pub struct Inputs<'a> {
    op: Op,
    args: &'a [&'a Array],
    attrs: &'a [Attr],
    dims: &'a Dims,
    /// The dtype of the result.
    result: DType,
}

/// The arguments of the meaning of an operation that names a function.
pub struct Calls<'a> {
    module: &'a Module,
    op: &'a Operation,
    args: &'a [&'a Array],
    results: &'a [&'a Type],
    dims: &'a Dims,
}

impl<'a> Calls<'a> {
    pub fn args(&self) -> &'a [&'a Array] {
        self.args
    }

    pub fn attrs(&self) -> &'a [Attr] {
        &self.op.attrs
    }

    /// The declared types of the results.
    pub fn results(&self) -> &'a [&'a Type] {
        self.results
    }

    /// The shape of a type in numbers, with 0 for unknown dims.
    pub fn shape(&self, ty: &Type) -> Vec<usize> {
        self.dims.shape(&ty.shape).into_iter().map(|d| d.unwrap_or(0)).collect()
    }

    /// The arguments that the operation passes to function number `at` of those that it names.
    pub fn passed(&self, at: usize) -> Vec<Array> {
        self.op.passed(at).into_iter().map(|own| self.args[own].clone()).collect()
    }

    /// Runs function number `at` of those that the operation names, and returns its results.
    pub fn run(&self, at: usize, args: Vec<Array>) -> Result<Vec<Array>> {
        let name = self.op.functions().nth(at).expect("a call names its functions");
        match self.module.get(name) {
            // Calls may nest deeply, so this may need more stack.
            Some(callee) => deeper(|| run(self.module, callee, args)),
            None => Diagnostic::new(format!("the module has no function `{name}`")).err(),
        }
    }
}

impl<'a> Inputs<'a> {
    pub fn arg(&self, i: usize) -> &'a Array {
        self.args[i]
    }

    pub fn args(&self) -> &'a [&'a Array] {
        self.args
    }

    pub fn attr(&self, name: &str) -> &'a Attr {
        find_attr(self.op, self.attrs, name)
    }

    pub fn bool(&self, name: &str) -> bool {
        matches!(self.attr(name), Attr::Bool(true))
    }

    pub fn int(&self, name: &str) -> i64 {
        self.attr(name).as_int()
    }

    pub fn ints(&self, name: &str) -> Option<&'a [i64]> {
        as_ints(self.attr(name))
    }

    pub fn float(&self, name: &str) -> f64 {
        self.attr(name).as_float()
    }

    pub fn tensor(&self, name: &str) -> &'a Tensor {
        self.attr(name).as_tensor()
    }

    /// The dtype of the result.
    pub fn dtype(&self) -> DType {
        self.result
    }

    /// The dtype in which sums are accumulated.
    pub fn accumulator(&self) -> DType {
        match self.attr("acc") {
            Attr::DType(acc) => *acc,
            _ => reduce::accumulator(self.result),
        }
    }

    /// The attribute `axes` of the first operand, counted from the front; all axes where it is not
    /// given.
    pub fn axes(&self) -> Vec<usize> {
        match self.ints("axes") {
            Some(_) => self.axes_of("axes", 0),
            None => (0..self.arg(0).shape.len()).collect(),
        }
    }

    /// The attribute `name` as axes of operand `i`, counted from the front.
    pub fn axes_of(&self, name: &str, i: usize) -> Vec<usize> {
        let rank = self.arg(i).shape.len() as i64;
        self.ints(name).unwrap_or(&[]).iter().map(|a| a.rem_euclid(rank.max(1)) as usize).collect()
    }

    /// The attribute `axis` of the first operand, counted from the front, where it is given.
    pub fn axis(&self) -> Option<usize> {
        let rank = self.arg(0).shape.len() as i64;
        match self.attr("axis") {
            Attr::Int(axis) => Some(axis.rem_euclid(rank.max(1)) as usize),
            _ => None,
        }
    }

    pub fn required_axis(&self) -> usize {
        self.axis().unwrap_or(0)
    }

    /// The attribute `axis` of the result, which has the shape of the attribute `shape`.
    pub fn axis_of_result(&self) -> usize {
        self.int("axis").rem_euclid(self.shape("shape").len().max(1) as i64) as usize
    }

    /// A shape attribute in numbers. An unknown dim follows from the number of elements.
    pub fn shape(&self, name: &str) -> Vec<usize> {
        let Attr::Shape(shape) = self.attr(name) else {
            return Vec::new();
        };
        let dims = self.dims.shape(shape);
        let known: usize = dims.iter().flatten().product();
        let inferred = self.args.first().map_or(0, |x| x.len()).checked_div(known).unwrap_or(0);
        dims.into_iter().map(|d| d.unwrap_or(inferred)).collect()
    }

    /// The random key, which is the first operand.
    pub fn key(&self) -> [u32; 2] {
        let word = |i| match self.arg(0).get(i) {
            Scalar::I(v) => v as u32,
            Scalar::F(_) => 0,
        };
        [word(0), word(1)]
    }

    /// The scalar integer operands from operand `from` on.
    pub fn integers(&self, from: usize) -> Vec<i64> {
        let value = |x: &&Array| match x.get(0) {
            Scalar::I(v) => v,
            Scalar::F(v) => v as i64,
        };
        self.args[from..].iter().map(value).collect()
    }

    /// Start, limit and step for each axis of the first operand, from the attributes.
    pub fn bounds(&self) -> (Vec<i64>, Vec<i64>, Vec<i64>) {
        let x = self.arg(0);
        let limits: Vec<i64> = x.shape.iter().map(|&d| d as i64).collect();
        let mut bounds = (vec![0; limits.len()], limits.clone(), vec![1; limits.len()]);
        let axes = self.axes_of("axes", 0);
        let (Attr::Shape(starts), Attr::Shape(ends)) = (self.attr("starts"), self.attr("limits"))
        else {
            return bounds;
        };
        let steps = self.ints("steps");
        for (i, &axis) in axes.iter().enumerate() {
            let length = limits[axis];
            let place = |dim: &Dim| {
                let at = self.dims.get(dim).unwrap_or(length);
                // Only a literal may count from the end; a symbolic bound counts from the front.
                let at = match dim.as_const() {
                    Some(_) if at < 0 => at.saturating_add(length),
                    _ => at,
                };
                at.clamp(0, length)
            };
            bounds.0[axis] = place(&starts.dims[i]);
            bounds.1[axis] = place(&ends.dims[i]).max(bounds.0[axis]);
            bounds.2[axis] = steps.map_or(1, |s| s[i]);
        }
        bounds
    }
}

/// Runs a function of the module on arrays, given in the order of its arguments.
/// Errors: arguments that do not fit the signature, a guard that fails, an external function.
pub fn evaluate(module: &Module, function: &Function, args: &[Tensor]) -> Result<Vec<Tensor>> {
    let arrays: Vec<Array> = args.iter().map(Array::from).collect();
    let results = run(module, function, arrays)?;
    Ok(results.into_iter().map(|a| Tensor::from(&a)).collect())
}

fn run(module: &Module, function: &Function, args: Vec<Array>) -> Result<Vec<Array>> {
    if function.external {
        return Diagnostic::new(format!(
            "`{}` is external: the evaluator has no body for it",
            function.name
        ))
        .hint("run it on a target that it has a body for, or write it with operations")
        .err();
    }
    let mut dims = Dims::default();
    bind_arguments(function, &args, &mut dims)?;
    let mut values: Vec<Option<Array>> = args.into_iter().map(Some).collect();
    values.resize(function.values.len(), None);
    let mut uses = function.uses();
    for op in &function.ops {
        let results = step(module, function, op, &values, &dims).map_err(|mut error| {
            error.place.get_or_insert_with(|| format!("block `{}`", op.loc));
            error
        })?;
        for (value, array) in op.results().zip(results) {
            let _ = dims.bind(function.ty(value), &array.shape);
            values[value.index()] = Some(array);
        }
        for value in &op.operands {
            uses[value.index()] -= 1;
            if uses[value.index()] == 0 {
                values[value.index()] = None;
            }
        }
    }
    // Checked again, as some guards are about symbols that operations have bound.
    check_guards(function, &dims)?;
    Ok(function
        .results
        .iter()
        .map(|r| values[r.value.index()].clone().expect("a result is live"))
        .collect())
}

fn bind_arguments(function: &Function, args: &[Array], dims: &mut Dims) -> Result<()> {
    if args.len() != function.args.len() {
        return Diagnostic::new(format!("`{}` got the wrong number of arguments", function.name))
            .got(args.len())
            .expected(function.args.len())
            .err();
    }
    // Two passes: a dim of an argument may depend on a symbol that a later argument binds.
    let twice = function.arguments().chain(function.arguments());
    for ((value, arg), array) in twice.zip(args.iter().chain(args)) {
        let ty = function.ty(value);
        let fits = if array.dtype == ty.dtype {
            dims.bind(ty, &array.shape)
        } else {
            Err(format!("the dtype {}", array.dtype))
        };
        if let Err(why) = fits {
            return Diagnostic::new(format!("the argument `{}` does not fit: {why}", arg.name))
                .expected(ty)
                .err();
        }
    }
    check_guards(function, dims)
}

fn check_guards(function: &Function, dims: &Dims) -> Result<()> {
    for guard in &function.guards {
        let (left, right) = (dims.get(&guard.left), dims.get(&guard.right));
        if let (Some(l), Some(r)) = (left, right) {
            if l != r {
                let mut error = Diagnostic::new(format!(
                    "dims differ at run time: {} is {l}, {} is {r}",
                    guard.left, guard.right
                ))
                .expected(format!("{} == {}", guard.left, guard.right));
                error.place = guard.loc.blocks();
                return error.err();
            }
        }
    }
    Ok(())
}

fn step(
    module: &Module,
    function: &Function,
    op: &Operation,
    values: &[Option<Array>],
    dims: &Dims,
) -> Result<Vec<Array>> {
    let args: Vec<&Array> = op
        .operands
        .iter()
        .map(|v| values[v.index()].as_ref().expect("an operand is live until its last use"))
        .collect();
    match op.op.meaning {
        Meaning::Call(rule) => {
            let results: Vec<&Type> = op.results().map(|v| function.ty(v)).collect();
            rule(&Calls { module, op, args: &args, results: &results, dims })
        }
        Meaning::Scalar(_) | Meaning::Kernel(_) | Meaning::Decompose(_) => {
            let result = function.ty(op.result());
            apply(op.op, &args, &op.attrs, result.dtype, dims).map(|array| vec![array])
        }
    }
}

/// Runs one operation on arrays: by its expression, its kernel, or its decomposition for these
/// shapes.
fn apply(op: Op, args: &[&Array], attrs: &[Attr], result: DType, dims: &Dims) -> Result<Array> {
    for (def, attr) in op.attrs.iter().zip(attrs) {
        if let Attr::Shape(shape) = attr {
            if let Some(dim) = dims.unbound(shape) {
                let why = format!("the dim {dim} in `{}` is not known here", def.name);
                return Err(internal(why));
            }
        }
    }
    match op.meaning {
        Meaning::Scalar(_) => {
            let numbers: Vec<Scalar> = attrs.iter().map(scalar_attr).collect();
            let expr = expr(op).expect("a scalar meaning has an expression");
            elementwise::elementwise(expr, result, args, &numbers).map_err(internal)
        }
        Meaning::Kernel(kernel) => {
            kernel(&Inputs { op, args, attrs, dims, result }).map_err(internal)
        }
        Meaning::Decompose(_) => decomposed(op, args, attrs, dims),
        Meaning::Call(_) => Err(internal(format!("`{}` needs its module", op.name))),
    }
}

fn scalar_attr(attr: &Attr) -> Scalar {
    match attr {
        Attr::Float(v) => Scalar::F(*v),
        Attr::Int(v) => Scalar::I(*v),
        _ => Scalar::F(f64::NAN),
    }
}

fn internal(why: String) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(why))
}

/// Builds the decomposition for exactly these shapes, and runs it.
fn decomposed(op: Op, args: &[&Array], attrs: &[Attr], dims: &Dims) -> Result<Array> {
    let builder = Builder::new(op.0.name);
    let operands: Vec<Value> = args
        .iter()
        .enumerate()
        .map(|(i, a)| {
            builder.arg(format!("{i}"), Role::Data, Type::new(a.dtype, Shape::fixed(&a.shape)))
        })
        .collect();
    let attrs: smallvec::SmallVec<[Attr; 2]> = attrs.iter().map(|a| fixed_attr(a, dims)).collect();
    let value = decompose(&builder, op, &operands, &attrs)?;
    let result = ResultDef { name: "output".into(), value, state: None };
    let function = builder.finish(vec![result])?;
    let args = args.iter().map(|a| (*a).clone()).collect();
    Ok(run(&Module::new(), &function, args)?.remove(0))
}

fn fixed_attr(attr: &Attr, dims: &Dims) -> Attr {
    let Attr::Shape(shape) = attr else {
        return attr.clone();
    };
    let dim = |d: Option<usize>| d.map_or(Dim::Unknown, Dim::from);
    Shape::new(dims.shape(shape).into_iter().map(dim)).into()
}

/// Builds the decomposition of a composite instead of the operation.
/// Errors: wrong types of operands, or an operation that has no decomposition.
pub fn decompose(builder: &Builder, op: Op, operands: &[Value], attrs: &[Attr]) -> Result<Value> {
    let Meaning::Decompose(rule) = op.meaning else {
        return Diagnostic::new(format!("`{}` is not a composite", op.name)).err();
    };
    let ty = builder.type_of(op, operands, attrs)?;
    let operands = operands.iter().map(|v| builder.var(*v)).collect();
    let attrs = attrs.into();
    let value = rule(&Rule { builder, op, operands, attrs, ty, result: None }).value;
    builder.check()?;
    Ok(value)
}
