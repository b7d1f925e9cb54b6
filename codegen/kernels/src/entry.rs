//! The C interface of compiled functions, as data: parameters, checks, workspace and launches.
//! Ahead-of-time libraries and C source are both printed from it.
//!
//! The parameters of a call are the values of the symbols, a pointer for each array, and a
//! workspace. There may be hundreds of params, states and gradients, so they are passed in structs,
//! which a caller fills in once, by name.

mod check;
mod expression;
mod header;
mod indices;
pub mod llvm;
mod names;
mod workspace;

use std::sync::Arc;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Symbol;
use mithril_ir::graph::{Function, Role};
use mithril_ir::shape::Type;
use mithril_passes::indexed::Indexed;
use mithril_runtime::program::{Execution, Loop, Program};
use mithril_runtime::size::Size;

use crate::program::Plan;
pub use check::{Check, named};
pub use expression::{ARITHMETIC, c_expression};
pub use header::{c_type, comment, header, parameter_text};
pub use indices::Indices;
pub use names::{Scope, identifier};
pub use workspace::{Base, Slot, Workspace};

/// The C functions of a model, the forward function first.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The C identifier that is part of the names of all functions and types: `mlp`.
    pub model: String,
    pub entries: Vec<Entry>,
    /// Whether each entry has a second function, which shares the work among threads.
    pub shared: bool,
}

/// A C function.
#[derive(Clone, Debug)]
pub struct Entry {
    /// `mithril_mlp`. The function `mithril_mlp_workspace_bytes` returns the size of its workspace.
    pub name: String,
    /// The symbols, by their number in sizes. Each is an `int64_t` from 0 to `limit`.
    pub symbols: Vec<Dimension>,
    /// The largest value of a symbol for which no size overflows.
    pub limit: i64,
    /// The program's arguments, in its order.
    pub arguments: Vec<Array>,
    /// The program's results, in its order.
    pub results: Vec<Array>,
    /// The structs of arrays, in the order of parameters.
    pub records: Vec<Record>,
    /// Relations that the symbols must satisfy, in addition to their range. They are checked in
    /// this order, because later ones divide by sizes that earlier ones check.
    pub checks: Vec<Check>,
    /// Elements of arguments that must be in a range.
    pub indices: Vec<Indices>,
    pub workspace: Workspace,
    /// The steps for each processor for which kernels are compiled. C source has one variant.
    pub variants: Vec<Variant>,
}

/// A symbol of the dims, passed as a parameter.
#[derive(Clone, Debug)]
pub struct Dimension {
    /// The parameter's name.
    pub name: String,
    pub symbol: Symbol,
}

/// An array that is an argument or a result.
#[derive(Clone, Debug)]
pub struct Array {
    /// The name of the parameter or the field.
    pub name: String,
    /// Its name in the model.
    pub path: Arc<str>,
    pub group: Group,
    pub role: Role,
    pub ty: Type,
}

impl Array {
    /// Whether the pointer may be NULL, which stands for zeros.
    pub fn is_optional(&self) -> bool {
        self.role == Role::Cotangent
    }
}

/// How an array is passed: as a parameter, or in a struct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// A separate parameter: inputs, keys, cotangents.
    Input,
    Param,
    State,
    /// A separate parameter that is written.
    Output,
    Gradient,
    NextState,
}

/// The groups that are passed in structs, each with the parameter's name and the suffix of the
/// type's name.
const RECORDS: [(Group, &str, &str); 4] = [
    (Group::Param, "params", "params"),
    (Group::State, "state", "state"),
    (Group::Gradient, "gradients", "param_gradients"),
    (Group::NextState, "next_state", "next_state"),
];

/// A struct of pointers to the arrays of a group.
#[derive(Clone, Debug)]
pub struct Record {
    pub group: Group,
    /// The parameter's name.
    pub name: String,
    /// `mithril_mlp_params`.
    pub type_name: String,
    /// The indices of the fields among the arguments or results.
    pub fields: Vec<usize>,
}

/// One parameter of the C function, by its index in the entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parameter {
    Symbol(usize),
    Argument(usize),
    Result(usize),
    Record(usize),
    Workspace,
}

/// The steps of an entry for one processor, in order.
#[derive(Clone, Debug)]
pub struct Variant {
    pub steps: Vec<Step>,
    /// By number.
    pub loops: Vec<Loop>,
    /// Where the byte of each loop's condition is.
    pub conditions: Vec<Option<Slot>>,
    /// The order of the steps, and the loops around them.
    pub execution: Vec<Execution>,
}

/// A launch of one kernel. One call runs all tasks; a launch without tasks does nothing.
#[derive(Clone, Debug)]
pub struct Step {
    /// The number of the kernel in the plan. `None` copies the first `dims[0]` bytes of the first
    /// buffer to the second.
    pub kernel: Option<usize>,
    pub buffers: Vec<Slot>,
    pub dims: Vec<Size>,
    pub tasks: Size,
    /// The minimum number of tasks per thread. With fewer, starting a thread does not pay.
    pub grain: Size,
}

