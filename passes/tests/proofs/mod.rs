//! What proves a rule: instances of its left side, before and after.

mod examples;
mod placed;
pub mod small;
mod special;
mod windowed;

use mithril_ir::builder::Builder;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module, ResultDef, Role, Value};
use mithril_ir::op::Kind;
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_ir::text;
use mithril_passes::autodiff::Autodiff;
use mithril_passes::context::PassContext;
use mithril_passes::eqsat::apply_always;
use mithril_passes::pass::Pass;
use mithril_passes::rules::matched::VARS;
use mithril_passes::rules::pattern::{Node, Pattern};
use mithril_passes::rules::{Class, Rule};

use examples::Example;
use special::SPECIAL;

/// How far results may be from each other, of themselves and at all, in f64.
const TOLERANCE: f64 = 1e-9;
/// Gradients are sums of what cancels.
const GRADIENTS: f64 = 1e-6;

/// Rules whose left side has another gradient at 0 than the function it is.
const BENT: [&str; 1] = ["sigmoid-select"];

/// Numbers of all the same size: what a variable that has to be one number is.
const NUMBERS: [f64; 4] = [2.0, 0.25, -3.0, 5.0];

/// The uses of rules that need attributes or shapes.
pub fn examples() -> impl Iterator<Item = &'static Example> {
    examples::COMPOSED.iter().chain(placed::PLACED).chain(windowed::WINDOWED)
}

/// Checks the rule. Errors: the reason why it does not hold, or cannot be checked.
pub fn prove(rule: &'static Rule) -> Result<(), String> {
    let examples: Vec<&Example> = examples().filter(|example| example.rule == rule.name).collect();
    let mut fired = 0;
    if examples.is_empty() {
        for form in expand(rule.left) {
            let before = fired;
            for dtype in dtypes(rule) {
                fired += usize::from(instances(rule, &form, dtype)?);
            }
            if fired == before {
                return Err(format!("one of its {} forms never fires", expand(rule.left).len()));
            }
        }
    }
    for example in examples {
        for size in [1, 4, 0] {
            by_example(rule, example, size).map_err(|why| format!("{}: {why}", example.body))?;
        }
        fired += 1;
    }
    match fired {
        0 => Err("it never fires".to_string()),
        _ => Ok(()),
    }
}

/// The forms that the alternatives of a pattern make of it.
fn expand(pattern: Pattern) -> Vec<Form> {
    match pattern.node() {
        Node::Any(terms) => terms.iter().flat_map(|term| expand(*term)).collect(),
        Node::Op(op, args, _) => {
            let mut all = vec![Vec::new()];
            for arg in args {
                let forms = expand(*arg);
                let with = |front: &Vec<Form>| {
                    let longer = |form: &Form| front.iter().chain([form]).cloned().collect();
                    forms.iter().map(longer).collect::<Vec<Vec<Form>>>()
                };
                all = all.iter().flat_map(with).collect();
            }
            all.into_iter().map(|args| Form::Op(*op, args)).collect()
        }
        Node::Var(i) => vec![Form::Var(*i)],
        Node::Number(x) | Node::Near(x) => vec![Form::Number(*x)],
        _ => Vec::new(),
    }
}

/// A pattern without alternatives.
#[derive(Clone)]
enum Form {
    Op(mithril_ir::op::Op, Vec<Form>),
    Var(usize),
    Number(f64),
}

fn dtypes(rule: &Rule) -> Vec<DType> {
    use DType::{Bool, F16, F32, F64, I32, I64, U8};
    match rule.class {
        Class::Exact => vec![F64, F32, F16, I32, I64, U8, Bool],
        _ => vec![F64],
    }
}

/// Whether the rule fires on what a form is on arrays of this dtype, some variables numbers.
fn instances(rule: &'static Rule, form: &Form, dtype: DType) -> Result<bool, String> {
    let mut fired = false;
    for numbers in [&[][..], &[3], &[1], &[2], &[1, 2]] {
        for sample in samples(rule.class) {
            let Some((module, args)) = instance(form, dtype, numbers, *sample) else {
                continue;
            };
            let Some(after) = apply_always(&module, rule).map_err(|e| e.to_string())? else {
                continue;
            };
            fired = true;
            compare(rule, &module, &after, &args, *sample)
                .map_err(|why| format!("{dtype}, {sample:?}: {why}\n{module}{}", of(&after)))?;
        }
    }
    Ok(fired)
}

fn of(function: &Function) -> Module {
    Module::of(function.clone())
}

/// What the arguments are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sample {
    /// All pairs of special values.
    Special,
    /// Numbers around 0.
    Plain,
    /// Numbers above 0.
    Positive,
    /// -1, 0 and 1: ties, and corners of functions.
    Corners,
    /// Finite numbers near the largest one.
    Large,
}

