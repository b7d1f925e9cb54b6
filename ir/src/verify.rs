//! The verifier. The invariants of a valid module:
//!
//! 1. A function is stored under its own name.
//! 2. Arguments are the first values, in order; their names are unique, and so are the results'.
//! 3. Each operation's results are the next values, so operations are sorted by data flow.
//! 4. Operands are defined before the operation; results of the function are values it has.
//! 5. Attributes are complete, in the order of the table, and of the kinds it gives.
//! 6. Result types equal the inferred ones, except that they may name symbols that inference
//!    leaves open, and dims that guards make equal.
//! 7. Callees exist, and calls match their signatures; the `vjp` of a `custom_gradient` takes
//!    operands, results and cotangents, and returns the operands' cotangents. Both functions of a
//!    `cond` return the same types.
//! 8. No function calls itself, directly or through others.
//! 9. A state result pairs with a state argument of its type, and no other result does.
//! 10. External functions have no operations: their values are arguments and results. A function
//!     has at most one body per target; bodies name arguments.
//! 11. Storage-only dtypes are only moved and cast, never computed in.
//! 12. Symbols are identifiers, so that text can be read back; no dim of an argument is negative.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use crate::dim::{Dim, Symbol};
use crate::graph::{Function, Module, Operation, Role, Value};
use crate::message;
use crate::op::{Default, Gradient};
use crate::order::needed_first;
use crate::retype::{Equalities, Inferred, infer_results, settle};
use crate::shape::Type;
use crate::signature::passed_types;
use crate::text::is_identifier;

/// Checks every function of the module, and the calls between them.
/// Errors: the first violated invariant, and where.
pub fn verify(module: &Module) -> Result<()> {
    for (name, function) in &module.functions {
        if *name != function.name {
            return Diagnostic::new("a function is stored under a different name")
                .got(format!("`{}` under `{name}`", function.name))
                .err();
        }
    }
    let number = |name: &str| module.functions.get_index_of(name);
    let callees: Vec<Vec<usize>> = module
        .functions
        .values()
        .map(|f| {
            let names = f.ops.iter().flat_map(Operation::functions);
            names.filter_map(|name| number(name)).collect()
        })
        .collect();
    needed_first(&callees).or_else(|cycle| {
        let name = |&i: &usize| module.functions.get_index(i).map(|(name, _)| &**name);
        let names: Vec<&str> = cycle.iter().filter_map(name).collect();
        recursion(&names).err()
    })?;
    module.functions.values().try_for_each(|f| verify_function(module, f))
}

/// The error for recursion: functions that call each other in a cycle.
pub(crate) fn recursion(names: &[&str]) -> Diagnostic {
    let circle: Vec<String> =
        names.iter().chain(names.first()).map(|name| format!("`{name}`")).collect();
    Diagnostic::new("functions must not be recursive").got(circle.join(" → "))
}

/// Checks one function against the signatures of the module. Does not check for recursion, which
/// [`verify`] does.
/// Errors: the first violated invariant, and where.
pub fn verify_function(module: &Module, f: &Function) -> Result<()> {
    signature(f)?;
    if f.external {
        return Ok(());
    }
    let mut symbols: FxHashSet<Symbol> = FxHashSet::default();
    for (value, _) in f.arguments() {
        f.ty(value).shape.for_each_symbol(&mut |symbol| {
            if !symbols.contains(symbol) {
                symbols.insert(symbol.clone());
            }
        });
    }
    let equalities = Equalities::of(&f.guards, &f.constraints);
    let mut next = f.args.len() as u32;
    for (i, op) in f.ops.iter().enumerate() {
        operation(module, f, op, next, &equalities, &symbols)
            .map_err(|error| locate(error, f, i))?;
        next += op.results;
    }
    Ok(())
}

fn locate(mut error: Box<Diagnostic>, f: &Function, i: usize) -> Box<Diagnostic> {
    let op = &f.ops[i];
    error.place.get_or_insert_with(|| {
        let block = match op.loc.shortest() {
            Some(path) => format!(" of block `{path}`"),
            None => String::new(),
        };
        format!("operation {i}, `{}`,{block} in function `{}`", op.op.name, f.name)
    });
    error
}

fn operation(
    module: &Module,
    f: &Function,
    op: &Operation,
    next: u32,
    equalities: &Equalities,
    symbols: &FxHashSet<Symbol>,
) -> Result<()> {
    if op.first.0 != next {
        return Diagnostic::new(
            "the results of an operation must be the next values of the \
                                function",
        )
        .got(format!("%{}", op.first.0))
        .expected(format!("%{next}"))
        .err();
    }
    if op.results as usize > f.values.len() - next as usize {
        return Diagnostic::new("an operation has more results than the function has values")
            .got(format!("{} values", f.values.len()))
            .err();
    }
    let inferred = infer_operation(module, f, op)?;
    if inferred.types.len() != op.results as usize {
        return Diagnostic::new(format!("`{}` has the wrong number of results", op.op.name))
            .got(op.results)
            .expected(inferred.types.len())
            .err();
    }
    let declared: SmallVec<[&Type; 2]> = op.results().map(|v| f.ty(v)).collect();
    if !inferred.fresh.is_empty() {
        declared.iter().try_for_each(|ty| identifiers(ty))?;
    }
    let settled = settle(&inferred, &declared, equalities, &|s| symbols.contains(s));
    settled.map(drop).or_else(|i| {
        Diagnostic::new("the type of a result differs from the inferred type")
            .got(declared[i])
            .expected(&inferred.types[i])
            .err()
    })
}

