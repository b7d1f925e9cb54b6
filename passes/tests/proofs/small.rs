//! Rules on everything that is small: all numbers of eight bits, all shapes of few axes.

use mithril_ir::attr::Attr;
use mithril_ir::op::Op;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;
use mithril_passes::rules::Attrs;

use super::*;

/// Which variables are numbers: what a condition of a rule may ask for.
const NUMBERS_AT: [&[usize]; 5] = [&[], &[3], &[1], &[2], &[1, 2]];

/// What a third variable of eight bits is, as bits: corners, and some between.
const FEW: [i64; 8] = [-128, -127, -17, -1, 0, 1, 2, 127];

/// Proves the rule on small numbers and shapes; whether it fires on any.
pub fn prove(rule: &'static Rule) -> Result<bool, String> {
    let mut fired = false;
    for form in expand(rule.left) {
        for dtype in [DType::I8, DType::U8, DType::Bool] {
            fired |= on_integers(rule, &form, dtype)?;
        }
        fired |= on_shapes(rule, &form)?;
    }
    fired |= on_attributes(rule)?;
    Ok(on_joined(rule)? || fired)
}

/// What the rule makes of the module, if it fits. Literals of what is known are `canonicalize`'s.
fn rewritten(rule: &'static Rule, module: &Module) -> Result<Option<Function>, String> {
    if !matches!(rule.right.node(), Node::Known) {
        return apply_always(module, rule).map_err(|error| error.to_string());
    }
    let pipeline = Pipeline::parse("canonicalize", &[]).expect("there is such a pass");
    let (after, report) =
        Driver { verify: true }.run(&pipeline, module).map_err(|error| error.to_string())?;
    let fired = report.rewrites.iter().any(|rewrite| rewrite.rule == rule.name);
    Ok(after.entry().filter(|_| fired).map(|entry| Function::clone(entry)))
}

/// Whether the rule fires on the module; an error where it then gives something else.
fn check(rule: &'static Rule, module: &Module, args: &[Tensor]) -> Result<bool, String> {
    let Some(after) = rewritten(rule, module)? else {
        return Ok(false);
    };
    // Undefined results, such as the maximum of no elements, may change.
    let Ok(before) = run(module, module.entry().expect("an entry"), args) else {
        return Ok(true);
    };
    let exact = rule.class == Class::Exact || !before[0].dtype().is_float();
    let now = run(module, &after, args)?;
    same(&before[0], &now[0], if exact { 0.0 } else { TOLERANCE })
        .map_err(|why| format!("{why}\n{module}{}", of(&after)))?;
    Ok(true)
}

/// The variables that a form has.
fn variables(form: &Form) -> Vec<usize> {
    let mut all = match form {
        Form::Var(i) => vec![*i],
        Form::Number(_) => Vec::new(),
        Form::Op(_, args) => args.iter().flat_map(variables).collect(),
    };
    all.sort_unstable();
    all.dedup();
    all
}

/// All values of a dtype of eight bits, or those of [`FEW`].
fn domain(dtype: DType, all: bool) -> Vec<f64> {
    let kept = |bits: &i64| all || FEW.contains(bits);
    let bits: Vec<i64> = (-128..128).filter(kept).collect();
    match dtype {
        DType::Bool => vec![0.0, 1.0],
        DType::U8 => bits.iter().map(|x| *x as u8 as f64).collect(),
        _ => bits.iter().map(|x| *x as f64).collect(),
    }
}

/// The first choice of variables as numbers for which the rule fires on a form.
fn numbers_for(
    rule: &'static Rule,
    form: &Form,
    dtype: DType,
) -> Result<Option<&'static [usize]>, String> {
    let vars = variables(form);
    for numbers in NUMBERS_AT.into_iter().filter(|at| at.iter().all(|i| vars.contains(i))) {
        let arg = |i: usize| match numbers.contains(&i) {
            true => Arg::Number(Vec::new(), 2.0),
            false => Arg::Array(vec![2], vec![1.0, 0.0]),
        };
        let args: Vec<Arg> = (0..VARS).map(arg).collect();
        if let Some((module, _)) = assemble(form, dtype, &args)
            && rewritten(rule, &module)?.is_some()
        {
            return Ok(Some(numbers));
        }
    }
    Ok(None)
}

