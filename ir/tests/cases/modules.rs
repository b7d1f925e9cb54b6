//! Random valid modules: functions of random operations that call each other, over fixed and
//! symbolic dims, with odd names.

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_ir::external::TargetBody;
use mithril_ir::graph::{Bound, Constraint, Function, Module, ResultDef, Role, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::{self, Arity, Op};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;

use super::{Random, attr, operations, tensor};

const NAMES: &[&str] =
    &["x", "y", "y", "a.b", "_0", "7", "with space", "quo\"te\n", "größe", "func"];

/// A module of up to three functions; later ones call earlier ones, which follow them in the text.
pub fn module(random: &mut Random) -> Module {
    let mut functions: Vec<Function> = Vec::new();
    for i in 0..1 + random.below(3) {
        let name = ["main", "layer 1", "f.2"][i];
        let function = match random.below(5) {
            0 if i > 0 => external(name, random),
            _ => function(name, &functions, random),
        };
        functions.push(function);
    }
    let mut module = Module::new();
    functions.into_iter().rev().for_each(|f| module.insert(f));
    module
}

fn dim(random: &mut Random) -> Dim {
    let (n, m) = (Dim::symbol("n"), Dim::symbol("m"));
    match random.below(14) {
        0..=2 => n,
        3 => m,
        4 => n + 1,
        5 => n.floor_div(&Dim::Const(2)),
        6 => n.min(&Dim::Const(3)),
        7 => &n * &m,
        other => Dim::Const([0, 1, 2, 2, 3, 3][other - 8]),
    }
}

fn ty(random: &mut Random) -> Type {
    let all = [
        DType::F32,
        DType::F32,
        DType::F64,
        DType::BF16,
        DType::I64,
        DType::U8,
        DType::Bool,
        DType::I4,
    ];
    let dims: Vec<Dim> = (0..random.below(4)).map(|_| dim(random)).collect();
    let shape = match random.below(8) {
        0 => Shape::with_lead("b".into(), dims),
        _ => Shape::new(dims),
    };
    Type::new(*random.pick(&all), shape)
}

fn external(name: &str, random: &mut Random) -> Function {
    let builder = Builder::new(name);
    let x = ty(random);
    builder.arg("x", Role::Data, x.clone());
    let mut function = builder.finish(vec![]).expect("no operation fails");
    function.external = true;
    function.bodies = bodies(random);
    for i in 0..random.below(3) {
        let mut result = if i == 0 { x.clone() } else { ty(random) };
        // A dim of its own, that no argument tells.
        result.shape.dims.push(Dim::symbol("own"));
        let mut info = function.values[0].clone();
        (info.ty, info.name) = (result, None);
        function.results.push(super::result(&format!("r{i}"), Value(function.values.len() as u32)));
        function.values.push(info);
    }
    function
}

/// Bodies for some of the targets, of odd lines.
fn bodies(random: &mut Random) -> Vec<TargetBody> {
    const TARGETS: [&str; 3] = ["numpy", "c", "other.target"];
    const LINES: [&str; 6] =
        ["return {x}", "y = {{\"a\": [{x}]}}", "", "    \t\"\\", "größe = 1", "// no % comment"];
    let mut bodies = Vec::new();
    for target in TARGETS {
        if random.chance(40) {
            let more = (0..random.below(3)).map(|_| *random.pick(&LINES));
            let lines: Vec<&str> = std::iter::once("return {x}").chain(more).collect();
            bodies.push(TargetBody { target: target.into(), text: lines.join("\n").into() });
        }
    }
    bodies
}

fn function(name: &str, callees: &[Function], random: &mut Random) -> Function {
    let builder = Builder::new(name);
    // The bare symbols come first, so that every argument tells what they are.
    for symbol in ["n", "m"] {
        let shape = Shape::new([Dim::symbol(symbol)]);
        builder.arg(format!("dim_{symbol}"), Role::Data, Type::new(DType::F32, shape));
    }
    for i in 0..1 + random.below(4) {
        let name = match random.chance(30) {
            true => format!("{}{i}", random.pick(NAMES)),
            false => format!("arg{i}"),
        };
        builder.arg(name, *random.pick(&Role::ALL), ty(random));
    }
    let table: Vec<Op> = operations().collect();
    for _ in 0..random.below(25) {
        if random.chance(20) {
            let path = if random.chance(10) { "odd \"path\"" } else { "net.layer_1" };
            let mut loc = Loc::path(path);
            if random.chance(30) {
                loc.merge(&Loc::path("other"));
            }
            builder.set_loc(loc);
        }
        if random.chance(15) {
            call(&builder, callees, random);
        } else {
            let op = *random.pick(&table);
            (0..40).find(|_| operation(&builder, op, random));
        }
    }
    let mut results = Vec::new();
    let values = builder.with(|f| f.values.len());
    for i in 0..random.below(4) {
        let name = if random.chance(20) { "odd name".to_string() } else { "out".to_string() };
        results.push(super::result(&format!("{name}{i}"), Value(random.below(values) as u32)));
    }
    finish(builder, results, random)
}

fn finish(builder: Builder, mut results: Vec<ResultDef>, random: &mut Random) -> Function {
    builder.with_mut(|f| {
        if random.chance(30) {
            f.constraints.push(Constraint {
                left: Dim::symbol("n"),
                relation: *random.pick(&[Bound::AtMost, Bound::AtLeast]),
                right: Dim::symbol("m") * 3 + 100,
            });
        }
        if let Some(state) = f.args.iter().position(|a| a.role == Role::State) {
            f.args[state].donated = true;
            let mut next = super::result("next state", Value(state as u32));
            next.state = Some(f.args[state].name.clone());
            results.push(next);
        }
    });
    builder.finish(results).expect("no operation fails")
}

/// A value of this class, if a few tries find one.
fn operand(
    builder: &Builder,
    accepts: impl Fn(&Type) -> bool,
    random: &mut Random,
) -> Option<Value> {
    let count = builder.with(|f| f.values.len());
    (0..8).map(|_| Value(random.below(count) as u32)).find(|v| accepts(&builder.ty(*v)))
}

/// Tries to add an operation on values there are.
fn operation(builder: &Builder, op: Op, random: &mut Random) -> bool {
    let mut values: Vec<Value> = Vec::new();
    let mut shared = None;
    for operand in op.operands {
        let count = match operand.arity {
            Arity::One => 1,
            Arity::Optional => random.below(2),
            Arity::Many => 1 + random.below(2),
        };
        for _ in 0..count {
            let fits = |ty: &Type| {
                let same = !operand.shared || shared.is_none_or(|d| d == ty.dtype);
                operand.class.accepts(ty.dtype) && same
            };
            let Some(value) = self::operand(builder, fits, random) else {
                return false;
            };
            if operand.shared {
                shared = Some(builder.ty(value).dtype);
            }
            values.push(value);
        }
        if count == 0 {
            break;
        }
    }
    let types: Vec<Type> = values.iter().map(|v| builder.ty(*v)).collect();
    let mut attrs: smallvec::SmallVec<[Attr; 2]> = Default::default();
    for def in op.attrs {
        let mut value = attr(op, def, &types, &attrs, &[2, 3], random);
        // Shapes of values there are, symbols and all, fit more often than numbers.
        if let (Attr::Shape(_), Some(ty), true) = (&value, types.first(), random.chance(30)) {
            value = ty.shape.clone().into();
        }
        attrs.push(value);
    }
    let Ok(value) = builder.push(op, &values, attrs) else {
        return false;
    };
    if random.chance(30) {
        builder.set_name(value, Some((*random.pick(NAMES)).into()));
    }
    true
}

fn call(builder: &Builder, callees: &[Function], random: &mut Random) {
    if callees.is_empty() {
        return;
    }
    let callee = random.pick(callees);
    let operands: Option<Vec<Value>> = callee
        .arguments()
        .map(|(v, _)| operand(builder, |ty| ty.dtype == callee.ty(v).dtype, random))
        .collect();
    if let Some(operands) = operands {
        let attrs = [Attr::Function(callee.name.clone())].into_iter().collect();
        let _ = builder.call(op::get("call"), callee, attrs, &operands);
    }
}

/// Arguments of the function for n = 3, m = 2 and a rank variable of one dim of 2.
pub fn arguments(f: &Function, random: &mut Random) -> Option<Vec<Tensor>> {
    let size = |s: &Symbol| match s.as_str() {
        "n" => Some(3),
        "m" => Some(2),
        _ => None,
    };
    f.arguments()
        .map(|(v, _)| {
            let ty = f.ty(v);
            let mut dims: Vec<Dim> = Vec::new();
            dims.extend(ty.shape.lead.as_ref().map(|_| Dim::Const(2)));
            for d in &ty.shape.dims {
                dims.push(Dim::Const(d.evaluate(&size)?));
            }
            Some(tensor(&Type::new(ty.dtype, Shape::new(dims)), random))
        })
        .collect()
}