/// Checks an operation's operands, attributes and callees, and infers its types.
/// Errors: the violated invariant.
pub(crate) fn infer_operation(module: &Module, f: &Function, op: &Operation) -> Result<Inferred> {
    for operand in &op.operands {
        if *operand >= op.first {
            return Diagnostic::new("an operand is used before it is defined")
                .got(format!("%{}", operand.0))
                .err();
        }
    }
    attributes(op)?;
    for name in op.functions() {
        if module.get(name).is_none() {
            let names = module.functions.keys().map(|k| &**k);
            let mut error = Diagnostic::new(format!("there is no function `{name}`"));
            error.hint = did_you_mean(name, names);
            return error.err();
        }
    }
    let mut functions = op.functions().filter_map(|name| module.get(name));
    let callee = functions.next();
    let inferred = infer_results(f, op.op, &op.operands, &op.attrs, callee.map(|f| &**f))?;
    match (functions.next(), op.op.gradient) {
        (None, _) => {}
        (Some(other), Gradient::Branches) => branches_match(f, op, &inferred, other)?,
        (Some(vjp), _) => vjp_matches(f, op, &inferred, vjp)?,
    }
    Ok(inferred)
}

fn attributes(op: &Operation) -> Result<()> {
    if op.attrs.len() != op.op.attrs.len() {
        return Diagnostic::new(format!("the attributes of `{}` are not complete", op.op.name))
            .got(op.attrs.len())
            .expected(op.op.attrs.len())
            .err();
    }
    for (def, attr) in op.op.attrs.iter().zip(&op.attrs) {
        let fits = match attr.kind() {
            Some(kind) => kind == def.kind,
            None => matches!(def.default, Default::None),
        };
        if !fits {
            return Diagnostic::of(
                ErrorKind::Setting,
                format!("the attribute `{}` of `{}` has the wrong type", def.name, op.op.name),
            )
            .got(attr.kind().map_or("nothing", |kind| kind.name()))
            .expected(def.kind.name())
            .err();
        }
    }
    Ok(())
}

/// Types a call of the second function of a `cond`. Errors: its results have other types than those
/// of the first.
fn branches_match(
    f: &Function,
    op: &Operation,
    inferred: &Inferred,
    otherwise: &Function,
) -> Result<()> {
    let operands: Vec<Type> = op.operands.iter().map(|v| f.ty(*v).clone()).collect();
    let taken = passed_types(op, 1, &operands);
    let mut count = 0;
    let mut fresh = || {
        count += 1;
        Symbol::from(format!("''{count}"))
    };
    let taken: Vec<&Type> = taken.iter().collect();
    let types = crate::signature::instantiate(otherwise, &taken, &mut Vec::new(), &mut fresh)?;
    let pairs = types.iter().zip(&inferred.types);
    let same = types.len() == inferred.types.len()
        && pairs.into_iter().all(|(a, b)| a.dtype == b.dtype && fits(a, b));
    if same {
        return Ok(());
    }
    Diagnostic::of(ErrorKind::Shapes, "the functions of a `cond` return different types")
        .got(format!("{} from `{}`", list(types.iter()), otherwise.name))
        .expected(list(inferred.types.iter()))
        .err()
}

/// Types a call of the gradient function `vjp` on the values that autodiff will pass to it.
fn vjp_matches(f: &Function, op: &Operation, inferred: &Inferred, vjp: &Function) -> Result<()> {
    let operands: Vec<&Type> = op.operands.iter().map(|v| f.ty(*v)).collect();
    let mut given = operands.clone();
    given.extend(&inferred.types);
    given.extend(inferred.types.iter().filter(|ty| ty.dtype.is_float()));
    let floats: Vec<&Type> = operands.iter().copied().filter(|ty| ty.dtype.is_float()).collect();
    let (mut guards, mut count) = (Vec::new(), 0);
    let mut fresh = || {
        count += 1;
        Symbol::from(format!("''{count}"))
    };
    let wrong = |error: Diagnostic| {
        error.hint(
            "it takes the operands, the results and the cotangents of float results, and returns \
             the cotangents of float operands",
        )
    };
    let what =
        format!("`{}` does not have the signature of a gradient of `{}`", vjp.name, op.op.name);
    let types =
        crate::signature::instantiate(vjp, &given, &mut guards, &mut fresh).map_err(|error| {
            let what = message![what.clone(), ": "].then(error.what);
            Box::new(wrong(Diagnostic { what, ..*error }))
        })?;
    let same = types.len() == floats.len()
        && types
            .iter()
            .zip(&floats)
            .all(|(ty, operand)| ty.dtype == operand.dtype && fits(ty, operand));
    if same {
        return Ok(());
    }
    wrong(Diagnostic::new(what)).got(list(types.iter())).expected(list(floats.into_iter())).err()
}