/// All values of one variable, all pairs of two, with each condition; a third one is of [`FEW`].
fn on_integers(rule: &'static Rule, form: &Form, dtype: DType) -> Result<bool, String> {
    let Some(numbers) = numbers_for(rule, form, dtype)? else {
        return Ok(false);
    };
    let constants = domain(dtype, numbers.len() == 1 && variables(form).len() < 3);
    for k in 0..constants.len().pow(numbers.len() as u32) {
        let number = |at: usize| constants[k / constants.len().pow(at as u32) % constants.len()];
        let numbers: Vec<(usize, f64)> =
            numbers.iter().enumerate().map(|(at, i)| (*i, number(at))).collect();
        if let Some((module, args)) = assemble(form, dtype, &product(form, dtype, &numbers)) {
            check(rule, &module, &args).map_err(|why| format!("{dtype}: {why}"))?;
        }
    }
    Ok(true)
}

/// The variables of a form as columns of the product of their domains; some are numbers.
fn product(form: &Form, dtype: DType, numbers: &[(usize, f64)]) -> Vec<Arg> {
    let conditions = conditions(form);
    let number = |i: usize| numbers.iter().find(|(at, _)| *at == i).map(|(_, number)| *number);
    let free: Vec<usize> = variables(form).into_iter().filter(|i| number(*i).is_none()).collect();
    let mut places = 0;
    let domains: Vec<Vec<f64>> = (free.iter())
        .map(|i| {
            let chooses = conditions.contains(i);
            places += usize::from(!chooses);
            domain(if chooses { DType::Bool } else { dtype }, places <= 2)
        })
        .collect();
    let count: usize = domains.iter().map(Vec::len).product();
    let arg = |i: usize| match (number(i), free.iter().position(|own| *own == i)) {
        (Some(number), _) => Arg::Number(Vec::new(), number),
        (_, None) => Arg::Unused,
        (_, Some(at)) => {
            let (own, step) = (&domains[at], domains[..at].iter().map(Vec::len).product::<usize>());
            Arg::Array(vec![count], (0..count).map(|k| own[k / step % own.len()]).collect())
        }
    };
    (0..VARS).map(arg).collect()
}

/// All shapes of at most so many axes, of dims of at most so much.
fn shapes(axes: usize, most: usize) -> Vec<Vec<usize>> {
    let longer = |shape: &Vec<usize>| -> Vec<Vec<usize>> {
        (0..=most).map(|dim| [&shape[..], &[dim]].concat()).collect()
    };
    let mut all = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..axes {
        last = last.iter().flat_map(longer).collect();
        all.extend_from_slice(&last);
    }
    all
}

/// A form whose literals are additional variables, after all others.
fn without_literals(form: &Form, literals: &mut Vec<f64>) -> Form {
    match form {
        Form::Var(i) => Form::Var(*i),
        Form::Number(x) => {
            literals.push(*x);
            Form::Var(VARS + literals.len() - 1)
        }
        Form::Op(op, args) => {
            Form::Op(*op, args.iter().map(|arg| without_literals(arg, literals)).collect())
        }
    }
}

