//! The entry of a module: what the options say about the terminals of the block that is compiled.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Module, Role};
use mithril_ir::op::Class;
use mithril_ir::shape::{Shape, Type};
use rustc_hash::FxHashMap;

use super::fault::Fault;
use super::frame::text;
use super::instance::{Instance, Lowering, Spec, key_type};
use super::{DimSpec, Mode, Options, size};
use crate::block::{Block, Definition, Terminal, quoted};
use crate::literal::Literal;
use crate::model::Model;
use crate::naming::{dim_symbol, symbol};

/// The module of a block.
pub(super) fn lower(block: &Block, options: &Options) -> Result<Module> {
    Ok(run(&*alone(block)?, options)?.0)
}

/// The most trailing dims that inputs without a shape are given.
const SHOWN: usize = 32;

/// The definition that is lowered for a block, and what was learned of its insides on the way.
pub(crate) fn traced(block: &Block, options: &Options) -> Result<(Arc<Definition>, Instance)> {
    let definition = alone(block)?;
    let instance = run(&definition, options)?.1;
    Ok((definition, instance))
}

fn run(definition: &Definition, options: &Options) -> Result<(Module, Instance)> {
    check_options(definition, options)?;
    // Trailing dims of inputs without a shape that something inside needs to know.
    let mut shown: FxHashMap<Symbol, usize> = FxHashMap::default();
    loop {
        match attempt(definition, options, &shown) {
            Ok(lowered) => return Ok(lowered),
            Err(fault) => {
                let open = |lead: &Symbol| {
                    let mut inputs = definition.inputs.iter();
                    inputs.any(|t| symbol(&t.name) == *lead && is_open(t, options))
                };
                match fault.diagnostic.needs_rank.clone() {
                    // Each may show that more are needed further on.
                    Some((lead, count)) if open(&lead) && shown.values().sum::<usize>() < SHOWN => {
                        *shown.entry(lead).or_default() += count;
                    }
                    _ => return Err(fault.report(definition)),
                }
            }
        }
    }
}

fn attempt(
    definition: &Definition,
    options: &Options,
    shown: &FxHashMap<Symbol, usize>,
) -> std::result::Result<(Module, Instance), Box<Fault>> {
    let specs: Vec<Spec> = definition
        .inputs
        .iter()
        .map(|terminal| spec(terminal, options, shown))
        .collect::<Result<_>>()?;
    let mut lowering = Lowering::new(options);
    let role = |i: usize| role(&definition.inputs[i], options);
    let instance = lowering.build("main".into(), definition, &specs, &role)?;
    let mut main = (*instance.function).clone();
    main.results
        .retain(|r| r.state.is_some() || !options.discard_keys.iter().any(|k| **k == *r.name));
    if main.results.is_empty() {
        return Err(Diagnostic::new("the model has no output")
            .hint("name an output, or `expose` one")
            .into());
    }
    let mut module = Module::of(main);
    for function in lowering.functions {
        module.functions.insert(function.name.clone(), function);
    }
    Ok((module, instance))
}

fn role(terminal: &Terminal, options: &Options) -> Role {
    let named = |keys: &[String]| keys.iter().any(|k| **k == *terminal.name);
    if named(&options.trainable_keys) {
        Role::Param
    } else if named(&options.data_keys) {
        Role::Data
    } else {
        terminal.role
    }
}

/// Whether nothing says what rank an input has.
fn is_open(terminal: &Terminal, options: &Options) -> bool {
    stated(terminal, options).is_none() && !terminal.ruled
}

fn stated<'a>(terminal: &'a Terminal, options: &'a Options) -> Option<&'a [DimSpec]> {
    let given = options.shapes.iter().find(|(n, _)| **n == *terminal.name);
    given.map_or(terminal.shape.as_deref(), |(_, shape)| Some(shape))
}

/// Whether an array of these sizes has the dims that are stated; names and open ones take its sizes.
fn fits(dims: &[DimSpec], sizes: &[usize]) -> bool {
    let fits = |(axis, (dim, size)): (usize, (&DimSpec, &usize))| match dim {
        DimSpec::Number(n) => *n == *size as u64,
        DimSpec::Any => true,
        DimSpec::Named(_) => {
            let first = dims.iter().position(|other| other == dim).unwrap_or(axis);
            sizes[first] == *size
        }
    };
    dims.len() == sizes.len() && dims.iter().zip(sizes).enumerate().all(fits)
}