/// Whether no dims of the two shapes are certain to differ.
fn fits(a: &Type, b: &Type) -> bool {
    use crate::dim::Relation::Different;
    let (a, b) = (&a.shape, &b.shape);
    if a.lead.is_some() || b.lead.is_some() {
        return true;
    }
    a.dims.len() == b.dims.len()
        && a.dims.iter().zip(&b.dims).all(|(x, y)| x.compare(y) != Different)
}

fn list<'a>(types: impl Iterator<Item = &'a Type>) -> String {
    let each: Vec<String> = types.map(Type::to_string).collect();
    format!("({})", each.join(", "))
}

/// Checks the invariants of a function that do not involve its operations.
/// Errors: the violated invariant.
pub(crate) fn signature(f: &Function) -> Result<()> {
    let at = |error: Diagnostic| error.at(format!("function `{}`", f.name)).err();
    if f.args.len() > f.values.len() {
        let error = Diagnostic::new("the first values of a function must be its arguments");
        return at(error.got(format!("{} values", f.values.len())));
    }
    if let Some(name) = repeated(f.args.iter().map(|a| &*a.name)) {
        return at(Diagnostic::new(format!("two arguments are called `{name}`")));
    }
    if let Some(name) = repeated(f.results.iter().map(|r| &*r.name)) {
        return at(Diagnostic::new(format!("two results are called `{name}`")));
    }
    for result in &f.results {
        if result.value.index() >= f.values.len() {
            let what = format!("the result `{}` is not a value of the function", result.name);
            return at(Diagnostic::new(what).got(format!("%{}", result.value.0)));
        }
    }
    for info in &f.values[..f.args.len()] {
        identifiers(&info.ty)?;
        if info.ty.shape.dims.iter().filter_map(Dim::as_const).any(|dim| dim < 0) {
            return at(Diagnostic::new("a dim is negative").got(&info.ty));
        }
        info.ty.shape.check_count().or_else(|error| at(*error))?;
    }
    let computed: usize = f.ops.iter().map(|op| op.results as usize).sum();
    if f.external && !f.ops.is_empty() {
        return at(Diagnostic::new("an external function has operations"));
    }
    if f.external {
        let is_result = |i: usize| f.results.iter().any(|r| r.value == Value(i as u32));
        if !(f.args.len()..f.values.len()).all(is_result) {
            let what = "an external function has values other than its arguments and results";
            return at(Diagnostic::new(what));
        }
    } else if f.args.len() + computed != f.values.len() {
        let error = Diagnostic::new("there are values that no operation defines");
        return at(error.got(f.values.len()).expected(f.args.len() + computed));
    }
    bodies(f).and_then(|()| states(f)).or_else(|error| at(*error))
}

fn bodies(f: &Function) -> Result<()> {
    if let Some(target) = repeated(f.bodies.iter().map(|body| &*body.target)) {
        return Diagnostic::new(format!("there are two bodies for {target}")).err();
    }
    f.bodies.iter().try_for_each(|body| body.check(f))
}

/// The first name that repeats an earlier one.
fn repeated<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = FxHashSet::default();
    names.into_iter().find(|name| !seen.insert(*name))
}

fn identifiers(ty: &Type) -> Result<()> {
    let mut bad = None;
    ty.shape.for_each_symbol(&mut |symbol| {
        if !is_identifier(symbol.as_str()) {
            bad.get_or_insert_with(|| symbol.clone());
        }
    });
    match bad {
        None => Ok(()),
        Some(symbol) => Diagnostic::new(format!("the symbol `{symbol}` is not an identifier"))
            .got(ty)
            .hint("symbols consist of letters, digits, `_` and `.`, and do not begin with a digit")
            .err(),
    }
}

fn states(f: &Function) -> Result<()> {
    let by_name: FxHashMap<&str, Value> =
        f.arguments().filter(|(_, a)| a.role == Role::State).map(|(v, a)| (&*a.name, v)).collect();
    let paired = f.results.iter().filter_map(|r| r.state.as_deref());
    if let Some(name) = repeated(paired) {
        return Diagnostic::new(format!("the state `{name}` has two next values")).err();
    }
    for result in &f.results {
        let Some(state) = &result.state else {
            continue;
        };
        let Some(value) = by_name.get(&**state) else {
            let mut error = Diagnostic::new(format!(
                "the result `{}` is the next value of `{state}`, which is not a state argument",
                result.name
            ));
            error.hint = did_you_mean(state, by_name.keys().copied());
            return error.err();
        };
        if f.ty(*value) != f.ty(result.value) {
            return Diagnostic::new(format!(
                "the state `{state}` and its next value differ in type"
            ))
            .got(f.ty(result.value))
            .expected(f.ty(*value))
            .err();
        }
    }
    Ok(())
}
