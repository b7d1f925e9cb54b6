//! The kernels of a file. Each is printed once, however many functions launch it.

use std::fmt::Write;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::Function;
use mithril_ir::op::Kind;
use mithril_runtime::program::Place;
use mithril_runtime::size::Size;
use rustc_hash::{FxHashMap, FxHashSet};

use super::external;
use super::functions::Function as Own;
use super::kernel::{self, Names, Printed};
use crate::entry::{Entry, Interface, Scope};
use crate::program::{Kernel, Plan};

/// The maximum number of operations in a kernel's name.
const TOLD: usize = 4;
/// The names of buffers of a kernel with several launches.
const OPERANDS: [&str; 6] = ["x", "y", "z", "u", "v", "w"];

/// A kernel of a plan, and what it comes from.
struct Origin<'a> {
    entry: &'a Entry,
    plan: &'a Plan,
    kernel: &'a Kernel,
    /// The numbers of its launches.
    launches: &'a [usize],
}

/// A kernel, as entries call it.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: String,
    pub printed: Printed,
}

#[derive(Default)]
pub struct Kernels {
    pub text: String,
    /// Whether any kernel has loops that must not be unrolled.
    pub rolls: bool,
    used: FxHashSet<Own>,
    known: FxHashMap<String, Call>,
    names: Scope,
}

impl Kernels {
    /// An empty set of kernels. The names of all parameters are taken, as they would hide kernels.
    pub fn new(interface: &Interface) -> Kernels {
        let mut kernels = Kernels::default();
        for entry in &interface.entries {
            let arrays = entry.arguments.iter().chain(&entry.results).map(|array| &array.name);
            let symbols = entry.symbols.iter().map(|symbol| &symbol.name);
            arrays.chain(symbols).for_each(|name| drop(kernels.names.name(name)));
        }
        kernels
    }

    /// Prints the kernels of a plan that are not printed yet. Returns their calls, by kernel
    /// number.
    ///
    /// Errors: an external function with an unknown dim.
    pub fn add(&mut self, entry: &Entry, plan: &Plan) -> Result<Vec<Call>> {
        let mut launches = vec![Vec::new(); plan.kernels.len()];
        for (number, launch) in plan.program.launches.iter().enumerate() {
            if let Some(of_kernel) = launches.get_mut(launch.kernel) {
                of_kernel.push(number);
            }
        }
        let origins = plan.kernels.iter().zip(&launches);
        origins
            .map(|(kernel, launches)| self.one(&Origin { entry, plan, kernel, launches }))
            .collect()
    }

    fn one(&mut self, origin: &Origin) -> Result<Call> {
        let kernel = origin.kernel;
        let key = match &kernel.external {
            Some(external) => format!("{external:?}"),
            None => kernel.outlined.to_string(),
        };
        if let Some(call) = self.known.get(&key) {
            return Ok(call.clone());
        }
        let mut names = self.names(origin);
        let printed = match &kernel.external {
            Some(own) => {
                let arrays = own.arrays.iter().map(|array| array.name.to_string());
                names.buffers = arrays.collect();
                external::print(own, &names.kernel, names.dims.len())?
            }
            None => kernel::print(&kernel.lowered.code, &names, &mut self.used),
        };
        self.rolls |= printed.rolls;
        let _ = writeln!(self.text, "{}{}", comment(origin, &names, &printed), printed.text);
        let call = Call { name: names.kernel, printed };
        self.known.insert(key, call.clone());
        Ok(call)
    }

