//! Prints the kernels of a file. Each is printed once, even if several functions launch it.

use std::fmt::Write;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::Function;
use mithril_ir::op::Kind;
use mithril_runtime::size::Size;
use rustc_hash::{FxHashMap, FxHashSet};

use super::external;
use super::functions::Function as Helper;
use super::kernel::{self, Names, PrintedFunction};
use crate::entry::{Entry, Interface, Scope, identifier};
use crate::program::{Kernel, Plan};

/// The names of buffers whose launches have different names for them.
const OPERANDS: [&str; 6] = ["x", "y", "z", "u", "v", "w"];

/// A kernel of a plan, with its entry and launches.
struct Origin<'a> {
    entry: &'a Entry,
    plan: &'a Plan,
    kernel: &'a Kernel,
    /// The numbers of its launches.
    launches: &'a [usize],
}

/// A printed kernel, with the name by which entry functions call it.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: String,
    pub printed: PrintedFunction,
}

#[derive(Default)]
pub struct Kernels {
    pub text: String,
    /// Whether any kernel has loops that must not be unrolled.
    pub has_rolled_loops: bool,
    used: FxHashSet<Helper>,
    known: FxHashMap<String, Call>,
    names: Scope,
}

impl Kernels {
    /// Creates an empty set of kernels. Reserves the names of all parameters, which would shadow
    /// kernels.
    pub fn new(interface: &Interface) -> Kernels {
        let mut kernels = Kernels::default();
        for entry in &interface.entries {
            let arrays = entry.arguments.iter().chain(&entry.results).map(|array| &array.name);
            let symbols = entry.symbols.iter().map(|symbol| &symbol.name);
            arrays.chain(symbols).for_each(|name| drop(kernels.names.name(name)));
        }
        kernels
    }

    /// Prints the kernels of a plan that have not been printed. Returns the calls of all kernels,
    /// by kernel number.
    ///
    /// Errors: an external function has an unknown dim.
    pub fn add(&mut self, entry: &Entry, plan: &Plan) -> Result<Vec<Call>> {
        let mut launches = vec![Vec::new(); plan.kernels.len()];
        for (number, launch) in plan.program.launches.iter().enumerate() {
            if let Some(of_kernel) = launches.get_mut(launch.kernel) {
                of_kernel.push(number);
            }
        }
        let origins = plan.kernels.iter().zip(&launches);
        origins
            .map(|(kernel, launches)| self.print_once(&Origin { entry, plan, kernel, launches }))
            .collect()
    }

    fn print_once(&mut self, origin: &Origin) -> Result<Call> {
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
        self.has_rolled_loops |= printed.has_rolled_loops;
        let _ = writeln!(self.text, "{}{}", comment(origin, &names, &printed), printed.text);
        let call = Call { name: names.kernel, printed };
        self.known.insert(key, call.clone());
        Ok(call)
    }

    /// Chooses names. A kernel is named after its first launch. A buffer or dim keeps its name if
    /// it has the same name in all launches.
    fn names(&mut self, origin: &Origin) -> Names {
        let Origin { entry, plan, kernel, launches } = *origin;
        let mut scope = Scope::new(["scratch"]);
        let function = &kernel.outlined.function;
        let launched = || launches.iter().map(|&at| &plan.program.launches[at]);
        let buffer = |n: usize| -> String {
            let mut names = launched().map(|launch| &plan.buffer_names[launch.buffers[n]]);
            let first = names.next();
            match first.filter(|first| names.all(|name| name == *first)) {
                Some(name) => name.to_string(),
                None if n >= function.args.len() => match function.results.len() {
                    1 => "out".into(),
                    _ => format!("out_{}", n - function.args.len()),
                },
                None => OPERANDS.get(n).map_or_else(|| format!("x_{n}"), |name| name.to_string()),
            }
        };
        let mut unique = |name: String| scope.name(&kernel::variable(identifier(&name)));
        let dim = |n: usize| {
            let mut sizes = launched().map(|launch| &launch.dims[n]);
            let first = sizes.next();
            match first.filter(|first| sizes.all(|size| size == *first)) {
                Some(Size::Symbol(at)) => entry.symbols[*at].name.clone(),
                _ => format!("d{n}"),
            }
        };
        let name = match (&kernel.external, launches.first()) {
            (Some(_), _) | (None, None) => &*function.name,
            (None, Some(&first)) => &plan.launch_names[first],
        };
        let code = &kernel.lowered.code;
        Names {
            kernel: self.names.name(&kernel_name(name)),
            buffers: (0..code.buffers as usize).map(|n| unique(buffer(n))).collect(),
            dims: (0..code.dims as usize).map(|n| unique(dim(n))).collect(),
        }
    }

    /// The functions that kernels call.
    pub fn functions(&self) -> String {
        let mut used: Vec<Helper> = self.used.iter().copied().collect();
        // Callees come first.
        used.sort_by_key(|function| (function.level(), *function));
        used.into_iter().map(|function| function.text() + "\n").collect()
    }
}

/// The names of the operations that compute. If there are none, the names of all operations.
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

/// Returns a name for the function of a kernel. It has at least two words, because the C library
/// has functions named by one word.
fn kernel_name(name: &str) -> String {
    let name = kernel::variable(identifier(name));
    match name.contains('_') && !name.ends_with("_r") {
        true => name,
        false => name + "_kernel",
    }
}

/// Prints a comment that lists the kernel's operations, blocks and operands.
fn comment(origin: &Origin, names: &Names, printed: &PrintedFunction) -> String {
    let Origin { plan, kernel, launches, .. } = *origin;
    // Collects up to four paths. The text shows three, and an ellipsis if there are more.
    let mut paths: Vec<&str> = Vec::new();
    for path in launches.iter().flat_map(|&launch| plan.locs[launch].paths()) {
        if paths.len() <= 3 && !paths.contains(&&**path) {
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