fn spec(terminal: &Terminal, options: &Options, shown: &FxHashMap<Symbol, usize>) -> Result<Spec> {
    let mut constants = options.constant_keys.iter();
    if let Some((_, value)) = constants.find(|(name, _)| **name == *terminal.name) {
        let literal = Literal::array(value.clone());
        if let Some(dims) = stated(terminal, options).filter(|dims| !fits(dims, value.shape())) {
            return Diagnostic::new(format!(
                "Incompatible shapes during compilation: the constant of `{}` has another shape",
                terminal.name
            ))
            .got(Shape::fixed(value.shape()))
            .expected(text(dims))
            .err();
        }
        return Ok(Spec::Literal(literal));
    }
    if terminal.in_training && options.mode == Mode::Inference {
        return Ok(Spec::Absent);
    }
    if terminal.role == Role::Key {
        return Ok(Spec::Typed(key_type()));
    }
    let mut given = options.dtypes.iter();
    let given = given.find(|(name, _)| **name == *terminal.name).map(|(_, d)| *d);
    let dtype = given.or(terminal.dtype).unwrap_or(match terminal.class {
        Class::Any | Class::Number | Class::Float => options.dtype,
        Class::Int => options.index,
        Class::Bits | Class::Bool => DType::Bool,
        Class::Key => DType::U32,
    });
    let learned = role(terminal, options) == Role::Param;
    if learned && !dtype.is_float() {
        return Diagnostic::new(format!("`{}` cannot be trained", terminal.name))
            .got(dtype)
            .expected("floats alone have gradients")
            .err();
    }
    let shape = match stated(terminal, options) {
        Some(dims) => {
            let dims = dims.iter().enumerate().map(|(axis, dim)| match dim {
                DimSpec::Number(n) => Ok(size(*n)),
                DimSpec::Any => Ok(Dim::symbol(symbol(&format!("{}_{axis}", terminal.name)))),
                DimSpec::Named(name) => dim_symbol(name).map(Dim::symbol),
            });
            Shape::new(dims.collect::<Result<Vec<_>>>()?)
        }
        None if terminal.ruled => return Ok(Spec::Open(given.or(terminal.dtype))),
        None => {
            let lead = symbol(&terminal.name);
            let count = shown.get(&lead).copied().unwrap_or(0);
            let dims = (1..=count).rev();
            let dims: Vec<Dim> = dims.map(|i| Dim::symbol(format!("{lead}_{i}"))).collect();
            Shape::with_lead(lead, dims)
        }
    };
    Ok(Spec::Typed(Type::new(dtype, shape)))
}

/// Errors: names that the options have and the block has not; values of another dtype.
fn check_options(definition: &Definition, options: &Options) -> Result<()> {
    let inputs: Vec<&str> = definition.inputs.iter().map(|t| &*t.name).collect();
    let outputs: Vec<&str> = definition.outputs.iter().map(|o| &*o.name).collect();
    let check = |option: &str, what: &str, names: &[&str], key: &str| {
        if names.contains(&key) {
            return Ok(());
        }
        let mut error = Diagnostic::new(format!(
            "Terminal not found: `{}` has no {what} `{key}`, which `{option}` names",
            definition.kind
        ))
        .expected(quoted(names));
        error.hint = did_you_mean(key, names.iter().copied());
        error.err()
    };
    let lists = [("trainable_keys", &options.trainable_keys), ("data_keys", &options.data_keys)];
    for (option, keys) in lists {
        for key in keys {
            check(option, "input", &inputs, key)?;
        }
    }
    for (key, _) in &options.shapes {
        check("shapes", "input", &inputs, key)?;
    }
    for (key, _) in &options.dtypes {
        check("dtypes", "input", &inputs, key)?;
    }
    for (key, _) in &options.constant_keys {
        check("constant_keys", "input", &inputs, key)?;
    }
    for key in &options.discard_keys {
        check("discard_keys", "output", &outputs, key)?;
    }
    let both = |key: &&String| options.data_keys.contains(*key);
    if let Some(key) = options.trainable_keys.iter().find(both) {
        return Diagnostic::new(format!("`{key}` is both in trainable_keys and data_keys")).err();
    }
    let valued = |key: &&String| options.constant_keys.iter().any(|(name, _)| name == *key);
    if let Some(key) = options.trainable_keys.iter().find(valued) {
        return Diagnostic::new(format!("`{key}` is both in trainable_keys and constant_keys"))
            .hint("a constant is not learned")
            .err();
    }
    check_states(definition, options)
}

/// Errors: a state that the options make something else, where calls give its next value. In
/// inference it stays as it is, and may be anything.
fn check_states(definition: &Definition, options: &Options) -> Result<()> {
    if options.mode == Mode::Inference {
        return Ok(());
    }
    let constants: Vec<String> = options.constant_keys.iter().map(|(k, _)| k.clone()).collect();
    let kinds = [
        ("a constant", &constants),
        ("trained", &options.trainable_keys),
        ("data", &options.data_keys),
    ];
    let states = || definition.inputs.iter().filter(|t| t.role == Role::State);
    for (kind, keys) in kinds {
        if let Some(state) = states().find(|t| keys.iter().any(|k| **k == *t.name)) {
            return Diagnostic::new(format!("the state `{}` cannot be {kind}", state.name))
                .got("a compile for training, whose calls give its next value")
                .expected(
                    "a state that calls are given (`state=`), or that the compiled model holds",
                )
                .hint("compile with `inference=True`, where states stay as they are")
                .err();
        }
    }
    Ok(())
}

/// A composite as it is; a block of the table, or one with a gradient of its own, as a model of that
/// block alone. Errors: a list terminal, which a model must give.
fn alone(block: &Block) -> Result<Arc<Definition>> {
    if block.gradient.is_some() {
        return Ok(Model::around(block)?.block()?.definition);
    }
    if block.definition.composite.is_some() {
        return Ok(block.definition.clone());
    }
    if let Some(list) = block.inputs().iter().find(|t| t.list) {
        return Diagnostic::new(format!(
            "`{}` of `{}` takes a list of connections, and nothing was given",
            list.name,
            block.kind()
        ))
        .hint("put the block into a model and connect it")
        .err();
    }
    Ok(Model::from_block(block)?.block()?.definition)
}
