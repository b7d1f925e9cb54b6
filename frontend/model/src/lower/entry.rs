//! Lowers the compiled block to the entry of a module, and applies the options to its terminals.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, NeedsRank, Result, did_you_mean};
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Module, Role};
use mithril_ir::op::Class;
use mithril_ir::shape::{Shape, Type};
use rustc_hash::{FxHashMap, FxHashSet};

use super::block_error::BlockError;
use super::instance::frame::shape_text;
use super::instance::{Instance, Lowering, Spec, key_type};
use super::{DimSpec, Mode, Options, size};
use crate::block::{Block, quoted};
use crate::definition::{Definition, Terminal};
use crate::literal::Literal;
use crate::model::Model;
use crate::naming::{dim_symbol, symbol};

/// Lowers a block to a module.
pub(super) fn lower(block: &Block, options: &Options) -> Result<Module> {
    Ok(run(&*root_definition(block)?, options)?.0)
}

/// For inputs without a shape, the number of trailing dims, by the symbol of their rank variable.
type Trailing = FxHashMap<Symbol, usize>;

/// The maximum total number of trailing dims that are given to inputs without a shape.
const MAX_TRAILING_DIMS: usize = 32;

/// The definition that is lowered for a block, and its lowered instance with the types found
/// inside.
pub(crate) fn traced(block: &Block, options: &Options) -> Result<(Arc<Definition>, Instance)> {
    let definition = root_definition(block)?;
    let instance = run(&definition, options)?.1;
    Ok((definition, instance))
}

fn run(definition: &Definition, options: &Options) -> Result<(Module, Instance)> {
    check_options(definition, options)?;
    lower_with_trailing(definition, options).map_err(|error| error.report(definition))
}

/// Lowers the definition. An input without a shape gets as many trailing dims as the blocks inside
/// need.
pub(super) fn lower_with_trailing(
    definition: &Definition,
    options: &Options,
) -> std::result::Result<(Module, Instance), Box<BlockError>> {
    let requested = TerminalOptions::new(options);
    let mut trailing: Trailing = FxHashMap::default();
    loop {
        let error = match attempt(definition, &requested, &trailing) {
            Ok(lowered) => return Ok(lowered),
            Err(error) => error,
        };
        let open = |lead: &Symbol| {
            let mut inputs = definition.inputs.iter();
            inputs.any(|t| symbol(&t.name) == *lead && requested.is_open(t))
        };
        match error.diagnostic.needs_rank.clone() {
            // With these dims, a later block may turn out to need more.
            Some(NeedsRank { lead, trailing: Some(count), .. })
                if open(&lead) && trailing.values().sum::<usize>() < MAX_TRAILING_DIMS =>
            {
                *trailing.entry(lead).or_default() += count;
            }
            _ => return Err(error),
        }
    }
}

fn attempt(
    definition: &Definition,
    requested: &TerminalOptions,
    trailing: &Trailing,
) -> std::result::Result<(Module, Instance), Box<BlockError>> {
    let specs: Vec<Spec> = definition
        .inputs
        .iter()
        .map(|terminal| spec(terminal, requested, trailing))
        .collect::<Result<_>>()?;
    let options = requested.options;
    let mut lowering = Lowering::new(options);
    lowering.sizes = requested.sizes(definition)?;
    let role = |i: usize| requested.role(&definition.inputs[i]);
    let instance = lowering.build("main".into(), definition, &specs, &role)?;
    let mut main = (*instance.function).clone();
    let discarded: FxHashSet<&str> = options.discard_keys.iter().map(String::as_str).collect();
    main.results.retain(|r| r.state.is_some() || !discarded.contains(&*r.name));
    if main.results.is_empty() {
        return Err(Diagnostic::of(ErrorKind::EmptyModel, "the model has no output")
            .hint("name an output, or `expose` one")
            .into());
    }
    let mut module = Module::of(main);
    for function in lowering.functions {
        module.functions.insert(function.name.clone(), function);
    }
    Ok((module, instance))
}

/// The options for each terminal, by name.
struct TerminalOptions<'o> {
    options: &'o Options,
    shapes: FxHashMap<&'o str, &'o [DimSpec]>,
    dtypes: FxHashMap<&'o str, DType>,
    trained: FxHashSet<&'o str>,
    data: FxHashSet<&'o str>,
    constants: FxHashMap<&'o str, &'o Literal>,
}