    /// A kernel with a single launch uses the names of that launch's buffers and dims.
    fn names(&mut self, origin: &Origin) -> Names {
        let Origin { entry, plan, kernel, launches } = *origin;
        let single = match *launches {
            [only] => Some(&plan.program.launches[only]),
            _ => None,
        };
        let mut scope = Scope::default();
        let function = &kernel.outlined.function;
        let arguments = function.args.len();
        let buffer = |n: usize| -> String {
            let own = single.map(|launch| launch.buffers[n]);
            match own.map(|number| &plan.program.buffers[number].place) {
                Some(Place::Argument(at)) => entry.arguments[*at].name.clone(),
                Some(Place::Result(at)) => entry.results[*at].name.clone(),
                Some(Place::Constant(at)) => format!("constant_{at}"),
                _ if n >= arguments => match function.results.len() {
                    1 => "out".into(),
                    _ => format!("out_{}", n - arguments),
                },
                _ => OPERANDS.get(n).map_or_else(|| format!("x_{n}"), |name| name.to_string()),
            }
        };
        let mut free = |name: String| scope.name(&kernel::variable(name));
        let dim = |n: usize| match single.map(|launch| &launch.dims[n]) {
            Some(Size::Symbol(at)) => entry.symbols[*at].name.clone(),
            _ => format!("d{n}"),
        };
        let code = &kernel.lowered.code;
        Names {
            kernel: self.names.name(&match kernel.external {
                Some(_) => function.name.to_string(),
                None => title(function),
            }),
            buffers: (0..code.buffers as usize).map(|n| free(buffer(n))).collect(),
            dims: (0..code.dims as usize).map(|n| free(dim(n))).collect(),
        }
    }

    /// The functions that kernels call.
    pub fn functions(&self) -> String {
        let mut used: Vec<Own> = self.used.iter().copied().collect();
        // Callees come first.
        used.sort_by_key(|function| (function.level(), *function));
        used.into_iter().map(|function| function.text() + "\n").collect()
    }
}

/// The operations of a kernel that compute; if there are none, those that only move data.
fn operations(function: &Function) -> Vec<&'static str> {
    let views =
        |kind: Kind| matches!(kind, Kind::Layout | Kind::Constant | Kind::Dim | Kind::Barrier);
    let computing = function.ops.iter().filter(|op| !views(op.op.kind)).map(|op| op.op.name);
    let computing: Vec<&str> = computing.collect();
    match computing.is_empty() {
        true => function.ops.iter().map(|op| op.op.name).collect(),
        false => computing,
    }
}

fn title(function: &Function) -> String {
    let mut names = operations(function);
    names.dedup();
    match names.as_slice() {
        [] => "copy_kernel".into(),
        [one] => format!("{one}_kernel"),
        all => all[..all.len().min(TOLD)].join("_"),
    }
}

/// A comment that lists the kernel's operations, its blocks and its operands.
fn comment(origin: &Origin, names: &Names, printed: &Printed) -> String {
    let Origin { plan, kernel, launches, .. } = *origin;
    // The text shows three paths, and whether there are more.
    let mut paths: Vec<&str> = Vec::new();
    for path in launches.iter().filter_map(|&launch| plan.locs[launch].shortest()) {
        if paths.len() <= 3 && !paths.contains(&path) {
            paths.push(path);
        }
    }
    let function = &kernel.outlined.function;
    let mut text = operations(function).join(", ");
    if kernel.external.is_some() {
        text = external::COMMENT.into();
    } else if text.is_empty() {
        text = "A copy".into();
    }
    if !paths.is_empty() {
        let more = if paths.len() > 3 { ", …" } else { "" };
        let _ = write!(text, ", in {}{more}", paths[..paths.len().min(3)].join(", "));
    }
    text.push('.');
    let arguments = function.arguments().map(|(value, _)| value);
    let values: Vec<_> = arguments.chain(function.results.iter().map(|r| r.value)).collect();
    let own = |dim: &Dim| {
        dim.substitute(&|symbol| Some(Dim::symbol(names.dims.get(symbol.number()?)?.as_str())))
    };
    for &n in &printed.buffers {
        let ty = function.ty(values[n]);
        let dims: Vec<String> = ty.shape.dims.iter().map(|dim| own(dim).to_string()).collect();
        let _ = write!(text, "\n  {}: {} [{}]", names.buffers[n], ty.dtype, dims.join(", "));
    }
    crate::entry::comment(&text, "")
}