impl Interface {
    /// Builds the interface of a model's functions. Each function has one plan per processor, in
    /// the same order. The first function is the forward function. In other functions, results that
    /// the forward function lacks are gradients. `indexed` are the inputs whose elements are
    /// checked.
    ///
    /// Errors: an array is too large for memory; a dim cannot be derived from the arguments.
    pub fn new(
        model: &str,
        functions: &[(&Function, Vec<&Plan>)],
        indexed: &[Indexed],
    ) -> Result<Interface> {
        let model = identifier(model);
        let mut interface = Interface { model, entries: Vec::new(), shared: false };
        let forward = functions.first().map(|(function, _)| *function);
        // Reserves the suffixes of the names of types and of other functions.
        let mut scope = Scope::new(["workspace_bytes", "parallel", "parallel_workspace_bytes"]);
        RECORDS.iter().for_each(|(.., end)| drop(scope.name(end)));
        for (at, (function, plans)) in functions.iter().enumerate() {
            let name = match at {
                0 => format!("mithril_{}", interface.model),
                _ => format!("mithril_{}_{}", interface.model, scope.name(&function.name)),
            };
            let outputs = match (at, forward) {
                (0, _) | (_, None) => function.results.len(),
                (_, Some(forward)) => shared_results(forward, function),
            };
            let entry = Entry::new(name, (function, outputs), plans, indexed)?;
            interface.add(entry);
        }
        Ok(interface)
    }

    /// Adds an entry. Its structs are shared with earlier entries that have the same fields.
    fn add(&mut self, mut entry: Entry) {
        for at in 0..entry.records.len() {
            let record = &entry.records[at];
            let own = fields(&entry, record);
            let before = self.entries.iter();
            let mut before = before.flat_map(|e| e.records.iter().map(move |r| (e, r)));
            let end = |group| RECORDS.iter().find(|(g, ..)| *g == group).map_or("", |r| r.2);
            let type_name =
                match before.find(|(e, r)| r.group == record.group && fields(e, r) == own) {
                    Some((_, same)) => same.type_name.clone(),
                    None if record.group == Group::Gradient || self.entries.is_empty() => {
                        format!("mithril_{}_{}", self.model, end(record.group))
                    }
                    None => format!("{}_{}", entry.name, end(record.group)),
                };
            entry.records[at].type_name = type_name;
        }
        self.entries.push(entry);
    }
}

fn fields<'a>(entry: &'a Entry, record: &Record) -> Vec<(&'a str, &'a Type)> {
    entry.fields(record).map(|array| (&*array.name, &array.ty)).collect()
}

/// The number of leading results that are results of the forward function: all of the forward
/// function's results, or none.
fn shared_results(forward: &Function, function: &Function) -> usize {
    let names = |f: &Function| f.results.iter().map(|r| r.name.clone()).collect::<Vec<_>>();
    let (all, own) = (names(forward), names(function));
    let differentiates = function.args.iter().any(|arg| arg.role == Role::Cotangent);
    match own.starts_with(&all) {
        true => all.len(),
        false if differentiates => 0,
        false => own.len(),
    }
}

impl Entry {
    fn new(
        name: String,
        (function, outputs): (&Function, usize),
        plans: &[&Plan],
        indexed: &[Indexed],
    ) -> Result<Entry> {
        let plan = plans[0];
        let mut scope =
            Scope::new(["params", "state", "gradients", "next_state", "workspace", "threads"]);
        (0..plan.program.loops.len()).for_each(|number| drop(scope.name(&row(number))));
        let symbols = plan
            .symbols
            .iter()
            .map(|symbol| Dimension { name: scope.name(symbol.as_str()), symbol: symbol.clone() });
        let symbols: Vec<Dimension> = symbols.collect();
        let groups = Groups { scope, fields: RECORDS.map(|_| Scope::default()) };
        let (arguments, results) = groups.arrays(function, outputs);
        let optional = arguments.iter().enumerate().filter(|(_, array)| array.is_optional());
        let optional: Vec<usize> = optional.map(|(at, _)| at).collect();
        let workspace = Workspace::new(plans, &optional)?;
        let variants = plans.iter().enumerate().map(|(at, plan)| {
            let slots = workspace.slots(at, &plan.program);
            let (loops, execution) = (plan.program.loops.clone(), plan.program.execution());
            let condition = |own: &Loop| own.condition.map(|own| slots[own.buffer].clone());
            let conditions = loops.iter().map(condition).collect();
            Variant { steps: steps(plan, &slots), loops, conditions, execution }
        });
        let indices = indices::indices(indexed, &arguments, plan, &symbols)?;
        let sizes: Vec<&Size> = check::sizes(plans, &workspace)
            .chain(indices.iter().flat_map(Indices::sizes))
            .collect();
        let checks = check::checks(function, plans, &sizes, &symbols)?;
        Ok(Entry {
            name,
            limit: check::limit(&sizes, &checks)?,
            symbols,
            records: records(&arguments, &results),
            arguments,
            results,
            checks,
            indices,
            variants: variants.collect(),
            workspace,
        })
    }