impl<'o> TerminalOptions<'o> {
    fn new(options: &'o Options) -> TerminalOptions<'o> {
        let names = |keys: &'o [String]| keys.iter().map(String::as_str).collect();
        let mut requested = TerminalOptions {
            options,
            shapes: FxHashMap::default(),
            dtypes: FxHashMap::default(),
            trained: names(&options.trainable_keys),
            data: names(&options.data_keys),
            constants: FxHashMap::default(),
        };
        for (name, shape) in &options.shapes {
            requested.shapes.entry(name).or_insert(shape);
        }
        for (name, dtype) in &options.dtypes {
            requested.dtypes.entry(name).or_insert(*dtype);
        }
        for (name, value) in &options.constant_keys {
            requested.constants.entry(name).or_insert(value);
        }
        requested
    }

    fn role(&self, terminal: &Terminal) -> Role {
        if self.trained.contains(&*terminal.name) {
            Role::Param
        } else if self.data.contains(&*terminal.name) {
            Role::Data
        } else {
            terminal.role
        }
    }

    /// Whether neither the options nor a block's rule give the rank of the input.
    fn is_open(&self, terminal: &Terminal) -> bool {
        self.stated(terminal).is_none() && !terminal.inferred
    }

    /// The sizes that input dims have in the call for which this is compiled.
    fn sizes(&self, definition: &Definition) -> Result<FxHashMap<Symbol, i64>> {
        let mut known = FxHashMap::default();
        for (name, sizes) in &self.options.sizes {
            let mut inputs = definition.inputs.iter();
            let dims = inputs.find(|t| *t.name == **name).and_then(|t| self.stated(t));
            let Some(dims) = dims.filter(|dims| dims.len() == sizes.len()) else { continue };
            for (dim, size) in shape(name, dims)?.dims.iter().zip(sizes) {
                dim.as_symbol().map(|symbol| known.insert(symbol.clone(), *size));
            }
        }
        Ok(known)
    }

    fn stated<'a>(&'a self, terminal: &'a Terminal) -> Option<&'a [DimSpec]> {
        self.shapes.get(&*terminal.name).copied().or(terminal.shape.as_deref())
    }
}

/// The names of masks whose dtype is not stated.
///
/// Errors: an unconnected list terminal.
pub fn open_dtypes(block: &Block, options: &Options) -> Result<Vec<Arc<str>>> {
    let definition = root_definition(block)?;
    let requested = TerminalOptions::new(options);
    let is_open = |terminal: &&Terminal| {
        let stated = given_dtype(terminal, &requested).or(terminal.dtype);
        let left_out = terminal.optional && requested.stated(terminal).is_none();
        let skipped = left_out || terminal.in_training && options.mode == Mode::Inference;
        terminal.mask
            && stated.is_none()
            && requested.role(terminal) == Role::Data
            && !requested.constants.contains_key(&*terminal.name)
            && !skipped
    };
    Ok(definition.inputs.iter().filter(is_open).map(|terminal| terminal.name.clone()).collect())
}

/// The indices of the inputs that are lowered with a rank variable.
pub(super) fn unranked(definition: &Definition, options: &Options) -> Vec<usize> {
    let requested = TerminalOptions::new(options);
    let is_unranked = |terminal: &Terminal| {
        let spec = spec(terminal, &requested, &FxHashMap::default());
        matches!(spec, Ok(Spec::Typed(ty)) if ty.shape.lead.is_some())
    };
    (0..definition.inputs.len()).filter(|&at| is_unranked(&definition.inputs[at])).collect()
}

/// Whether an array of these sizes matches the stated dims. Open dims match any size, and a named
/// dim must have the same size wherever it occurs.
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

fn check_constant_shape(
    terminal: &Terminal,
    sizes: &[usize],
    requested: &TerminalOptions,
) -> Result<()> {
    match requested.stated(terminal).filter(|dims| !fits(dims, sizes)) {
        None => Ok(()),
        Some(dims) => Diagnostic::of(
            ErrorKind::Shapes,
            format!("the constant of `{}` has the wrong shape", terminal.name),
        )
        .got(Shape::fixed(sizes))
        .expected(shape_text(dims))
        .err(),
    }
}

fn spec(terminal: &Terminal, requested: &TerminalOptions, trailing: &Trailing) -> Result<Spec> {
    let options = requested.options;
    if let Some(&value) = requested.constants.get(&*terminal.name) {
        check_constant_shape(terminal, value.tensor.shape(), requested)?;
        return Ok(Spec::Literal(constant(terminal, value, requested)?));
    }
    if terminal.in_training && options.mode == Mode::Inference {
        return Ok(Spec::Absent);
    }
    if terminal.optional && requested.stated(terminal).is_none() {
        return Ok(Spec::Absent);
    }
    let given = given_dtype(terminal, requested);
    if terminal.role == Role::Key {
        return match given.filter(|dtype| *dtype != DType::U32) {
            None => Ok(Spec::Typed(key_type())),
            Some(dtype) => Diagnostic::new(format!("`{}` is a random key", terminal.name))
                .got(dtype)
                .expected(DType::U32)
                .err(),
        };
    }
    let dtype = given.or(terminal.dtype).unwrap_or(match terminal.class {
        Class::Any | Class::Number | Class::Float | Class::Wide => options.dtype,
        Class::Int => options.index,
        Class::Bits | Class::Bool => DType::Bool,
        Class::Key => DType::U32,
    });
    let learned = requested.role(terminal) == Role::Param;
    if learned && !dtype.is_float() {
        return Diagnostic::of(
            ErrorKind::Training,
            format!("`{}` cannot be trained", terminal.name),
        )
        .got(dtype)
        .expected("only floats have gradients")
        .err();
    }
    let shape = match requested.stated(terminal) {
        Some(dims) => shape(&terminal.name, dims)?,
        None if terminal.inferred => return Ok(Spec::Open(given.or(terminal.dtype))),
        None => {
            let lead = symbol(&terminal.name);
            let count = trailing.get(&lead).copied().unwrap_or(0);
            let dims = (1..=count).rev();
            let dims: Vec<Dim> = dims.map(|i| Dim::symbol(format!("{lead}_{i}"))).collect();
            Shape::with_lead(lead, dims)
        }
    };
    shape.check_count().map_err(|error| error.at(format!("terminal `{}`", terminal.name)))?;
    Ok(Spec::Typed(Type::new(dtype, shape)))
}

/// The shape of a terminal with stated dims. A dim that may vary becomes a symbol named after the
/// terminal and the axis. Errors: a name that is not an identifier; a size beyond 64 bits.
pub fn shape(name: &str, dims: &[DimSpec]) -> Result<Shape> {
    let dims = dims.iter().enumerate().map(|(axis, dim)| match dim {
        DimSpec::Number(n) => size(*n),
        DimSpec::Any => Ok(Dim::symbol(symbol(&format!("{name}_{axis}")))),
        DimSpec::Named(name) => dim_symbol(name).map(Dim::symbol),
    });
    Ok(Shape::new(dims.collect::<Result<Vec<_>>>()?))
}

/// The dtype that the options state for an input.
fn given_dtype(terminal: &Terminal, requested: &TerminalOptions) -> Option<DType> {
    requested.dtypes.get(&*terminal.name).copied()
}

/// The value of a constant input, converted to the dtype that is stated for it. Without one, an
/// integer becomes a float if its readers accept only floats. Errors: the value cannot be
/// represented exactly in the dtype.
fn constant(terminal: &Terminal, value: &Literal, requested: &TerminalOptions) -> Result<Literal> {
    let given = given_dtype(terminal, requested).or(terminal.dtype);
    let float = terminal.class == Class::Float && value.tensor.dtype().is_int();
    let Some(dtype) = given.or(float.then_some(requested.options.dtype)) else {
        return Ok(value.clone());
    };
    match value.in_dtype(dtype) {
        Some(tensor) => Ok(Literal::array(tensor)),
        None => value.conversion_error(&terminal.name, dtype).err(),
    }
}

/// Checks the options. Errors: names that the block does not have; values of another dtype.
pub(super) fn check_options(definition: &Definition, options: &Options) -> Result<()> {
    let inputs: FxHashSet<&str> = definition.inputs.iter().map(|t| &*t.name).collect();
    let outputs: FxHashSet<&str> = definition.outputs.iter().map(|o| &*o.name).collect();
    let check = |option: &str, what: &str, names: &FxHashSet<&str>, key: &str| {
        if names.contains(key) {
            return Ok(());
        }
        let mut error = Diagnostic::of(
            ErrorKind::Terminal,
            format!("`{}` has no {what} `{key}`, which is named in `{option}`", definition.kind),
        )
        .expected(quoted(&match what {
            "output" => definition.outputs.iter().map(|o| &*o.name).collect::<Vec<_>>(),
            _ => definition.inputs.iter().map(|t| &*t.name).collect(),
        }));
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
    let data: FxHashSet<&String> = options.data_keys.iter().collect();
    let both = |key: &&String| data.contains(*key);
    if let Some(key) = options.trainable_keys.iter().find(both) {
        return Diagnostic::of(
            ErrorKind::Argument,
            format!("`{key}` is both in trainable_keys and data_keys"),
        )
        .err();
    }
    let constants: FxHashSet<&String> = options.constant_keys.iter().map(|(key, _)| key).collect();
    let valued = |key: &&String| constants.contains(*key);
    if let Some(key) = options.trainable_keys.iter().find(valued) {
        return Diagnostic::of(
            ErrorKind::Argument,
            format!("`{key}` is both in trainable_keys and constant_keys"),
        )
        .hint("a constant cannot be trained")
        .err();
    }
    check_states(definition, options)
}

/// Checks the options for states. Errors: for training, a state is a constant, trainable or data,
/// although calls return its next value. For inference, states do not change, so all of these are
/// allowed.
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
                .got("a model compiled for training, whose calls return the next state")
                .expected(
                    "a state that is passed to calls as `state=`, or stored by the compiled model",
                )
                .hint("compile with `inference=True`, which leaves states unchanged")
                .err();
        }
    }
    Ok(())
}

/// The definition to lower for a block. A composite is used as it is. A table block, or a block
/// with a custom gradient, is put into a model of its own. Errors: an unconnected list terminal.
pub(super) fn root_definition(block: &Block) -> Result<Arc<Definition>> {
    if block.gradient.is_some() {
        return Ok(Model::wrapping(block)?.block()?.definition);
    }
    if block.definition.composite.is_some() {
        return Ok(block.definition.clone());
    }
    if let Some(list) = block.inputs().iter().find(|t| t.list) {
        return Diagnostic::of(
            ErrorKind::Connection,
            format!(
                "`{}` of `{}` takes a list of connections, but nothing was given",
                list.name,
                block.kind()
            ),
        )
        .hint("put the block into a model and connect it")
        .err();
    }
    Ok(Model::from_block(block)?.block()?.definition)
}