fn samples(class: Class) -> &'static [Sample] {
    match class {
        Class::Exact => &[Sample::Special, Sample::Plain, Sample::Corners],
        Class::Recognise => {
            &[Sample::Special, Sample::Plain, Sample::Positive, Sample::Corners, Sample::Large]
        }
        Class::Reassociating => &[Sample::Plain, Sample::Positive],
        Class::Fast => &[Sample::Positive],
    }
}

fn values(sample: Sample, seed: usize, count: usize) -> Vec<f64> {
    let special = |k: usize| match seed {
        0 => SPECIAL[k % SPECIAL.len()],
        1 => SPECIAL[k / SPECIAL.len() % SPECIAL.len()],
        _ => SPECIAL[(k * 7 + seed) % SPECIAL.len()],
    };
    let mut state = 77 + seed as u64;
    let mut unit = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count)
        .map(|k| match sample {
            Sample::Special => special(k),
            Sample::Plain => 6.0 * unit() - 3.0,
            Sample::Positive => 0.2 + 3.0 * unit(),
            Sample::Corners => (3.0 * unit()).floor() - 1.0,
            Sample::Large => (unit() - 0.5) * f64::MAX,
        })
        .collect()
}

/// What a variable of a form stands for.
pub enum Arg {
    /// An array of this shape with these elements.
    Array(Vec<usize>, Vec<f64>),
    /// A literal of this shape, all of whose elements are this number.
    Number(Vec<usize>, f64),
    /// Nothing: the form has no such variable.
    Unused,
}

/// A form on arrays; `None` where it does not take the dtype, or needs attributes.
fn instance(
    form: &Form,
    dtype: DType,
    numbers: &[usize],
    sample: Sample,
) -> Option<(Module, Vec<Tensor>)> {
    let count = SPECIAL.len() * SPECIAL.len();
    let conditions = conditions(form);
    let arg = |i: usize| match (
        numbers.iter().position(|number| *number == i),
        conditions.contains(&i),
    ) {
        (Some(_), _) if dtype == DType::U8 => Arg::Number(Vec::new(), 2.0),
        (Some(at), _) => Arg::Number(Vec::new(), NUMBERS[at + numbers.len() - 1]),
        (_, true) => {
            Arg::Array(vec![count], (0..count).map(|k| (k % 3 == 0) as u8 as f64).collect())
        }
        _ => Arg::Array(vec![count], values(sample, i, count)),
    };
    let args: Vec<Arg> = (0..VARS).map(arg).collect();
    assemble(form, dtype, &args)
}

/// A form on these arguments; `None` where it does not take them, or needs attributes.
fn assemble(form: &Form, dtype: DType, args: &[Arg]) -> Option<(Module, Vec<Tensor>)> {
    let conditions = conditions(form);
    let of = |i: usize| if conditions.contains(&i) { DType::Bool } else { dtype };
    let b = Builder::new("main");
    let mut tensors = Vec::new();
    let mut operands = vec![None; args.len()];
    for (i, arg) in args.iter().enumerate() {
        if let Arg::Array(shape, elements) = arg {
            let ty = Type::new(of(i), Shape::fixed(shape));
            operands[i] = Some(b.arg(format!("x{i}"), Role::Param, ty));
            tensors.push(Tensor::from_f64s(of(i), shape.clone(), elements));
        }
    }
    for (i, arg) in args.iter().enumerate() {
        if let Arg::Number(shape, number) = arg {
            let elements = vec![*number; shape.iter().product()];
            operands[i] = Some(b.constant(Tensor::from_f64s(of(i), shape.clone(), &elements)));
        }
    }
    let value = build(&b, form, &operands, dtype)?;
    let result = ResultDef { name: "r".into(), value, state: None };
    Some((Module::of(b.finish(vec![result]).ok()?), tensors))
}

/// Which variables choose.
fn conditions(form: &Form) -> Vec<usize> {
    let Form::Op(op, args) = form else {
        return Vec::new();
    };
    let mut all: Vec<usize> = args.iter().flat_map(conditions).collect();
    if let (Some(Form::Var(i)), "select") = (args.first(), op.0.name) {
        all.push(*i);
    }
    all
}

fn build(b: &Builder, form: &Form, args: &[Option<Value>], dtype: DType) -> Option<Value> {
    match form {
        Form::Var(i) => args[*i],
        Form::Number(x) => {
            let number = Tensor::scalar(dtype, *x);
            let kept = dtype.is_float() || number.element_f64(0).to_bits() == x.to_bits();
            kept.then(|| b.constant(number))
        }
        Form::Op(op, operands) => {
            if op.kind != Kind::Elementwise {
                return None;
            }
            let values: Option<Vec<Value>> =
                operands.iter().map(|operand| build(b, operand, args, dtype)).collect();
            b.op(op.0.name, &values?, &[]).ok()
        }
    }
}

