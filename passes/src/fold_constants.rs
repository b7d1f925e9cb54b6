//! `fold-constants`: evaluates operations whose operands are known at compile time.

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Role, Value};
use mithril_ir::op::access::{Access, Pieces};
use mithril_ir::op::{Kind, Op};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::context::PassContext;
use crate::dce;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};

/// The maximum number of elements of a result that is computed at compile time.
pub const LIMIT: usize = 4096;

pass! {
    /// Evaluates operations on literals with the reference evaluator, up to a number of elements.
    /// Folds elementwise operations on splats (values with one number in all elements) of any
    /// shape. In other elementwise operations, a literal splat becomes a scalar.
    pub struct FoldConstants("fold-constants") {
        /// The maximum number of elements of a result.
        limit: usize = LIMIT,
        /// The maximum number of elements of all operands together.
        operands: usize = 65536,
    }
}

impl Pass for FoldConstants {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        each_function(module, |function| {
            let folded = self.function(module, function, cx)?;
            Ok(folded.map(|f| dce::without_dead_operations(&f).unwrap_or(f)))
        })
    }
}

/// Facts about the values of the new function.
#[derive(Default)]
struct Known {
    literals: FxHashMap<Value, Tensor>,
    /// For values that repeat one number in all elements, that number.
    numbers: FxHashMap<Value, Tensor>,
}

impl Known {
    fn literal(&mut self, value: Value, tensor: Tensor) {
        if let Some(number) = tensor.repeated() {
            self.numbers.insert(value, number);
        }
        self.literals.insert(value, tensor);
    }

    /// The number that a literal with at least one axis repeats.
    fn splat(&self, value: &Value) -> Option<&Tensor> {
        let literal = self.literals.get(value)?;
        self.numbers.get(value).filter(|_| !literal.shape().is_empty())
    }

    /// Records the result of an operation that is kept. Layouts of one operand only repeat and move
    /// its elements.
    fn record_kept(&mut self, op: &Operation, operands: &[Value], value: Value) {
        match (op.op.kind, op.attrs.first(), operands) {
            (Kind::Constant, Some(Attr::Tensor(tensor)), []) => {
                self.literal(value, (**tensor).clone())
            }
            (Kind::Layout, _, [operand]) => {
                if let Some(number) = self.numbers.get(operand).cloned() {
                    self.numbers.insert(value, number);
                }
            }
            _ => {}
        }
    }
}

impl FoldConstants {
    fn function(
        &self,
        module: &Module,
        function: &Function,
        cx: &mut PassContext,
    ) -> Result<Option<Function>> {
        if !self.has_foldable(function) {
            return Ok(None);
        }
        let mut rebuild = Rebuild::new(module, function);
        let mut known = Known::default();
        let mut count = 0;
        for op in &function.ops {
            let operands = rebuild.operands(op);
            rebuild.builder.set_loc(op.loc.clone());
            if let Some(tensor) = self.fold(function, op, &operands, &known.literals) {
                let value = rebuild.builder.constant(tensor.clone());
                known.literal(value, tensor);
                rebuild.replace(op.result(), value);
            } else if let Some(number) = folded_splat(function, op, &operands, &known.numbers) {
                let one = rebuild.builder.constant(number.clone());
                let shape = function.ty(op.result()).shape.clone();
                let value = rebuild.builder.var(one).broadcast_to(shape).value;
                known.numbers.insert(value, number);
                rebuild.replace(op.result(), value);
            } else {
                let whole = op.results().next().map(|result| &function.ty(result).shape);
                let plain = whole.and_then(|whole| {
                    splats_as_scalars(&rebuild.builder, op, &operands, whole, &known)
                });
                let less = plain.is_some();
                rebuild.keep_on(op, plain.unwrap_or_else(|| operands.clone()))?;
                known.record_kept(op, &operands, rebuild.value(op.first));
                if !less {
                    continue;
                }
            }
            cx.log("fold", &op.loc);
            count += 1;
        }
        cx.count("ops-folded", count);
        if count == 0 {
            return Ok(None);
        }
        rebuild.finish().map(Some)
    }

    /// Whether anything can be evaluated. Checking this first is cheaper than rebuilding the
    /// function.
    fn has_foldable(&self, function: &Function) -> bool {
        let mut known = Known::default();
        function.ops.iter().any(|op| {
            let operands = &op.operands[..];
            let whole = op.results().next().map(|result| &function.ty(result).shape);
            let plain = whole.is_some_and(|whole| {
                has_splat_operand(&|v| function.ty(v), op, operands, whole, &known)
            });
            let found = plain
                || self.fold(function, op, operands, &known.literals).is_some()
                || folded_splat(function, op, operands, &known.numbers).is_some();
            known.record_kept(op, operands, op.first);
            found
        })
    }