/// An elementwise form on operands and literals of all small shapes that broadcast.
fn on_shapes(rule: &'static Rule, form: &Form) -> Result<bool, String> {
    for dtype in [DType::F64, DType::I32, DType::Bool] {
        if let Some(numbers) = numbers_for(rule, form, dtype)? {
            broadcast(rule, form, dtype, numbers)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn broadcast(
    rule: &'static Rule,
    form: &Form,
    dtype: DType,
    numbers: &[usize],
) -> Result<(), String> {
    let mut literals = Vec::new();
    let form = without_literals(form, &mut literals);
    let vars = variables(&form);
    let sample = if rule.class == Class::Fast { Sample::Positive } else { Sample::Plain };
    let all = match vars.len() {
        1 => shapes(3, 3),
        2 => shapes(2, 3),
        3 => shapes(2, 1),
        _ => shapes(1, 1),
    };
    for k in 0..all.len().pow(vars.len() as u32) {
        let arg = |i: usize| {
            let Some(at) = vars.iter().position(|own| *own == i) else {
                return Arg::Unused;
            };
            let shape = all[k / all.len().pow(at as u32) % all.len()].clone();
            match i.checked_sub(VARS) {
                Some(literal) => Arg::Number(shape, literals[literal]),
                None if numbers.contains(&i) => Arg::Number(shape, 2.0),
                None => {
                    let count = shape.iter().product();
                    Arg::Array(shape, values(sample, i, count))
                }
            }
        };
        let args: Vec<Arg> = (0..VARS + literals.len()).map(arg).collect();
        if let Some((module, tensors)) = assemble(&form, dtype, &args) {
            check(rule, &module, &tensors)?;
        }
    }
    Ok(())
}

/// The operations of a term that is one on another down to a variable, innermost first; of each of
/// its forms.
fn chains(pattern: Pattern) -> Vec<Vec<Op>> {
    match pattern.node() {
        Node::Var(_) => vec![Vec::new()],
        Node::Any(terms) => terms.iter().flat_map(|term| chains(*term)).collect(),
        Node::Op(op, args, _) if args.len() == 1 => {
            let longer = |ops: Vec<Op>| [&ops[..], &[*op]].concat();
            chains(args[0]).into_iter().map(longer).collect()
        }
        _ => Vec::new(),
    }
}

/// Operations on one operand with all attributes that small shapes allow.
fn on_attributes(rule: &'static Rule) -> Result<bool, String> {
    let plain = |op: &Op| op.kind == Kind::Elementwise && op.attrs.is_empty();
    let mut fired = false;
    for ops in chains(rule.left).iter().filter(|ops| !ops.iter().all(plain)) {
        fired |= on_chain(rule, ops)?;
    }
    Ok(fired)
}

fn on_chain(rule: &'static Rule, ops: &[Op]) -> Result<bool, String> {
    let casts = ops.iter().any(|op| op.name == "cast");
    let bools = ops.iter().any(|op| matches!(op.name, "any" | "all"));
    let dtypes = DType::ALL.into_iter().filter(|dtype| match (casts, bools) {
        (true, _) => !dtype.is_storage_only(),
        (_, true) => *dtype == DType::Bool,
        _ => *dtype == DType::F64,
    });
    let element = |k: usize| match (casts, bools) {
        (true, _) => SPECIAL.get(k).copied().unwrap_or(k as f64 - 128.0),
        (_, true) => (k % 2) as f64,
        _ => 0.5 + k as f64,
    };
    let mut fired = false;
    for dtype in dtypes {
        for shape in if casts { vec![vec![256]] } else { shapes(3, 3) } {
            let elements: Vec<f64> = (0..shape.iter().product()).map(element).collect();
            let x = Tensor::from_f64s(dtype, shape, &elements);
            fired |= descend(rule, ops, &mut Vec::new(), &x)?;
        }
    }
    Ok(fired)
}

/// Checks the first operations with these attributes and the others with all that they may have.
fn descend(
    rule: &'static Rule,
    ops: &[Op],
    chosen: &mut Vec<Attrs>,
    x: &Tensor,
) -> Result<bool, String> {
    let b = Builder::new("main");
    let ty = Type::new(x.dtype(), Shape::fixed(x.shape()));
    let mut value = b.arg("x", Role::Param, ty);
    for (op, attrs) in ops.iter().zip(chosen.iter()) {
        match b.op(op.name, &[value], attrs) {
            Ok(made) => value = made,
            Err(_) => return Ok(false),
        }
    }
    let Some(op) = ops.get(chosen.len()) else {
        let result = ResultDef { name: "r".into(), value, state: None };
        let module = Module::of(b.finish(vec![result]).expect("its operations are right"));
        return check(rule, &module, std::slice::from_ref(x));
    };
    let shape: Vec<usize> = b.ty(value).shape.as_fixed().expect("dims are numbers");
    let mut fired = false;
    for attrs in attributes(*op, &shape) {
        chosen.push(attrs);
        fired |= descend(rule, ops, chosen, x)?;
        chosen.pop();
    }
    Ok(fired)
}

/// Slices of concatenations, and concatenations of slices, of at most two axes.
fn on_joined(rule: &'static Rule) -> Result<bool, String> {
    let parts_of_joined = match rule.left.node() {
        Node::Neighbours(..) => false,
        Node::Op(_, args, _) if matches!(args[..], [arg] if matches!(arg.node(), Node::Among(..))) => {
            true
        }
        _ => return Ok(false),
    };
    let mut fired = false;
    for shape in shapes(1, 4).into_iter().chain(shapes(2, 2)).filter(|shape| !shape.is_empty()) {
        for axis in 0..shape.len() {
            fired |= match parts_of_joined {
                true => slices_of_joined(rule, &shape, axis)?,
                false => joined_slices(rule, &shape, axis)?,
            };
        }
    }
    Ok(fired)
}

fn array(shape: &[usize], from: f64) -> Tensor {
    let elements: Vec<f64> = (0..shape.iter().product()).map(|k| from + k as f64).collect();
    Tensor::from_f64s(DType::F64, shape.to_vec(), &elements)
}

/// Every part of two arrays side by side, in both orders.
fn slices_of_joined(rule: &'static Rule, shape: &[usize], axis: usize) -> Result<bool, String> {
    let mut fired = false;
    for other in 0..=2 {
        let mut next = shape.to_vec();
        next[axis] = other;
        for shapes in [[shape, &next], [&next, shape]] {
            let tensors = [array(shapes[0], 1.0), array(shapes[1], 100.0)];
            let mut joined = shape.to_vec();
            joined[axis] += other;
            for attrs in slices(&joined) {
                fired |= joined_of(rule, &tensors, |b, values| {
                    let whole = b.op("concat", values, &[("axis", (axis as i64).into())]).ok()?;
                    b.op("slice", &[whole], &attrs).ok()
                })?;
            }
        }
    }
    Ok(fired)
}

/// Every two parts of an array side by side.
fn joined_slices(rule: &'static Rule, shape: &[usize], axis: usize) -> Result<bool, String> {
    let x = [array(shape, 1.0)];
    let (all, mut fired) = (slices(shape), false);
    for (first, second) in all.iter().flat_map(|first| all.iter().map(move |next| (first, next))) {
        fired |= joined_of(rule, &x, |b, values| {
            let parts = [first, second].map(|attrs| b.op("slice", values, attrs).ok());
            let parts: Option<Vec<Value>> = parts.into_iter().collect();
            b.op("concat", &parts?, &[("axis", (axis as i64).into())]).ok()
        })?;
    }
    Ok(fired)
}

/// Checks what is built of arrays; nothing where it is not allowed.
fn joined_of(
    rule: &'static Rule,
    tensors: &[Tensor],
    build: impl Fn(&Builder, &[Value]) -> Option<Value>,
) -> Result<bool, String> {
    let b = Builder::new("main");
    let arg = |(i, x): (usize, &Tensor)| {
        b.arg(format!("x{i}"), Role::Param, Type::new(x.dtype(), Shape::fixed(x.shape())))
    };
    let values: Vec<Value> = tensors.iter().enumerate().map(arg).collect();
    let Some(value) = build(&b, &values) else {
        return Ok(false);
    };
    let result = ResultDef { name: "r".into(), value, state: None };
    let module = Module::of(b.finish(vec![result]).expect("its operations are right"));
    check(rule, &module, tensors)
}

/// What an operation on an operand of this shape may have for attributes, and some it may not.
fn attributes(op: Op, shape: &[usize]) -> Vec<Attrs> {
    let rank = shape.len();
    let count: usize = shape.iter().product();
    let each = |name, all: Vec<Attr>| all.into_iter().map(|attr| vec![(name, attr)]).collect();
    let fixed = |shape: Vec<usize>| Attr::from(Shape::fixed(&shape));
    let sized = |of: &dyn Fn(usize) -> bool| {
        let fits = move |shape: &Vec<usize>| of(shape.iter().product());
        shapes(if count == 0 { 2 } else { 3 }, 3).into_iter().filter(fits).map(fixed).collect()
    };
    match op.name {
        "reshape" => each("shape", sized(&|other| other == count)),
        "sum_to" => each("shape", sized(&|_| true)),
        "broadcast_in_dim" => broadcasts(rank),
        "expand_dims" if rank > 3 => each("axes", orders(1, rank + 1)),
        "expand_dims" => each("axes", subsets(rank + 1)),
        "squeeze" | "reverse" => each("axes", subsets(rank)),
        "transpose" => each("permutation", orders(rank, rank)),
        "swap_axes" => {
            let (rank, mut all) = (rank as i64, Vec::new());
            for first in 0..rank {
                all.extend((-rank..rank).map(|second| {
                    vec![("first", Attr::Int(first)), ("second", Attr::Int(second))]
                }));
            }
            all
        }
        "slice" => slices(shape),
        "concat" | "dim" => each("axis", (0..rank as i64).map(Attr::Int).collect()),
        "cast" => each("dtype", DType::ALL.into_iter().map(Attr::from).collect()),
        _ if op.attr_index("keepdim").is_some() => {
            let axes = subsets(rank).into_iter().chain([Attr::None]);
            let both = |axes: Attr| {
                [true, false].map(|keep| vec![("axes", axes.clone()), ("keepdim", keep.into())])
            };
            axes.flat_map(both).collect()
        }
        _ => vec![Vec::new()],
    }
}

/// All sets of axes, and the last one from the back.
fn subsets(rank: usize) -> Vec<Attr> {
    let among = |bits: usize| (0..rank).filter(move |axis| bits >> axis & 1 == 1);
    let all = (0..1usize << rank).map(|bits| Attr::ints(among(bits).map(|axis| axis as i64)));
    all.chain((rank > 0).then(|| Attr::ints([-1]))).collect()
}

/// All ways to take so many axes, each once.
fn orders(count: usize, rank: usize) -> Vec<Attr> {
    let mut all: Vec<Vec<i64>> = vec![Vec::new()];
    for _ in 0..count {
        let longer = |order: &Vec<i64>| {
            let order = order.clone();
            let free = (0..rank as i64).filter(|axis| !order.contains(axis)).collect::<Vec<_>>();
            free.into_iter().map(move |axis| [&order[..], &[axis]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all.into_iter().map(Attr::ints).collect()
}

fn broadcasts(rank: usize) -> Vec<Attrs> {
    let all = shapes(3, 2).into_iter().filter(|shape| shape.len() >= rank);
    let with_axes = |shape: Vec<usize>| {
        let axes = orders(rank, shape.len()).into_iter().chain([Attr::None]);
        let attrs = move |axes| vec![("shape", Attr::from(Shape::fixed(&shape))), ("axes", axes)];
        axes.map(attrs).collect::<Vec<Attrs>>()
    };
    all.flat_map(with_axes).collect()
}

/// From and to everywhere, of at most two axes; by every element, or every second one.
fn slices(shape: &[usize]) -> Vec<Attrs> {
    let mut all: Vec<[Vec<usize>; 2]> = vec![[Vec::new(), Vec::new()]];
    for dim in shape.iter().filter(|_| shape.len() <= 2) {
        let longer = |[starts, limits]: &[Vec<usize>; 2]| -> Vec<[Vec<usize>; 2]> {
            let ranges =
                (0..=*dim).flat_map(|start| (start..=*dim).map(move |limit| (start, limit)));
            let ranges = ranges.collect::<Vec<_>>().into_iter();
            ranges
                .map(|(start, limit)| {
                    [[&starts[..], &[start]].concat(), [&limits[..], &[limit]].concat()]
                })
                .collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    let axes = |step: i64, rank: usize| Attr::ints(vec![step; rank]);
    let attrs = |[starts, limits]: &[Vec<usize>; 2]| {
        [Attr::None, axes(1, starts.len()), axes(2, starts.len())].map(|steps| {
            vec![
                ("axes", Attr::ints(0..starts.len() as i64)),
                ("starts", Shape::fixed(starts).into()),
                ("limits", Shape::fixed(limits).into()),
                ("steps", steps),
            ]
        })
    };
    all.iter().flat_map(attrs).collect()
}