fn by_example(rule: &'static Rule, example: &Example, size: i64) -> Result<(), String> {
    let source = format!(
        "mithril 1\nfunc @main({}) -> (r: {}) {{\n{}\nreturn %r\n}}",
        example.args, example.result, example.body
    );
    let module = text::parse(&source).map_err(|e| e.render("", &source))?;
    let after = apply_always(&module, rule).map_err(|e| e.to_string())?;
    let after = after.ok_or("it does not fire")?;
    let entry = module.entry().expect("an entry");
    for sample in samples(rule.class) {
        let args: Vec<Tensor> = (entry.arguments().enumerate())
            .map(|(i, (value, _))| {
                let ty = entry.ty(value);
                let dims = ty.shape.dims.iter().map(|dim| dim.evaluate(&|_| Some(size)));
                let shape: Vec<usize> = dims.map(|dim| dim.unwrap() as usize).collect();
                let count = shape.iter().product();
                let values = match ty.dtype {
                    DType::Bool => (0..count).map(|k| (k % 3 != 1) as u8 as f64).collect(),
                    dtype if dtype.is_int() => (0..count).map(|k| (k % 3) as f64).collect(),
                    _ => values(*sample, i, count),
                };
                Tensor::from_f64s(ty.dtype, shape, &values)
            })
            .collect();
        compare(rule, &module, &after, &args, *sample)
            .map_err(|why| format!("n = {size}, {sample:?}: {why}\n{module}{}", of(&after)))?;
    }
    Ok(())
}

fn run(module: &Module, function: &Function, args: &[Tensor]) -> Result<Vec<Tensor>, String> {
    evaluate(module, function, args).map_err(|error| error.to_string())
}

/// Compares what both functions give, and their gradients.
fn compare(
    rule: &Rule,
    module: &Module,
    after: &Function,
    args: &[Tensor],
    sample: Sample,
) -> Result<(), String> {
    let entry = module.entry().expect("an entry");
    let before = run(module, entry, args)?;
    let tolerance = match sample {
        _ if rule.class == Class::Exact => 0.0,
        Sample::Special | Sample::Large => f64::INFINITY,
        _ => TOLERANCE,
    };
    same(&before[0], &run(module, after, args)?[0], tolerance)?;
    let float = |t: &Tensor| t.dtype() == DType::F64;
    let bent = sample == Sample::Corners && BENT.contains(&rule.name);
    let wild = rule.class != Class::Exact && matches!(sample, Sample::Special | Sample::Large);
    if !float(&before[0]) || wild || bent {
        return Ok(());
    }
    let mut all = args.to_vec();
    all.push(Tensor::from_f64s(
        DType::F64,
        before[0].shape().to_vec(),
        &values(sample, 9, before[0].len()),
    ));
    let gradients = |function: &Function| -> Result<Vec<Tensor>, String> {
        let mut function = function.clone();
        for (at, tensor) in args.iter().enumerate() {
            let role = if float(tensor) { Role::Param } else { Role::Data };
            function.args[at].role = role;
        }
        let module =
            Autodiff::default().run(&Module::of(function), &mut PassContext::new("autodiff"));
        let module = module.map_err(|error| error.to_string())?;
        run(&module, module.get("gradients").expect("the pass adds it"), &all)
    };
    for (before, now) in gradients(entry)?.iter().zip(&gradients(after)?) {
        agree(before, now, GRADIENTS).map_err(|why| format!("gradients: {why}"))?;
    }
    Ok(())
}

/// Whether two results are of one type and agree.
fn same(before: &Tensor, now: &Tensor, tolerance: f64) -> Result<(), String> {
    match before.shape() == now.shape() && before.dtype() == now.dtype() {
        true => agree(before, now, tolerance),
        false => Err("another type".to_string()),
    }
}

/// Whether finite numbers stay finite, within the tolerance; equal bit by bit if the tolerance is
/// 0.
fn agree(before: &Tensor, now: &Tensor, tolerance: f64) -> Result<(), String> {
    for at in 0..before.len() {
        let (a, b) = (before.element_f64(at), now.element_f64(at));
        let same = match tolerance {
            0.0 => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
            // Where it was not finite it may be anything.
            _ if !a.is_finite() => true,
            _ => b.is_finite() && (a - b).abs() <= tolerance * (1.0 + a.abs()),
        };
        if !same {
            return Err(format!("element {at}: {b}, expected {a}"));
        }
    }
    Ok(())
}