    /// The result; `None` if it is not known, is too large, or must not be computed at compile
    /// time.
    fn fold(
        &self,
        function: &Function,
        op: &Operation,
        operands: &[Value],
        literals: &FxHashMap<Value, Tensor>,
    ) -> Option<Tensor> {
        match op.op.kind {
            // Differentiation has to see a barrier; an iota is shorter than its elements.
            Kind::Constant | Kind::Barrier | Kind::Call => return None,
            Kind::Elementwise
            | Kind::Reduce
            | Kind::Contraction
            | Kind::Layout
            | Kind::Index
            | Kind::Order
            | Kind::Matrix
            | Kind::Random
            | Kind::Dim
            | Kind::Composite => {}
        }
        let ty = function.ty(op.result());
        let shape = ty.shape.as_fixed()?;
        let elements = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
        let literal = |v: &Value| literals.get(v).cloned();
        let tensors: Vec<Tensor> = operands.iter().map(literal).collect::<Option<_>>()?;
        let read: usize = tensors.iter().map(Tensor::len).sum();
        let large = elements > self.limit || read > self.operands;
        if tensors.is_empty() || (large && !is_joined(op.op)) {
            return None;
        }
        let result = evaluated(op.op, &op.attrs, &tensors)?;
        (result.shape() == shape && result.dtype() == ty.dtype).then_some(result)
    }
}

/// The number that an elementwise operation gives in all elements if each operand repeats one
/// number; `None` if an operand does not, or if the arguments do not bind the shape.
fn folded_splat(
    function: &Function,
    op: &Operation,
    operands: &[Value],
    numbers: &FxHashMap<Value, Tensor>,
) -> Option<Tensor> {
    if op.op.kind != Kind::Elementwise || operands.is_empty() {
        return None;
    }
    let number = |v: &Value| numbers.get(v).cloned();
    let tensors: Vec<Tensor> = operands.iter().map(number).collect::<Option<_>>()?;
    let ty = function.ty(op.result());
    let result = evaluated(op.op, &op.attrs, &tensors)?;
    (is_bound(function, &ty.shape) && result.dtype() == ty.dtype).then_some(result)
}

/// The operands of an elementwise operation, with scalars in place of literal splats, if another
/// operand has the shape of the result; `None` if that changes nothing.
fn splats_as_scalars(
    builder: &Builder,
    op: &Operation,
    operands: &[Value],
    whole: &Shape,
    known: &Known,
) -> Option<SmallVec<[Value; 3]>> {
    let fits = builder.with(|f| has_splat_operand(&|v| f.ty(v), op, operands, whole, known));
    let plain = |v: &Value| known.splat(v).map_or(*v, |number| builder.constant(number.clone()));
    fits.then(|| operands.iter().map(plain).collect())
}

/// Whether an elementwise operation has an operand that is a literal splat, and another one with
/// the shape of the result.
fn has_splat_operand<'f>(
    ty: &dyn Fn(Value) -> &'f Type,
    op: &Operation,
    operands: &[Value],
    whole: &Shape,
    known: &Known,
) -> bool {
    let spans = |v: &Value| known.splat(v).is_none() && ty(*v).shape == *whole;
    op.op.kind == Kind::Elementwise
        && operands.iter().any(|v| known.splat(v).is_some())
        && operands.iter().any(spans)
}

/// Whether the arguments bind all symbols of the shape.
fn is_bound(function: &Function, shape: &Shape) -> bool {
    let shows = |symbol: &Symbol| {
        let mut any = false;
        for (value, _) in function.arguments() {
            function.ty(value).shape.for_each_symbol(&mut |own| any |= own == symbol);
        }
        any
    };
    let mut all = !shape.dims.iter().any(Dim::is_unknown);
    shape.for_each_symbol(&mut |symbol| all &= shows(symbol));
    all
}

/// Whether the operation only copies its operands, so that the result is no larger than the
/// operands. Constants are concatenated whatever their size.
pub fn is_joined(op: Op) -> bool {
    matches!(op.access, Access::Pieces(Pieces::Concat))
}

/// Evaluates the operation on these arrays; `None` if it fails. The program then reports the error
/// at run time.
pub fn evaluated(op: Op, attrs: &[Attr], operands: &[Tensor]) -> Option<Tensor> {
    let symbolic = |attr: &Attr| match attr {
        Attr::Shape(shape) => {
            shape.lead.is_some() || shape.dims.iter().any(|d| matches!(d, Dim::Expr(_)))
        }
        _ => false,
    };
    if attrs.iter().any(symbolic) {
        return None;
    }
    let builder = Builder::new("fold");
    let arg = |(i, tensor): (usize, &Tensor)| {
        let ty = Type::new(tensor.dtype(), Shape::fixed(tensor.shape()));
        builder.arg(format!("x{i}"), Role::Data, ty)
    };
    let args: Vec<Value> = operands.iter().enumerate().map(arg).collect();
    let value = builder.push(op, &args, attrs.into()).ok()?;
    let result = ResultDef { name: "output".into(), value, state: None };
    let function = builder.finish(vec![result]).ok()?;
    evaluate(&Module::new(), &function, operands).ok()?.pop()
}