    /// The parameters of the C function, in order.
    pub fn parameters(&self) -> Vec<Parameter> {
        let own = |arrays: &[Array], group: Group| -> Vec<usize> {
            (0..arrays.len()).filter(|&at| arrays[at].group == group).collect()
        };
        let records = |read: bool| {
            let all = 0..self.records.len();
            all.filter(move |&at| self.records[at].group.is_read() == read).map(Parameter::Record)
        };
        let symbols = (0..self.symbols.len()).map(Parameter::Symbol);
        symbols
            .chain(own(&self.arguments, Group::Input).into_iter().map(Parameter::Argument))
            .chain(records(true))
            .chain(own(&self.results, Group::Output).into_iter().map(Parameter::Result))
            .chain(records(false))
            .chain([Parameter::Workspace])
            .collect()
    }

    /// The arrays of a struct.
    pub fn fields(&self, record: &Record) -> impl Iterator<Item = &Array> {
        let arrays = if record.group.is_read() { &self.arguments } else { &self.results };
        record.fields.iter().map(|&at| &arrays[at])
    }

    /// The index of the struct that contains an array, and the index of the array's field.
    pub fn field(&self, group: Group, at: usize) -> Option<(usize, usize)> {
        let record = self.records.iter().position(|record| record.group == group)?;
        Some((record, self.records[record].fields.iter().position(|field| *field == at)?))
    }
}

impl Group {
    /// Whether the arrays of the group are arguments, which are only read.
    pub fn is_read(self) -> bool {
        matches!(self, Group::Input | Group::Param | Group::State)
    }
}

/// The scopes for names of arrays: one for parameters, and one for each struct.
struct Groups {
    scope: Scope,
    fields: [Scope; RECORDS.len()],
}

impl Groups {
    fn arrays(mut self, function: &Function, outputs: usize) -> (Vec<Array>, Vec<Array>) {
        let arguments = function.arguments().map(|(value, arg)| {
            let (group, base) = match arg.role {
                Role::Param => (Group::Param, arg.name.to_string()),
                Role::State => (Group::State, arg.name.to_string()),
                Role::Data | Role::Key | Role::Constant => (Group::Input, arg.name.to_string()),
                Role::Cotangent => (Group::Input, format!("{}_gradient", arg.name)),
            };
            let name = self.name(group, &base);
            Array {
                name,
                path: arg.name.clone(),
                group,
                role: arg.role,
                ty: function.ty(value).clone(),
            }
        });
        let arguments = arguments.collect();
        let results = function.results.iter().enumerate().map(|(at, result)| {
            let (group, path, role) = match &result.state {
                Some(state) => (Group::NextState, state, Role::State),
                None if at >= outputs => (Group::Gradient, &result.name, Role::Param),
                None => (Group::Output, &result.name, Role::Data),
            };
            let (name, ty) = (self.name(group, path), function.ty(result.value).clone());
            Array { name, path: path.clone(), group, role, ty }
        });
        (arguments, results.collect())
    }

    fn name(&mut self, group: Group, base: &str) -> String {
        match RECORDS.iter().position(|(own, ..)| *own == group) {
            Some(at) => self.fields[at].name(base),
            None => self.scope.name(base),
        }
    }
}

fn records(arguments: &[Array], results: &[Array]) -> Vec<Record> {
    let all = RECORDS.iter().map(|&(group, name, _)| {
        let arrays = if group.is_read() { arguments } else { results };
        let fields = (0..arrays.len()).filter(|&at| arrays[at].group == group).collect();
        Record { group, name: name.to_string(), type_name: String::new(), fields }
    });
    all.filter(|record| !record.fields.is_empty()).collect()
}

/// The C name of the counter of a loop.
pub fn row(of_loop: usize) -> String {
    format!("row_{of_loop}")
}

fn steps(plan: &Plan, slots: &[Slot]) -> Vec<Step> {
    let Program { launches, .. } = &plan.program;
    let step = |launch: &mithril_runtime::program::Launch| Step {
        kernel: Some(launch.kernel).filter(|kernel| *kernel < plan.kernels.len()),
        buffers: launch.buffers.iter().map(|&buffer| slots[buffer].clone()).collect(),
        dims: launch.dims.clone(),
        tasks: launch.tasks.clone(),
        grain: launch.grain.clone(),
    };
    launches.iter().map(step).collect()
}
