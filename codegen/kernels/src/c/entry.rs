//! Prints entry functions, which check their arguments and call kernels in order.

use std::fmt::Write;

use mithril_runtime::plan::roots;
use mithril_runtime::program::{Execution, Place, UNLIMITED};
use mithril_runtime::size::Size;
use rustc_hash::FxHashSet;

use super::constants;
use super::expression::{Level, words};
use super::kernels::Call;
use super::size::expression;
use crate::entry::{
    Array, Base, Entry, Group, Parameter, Scope, Slot, identifier, parameter_text, row,
};
use crate::program::Plan;

/// Prints an entry function, and the function that returns the size of its workspace. `calls` are
/// its kernels.
pub fn print(entry: &Entry, plan: &Plan, calls: &[Call]) -> String {
    let (roots, temporaries) = (roots(&plan.program), temporaries(entry, plan, calls));
    let body = EntryBody { entry, plan, roots, temporaries };
    let mut text = body.acceptance();
    text += &body.workspace_bytes();
    let parameters = entry.parameters();
    let parameters: Vec<String> =
        parameters.iter().map(|p| format!("    {}", parameter_text(entry, *p))).collect();
    let _ = write!(text, "int {}(\n{}) {{\n", entry.name, parameters.join(",\n"));
    text += &body.checks();
    let launches = body.launches(calls, &plan.program.execution(), 2);
    text + &body.temporaries(&launches) + &launches + "  return MITHRIL_OK;\n}\n\n"
}

struct EntryBody<'a> {
    entry: &'a Entry,
    plan: &'a Plan,
    /// The buffer that contains each buffer.
    roots: Vec<usize>,
    /// The name of each buffer's variable, or an empty string if the buffer is not a temporary.
    temporaries: Vec<String>,
}

/// Names the variables of temporaries after their values. The names must not shadow a kernel.
fn temporaries(entry: &Entry, plan: &Plan, calls: &[Call]) -> Vec<String> {
    let mut scope = Scope::new(["workspace", "arena", "index"]);
    let arrays = entry.arguments.iter().chain(&entry.results).map(|array| &array.name);
    let records = entry.records.iter().map(|record| &record.name);
    let symbols = entry.symbols.iter().map(|symbol| &symbol.name);
    arrays.chain(records).chain(symbols).for_each(|name| drop(scope.name(name)));
    (0..plan.program.loops.len()).for_each(|number| drop(scope.name(&row(number))));
    let kernels: FxHashSet<&str> = calls.iter().map(|call| &*call.name).collect();
    kernels.iter().for_each(|name| drop(scope.name(name)));
    let constants = constants::prefix(&entry.name);
    let shadows = |wanted: &str| kernels.contains(wanted) || wanted.starts_with(&constants);
    let mut name = |wanted: &str| match identifier(wanted) {
        wanted if shadows(&wanted) => scope.name(&(wanted + "_out")),
        wanted => scope.name(&wanted),
    };
    let buffers = plan.program.buffers.iter().zip(&plan.buffer_names);
    let names = buffers.map(|(buffer, wanted)| match buffer.place {
        Place::Temporary => name(wanted),
        _ => String::new(),
    });
    names.collect()
}

impl EntryBody<'_> {
    /// Prints the calls of kernels, inside their loops.
    fn launches(&self, calls: &[Call], parts: &[Execution], indent: usize) -> String {
        let mut text = String::new();
        for part in parts {
            match part {
                Execution::Launch(at) => {
                    let _ = writeln!(text, "{:indent$}{};", "", self.launch(*at, calls));
                }
                Execution::Loop(number, inside) => {
                    let own = &self.plan.program.loops[*number];
                    let (row, trips) = (row(*number), self.size(&own.trips));
                    let condition = self.condition(*number);
                    let head = match (condition, &own.trips) {
                        (Some(condition), Size::Const(1)) => format!("if ({condition})"),
                        (Some(condition), trips) if *trips == UNLIMITED => {
                            format!("while ({condition})")
                        }
                        (Some(condition), _) => {
                            format!(
                                "for (int64_t {row} = 0; {row} < {trips} && {condition}; ++{row})"
                            )
                        }
                        (None, _) if own.reverse => {
                            format!("for (int64_t {row} = {trips}; {row}-- > 0;)")
                        }
                        (None, _) => format!("for (int64_t {row} = 0; {row} < {trips}; ++{row})"),
                    };
                    let inside = self.launches(calls, inside, indent + 2);
                    let _ = writeln!(text, "{:indent$}{head} {{\n{inside}{:indent$}}}", "", "");
                }
            }
        }
        text
    }

    /// The expression that is checked before each iteration of a loop.
    fn condition(&self, number: usize) -> Option<String> {
        let condition = self.plan.program.loops[number].condition?;
        let slot = self.entry.variants[0].conditions[number].as_ref()?;
        let memory = self.memory(slot, condition.buffer);
        let not = if condition.expected { "" } else { "!" };
        Some(format!("{not}*(const unsigned char *){memory}"))
    }

    fn launch(&self, at: usize, calls: &[Call]) -> String {
        let (entry, launch) = (self.entry, &self.plan.program.launches[at]);
        let step = &entry.variants[0].steps[at];
        let memory: Vec<String> = (step.buffers.iter().zip(&launch.buffers))
            .map(|(slot, &number)| self.memory(slot, number))
            .collect();
        let size = |size: &Size| self.size(size);
        match step.kernel {
            None => {
                format!("memcpy({}, {}, (size_t){})", memory[1], memory[0], size(&step.dims[0]))
            }
            Some(kernel) => {
                let call = &calls[kernel];
                let scratch = call
                    .printed
                    .scratch
                    .then(|| format!("(char *)workspace + {}", size(&entry.workspace.scratch)));
                let arrays = call.printed.buffers.iter().map(|&n| memory[n].clone());
                let dims = call.printed.dims.iter().map(|&n| size(&step.dims[n]));
                let args: Vec<String> = scratch.into_iter().chain(arrays).chain(dims).collect();
                format!("{}({})", call.name, args.join(", "))
            }
        }
    }

    fn size(&self, size: &Size) -> String {
        expression(size, &self.entry.symbols).text
    }

    fn symbols(&self) -> Vec<String> {
        self.entry.symbols.iter().map(|symbol| symbol.name.clone()).collect()
    }

    fn parameters(&self) -> String {
        let symbols: Vec<String> =
            self.symbols().iter().map(|name| format!("int64_t {name}")).collect();
        if symbols.is_empty() { "void".into() } else { symbols.join(", ") }
    }

    fn is_checked(&self) -> bool {
        !(self.entry.symbols.is_empty() && self.entry.checks.is_empty())
    }

    /// Prints the function that checks the dims.
    fn acceptance(&self) -> String {
        if !self.is_checked() {
            return String::new();
        }
        let limit = self.entry.limit;
        let ranges = self.symbols().into_iter().map(|name| match limit {
            limit if i32::try_from(limit).is_ok() => format!("{name} >= 0 && {name} <= {limit}"),
            limit => format!("{name} >= 0 && {name} <= INT64_C({limit})"),
        });
        let checks = self.entry.checks.iter().map(|check| {
            format!("{} {} {}", self.size(&check.left), check.relation, self.size(&check.right))
        });
        let all: Vec<String> = ranges.chain(checks).collect();
        format!(
            "/* Whether the dims are in range and fit together. */\n\
             static bool {}_accepts({}) {{\n  return {};\n}}\n\n",
            self.own_name(),
            self.parameters(),
            all.join("\n      && ")
        )
    }

    fn own_name(&self) -> &str {
        self.entry.name.trim_start_matches("mithril_")
    }

    fn workspace_bytes(&self) -> String {
        let dims_check = match self.is_checked() {
            true => format!(
                "  if (!{}_accepts({})) return SIZE_MAX;\n",
                self.own_name(),
                self.symbols().join(", ")
            ),
            false => String::new(),
        };
        let bytes = self.entry.workspace.bytes.clone();
        let bytes = expression(&bytes, &self.entry.symbols).at(Level::Unary);
        format!(
            "size_t {}_workspace_bytes({}) {{\n{dims_check}  return (size_t){bytes};\n}}\n\n",
            self.entry.name,
            self.parameters()
        )
    }

    fn checks(&self) -> String {
        let mut text = String::new();
        if self.is_checked() {
            let _ = writeln!(
                text,
                "  if (!{}_accepts({})) return MITHRIL_ERROR_DIMS;",
                self.own_name(),
                self.symbols().join(", ")
            );
        }
        let pointers = self.pointers();
        if !pointers.is_empty() {
            let nulls: Vec<String> =
                pointers.iter().map(|name| format!("{name} == NULL")).collect();
            let _ =
                writeln!(text, "  if ({}) return MITHRIL_ERROR_NULL;", nulls.join("\n      || "));
        }
        text + &self.arena() + &self.indices() + &self.zeros()
    }

    /// Prints the loops that check indices.
    fn indices(&self) -> String {
        let (index, place) = (self.local("index"), |depth: usize| self.local(&format!("i{depth}")));
        let mut text = String::new();
        for own in &self.entry.indices {
            let array = &self.entry.arguments[own.argument].name;
            let mut at: Vec<String> = match self.size(&own.first) {
                zero if zero == "0" && !own.loops.is_empty() => vec![],
                first => vec![first],
            };
            for (depth, (count, stride)) in own.loops.iter().enumerate() {
                let (i, count) = (place(depth), self.size(count));
                let indent = 2 + 2 * depth;
                let _ =
                    writeln!(text, "{:indent$}for (int64_t {i} = 0; {i} < {count}; ++{i}) {{", "");
                at.push(match stride {
                    Size::Const(1) => i,
                    stride => {
                        let stride = expression(stride, &self.entry.symbols).at(Level::Product);
                        format!("{i} * {stride}")
                    }
                });
            }
            let extent = expression(&own.extent, &self.entry.symbols).at(Level::Unary);
            let lowest = if own.from_end { format!("-{extent}") } else { "0".into() };
            let mut out_of_range = format!("{index} < {lowest} || {index} >= {extent}");
            if !own.ignored.is_empty() {
                let ignored = own.ignored.iter().map(|value| {
                    let value = self.size(&Size::Const(*value));
                    format!("{index} != {value} && ")
                });
                out_of_range = format!("{}({out_of_range})", ignored.collect::<String>());
            }
            // A single element needs no loop, only a block for its variable.
            let blocks = own.loops.len().max(1);
            if own.loops.is_empty() {
                text += "  {\n";
            }
            let indent = 2 + 2 * blocks;
            let _ = writeln!(
                text,
                "{:indent$}const int64_t {index} = (int64_t){array}[{}];\n\
                 {:indent$}if ({out_of_range}) return MITHRIL_ERROR_INDEX;",
                "",
                at.join(" + "),
                ""
            );
            for depth in (0..blocks).rev() {
                let _ = writeln!(text, "{:1$}}}", "", 2 + 2 * depth);
            }
        }
        text
    }

    /// Returns a name for a variable that differs from all parameters.
    fn local(&self, base: &str) -> String {
        let entry = self.entry;
        let arrays = entry.arguments.iter().chain(&entry.results).map(|array| &array.name);
        let symbols = entry.symbols.iter().map(|symbol| &symbol.name);
        let taken: Vec<&String> =
            arrays.chain(symbols).chain(entry.records.iter().map(|r| &r.name)).collect();
        let mut name = base.to_string();
        while taken.contains(&&name) {
            name.push('_');
        }
        name
    }

    /// Prints code that replaces missing arguments by zeros.
    fn zeros(&self) -> String {
        let workspace = &self.entry.workspace;
        let place = match self.size(&workspace.zeros) {
            zero if zero == "0" => "workspace".to_string(),
            offset => format!("(char *)workspace + {offset}"),
        };
        let bytes = expression(&workspace.zeroed, &self.entry.symbols).at(Level::Unary);
        // The workspace may be NULL if a dim is 0.
        let guard = match workspace.bytes {
            Size::Const(_) => "",
            _ => " && workspace != NULL",
        };
        let optional = self.entry.arguments.iter().filter(|array| array.is_optional());
        let lines = optional.map(|Array { name, .. }| {
            format!("  if ({name} == NULL{guard}) {name} = memset({place}, 0, (size_t){bytes});\n")
        });
        lines.collect()
    }

    /// The pointers that must not be NULL.
    fn pointers(&self) -> Vec<String> {
        let entry = self.entry;
        let mut pointers = Vec::new();
        for parameter in entry.parameters() {
            match parameter {
                Parameter::Argument(at) if entry.arguments[at].is_optional() => {}
                Parameter::Argument(at) => pointers.push(entry.arguments[at].name.clone()),
                Parameter::Result(at) => pointers.push(entry.results[at].name.clone()),
                Parameter::Record(at) => {
                    let record = &entry.records[at];
                    pointers.push(record.name.clone());
                    let fields = entry.fields(record);
                    pointers.extend(fields.map(|field| format!("{}->{}", record.name, field.name)));
                }
                Parameter::Symbol(_) | Parameter::Workspace => {}
            }
        }
        pointers
    }

    /// Prints the checks of the workspace. If its size is constant and MITHRIL_STATIC_ARENA is
    /// defined, a NULL workspace is replaced by a static one.
    fn arena(&self) -> String {
        let bytes = &self.entry.workspace.bytes;
        if *bytes == Size::Const(0) {
            return "  (void)workspace;\n".into();
        }
        let own = match bytes {
            Size::Const(bytes) => format!(
                "#ifdef MITHRIL_STATIC_ARENA\n\
                 \x20 static _Thread_local _Alignas(64) unsigned char arena[{bytes}];\n\
                 \x20 if (workspace == NULL) workspace = arena;\n\
                 #endif\n"
            ),
            _ => String::new(),
        };
        let guard = match bytes {
            Size::Const(_) => String::new(),
            bytes => format!("{} > 0 && ", self.size(bytes)),
        };
        format!(
            "{own}  if ({guard}workspace == NULL) return MITHRIL_ERROR_NULL;\n\
             \x20 if ((uintptr_t)workspace % 64 != 0) return MITHRIL_ERROR_ALIGNMENT;\n"
        )
    }

    /// Prints the variables of the temporaries that the launches use.
    fn temporaries(&self, launches: &str) -> String {
        let mut text = String::new();
        let buffers = &self.plan.program.buffers;
        let slots = self.entry.workspace.slots(0, &self.plan.program);
        let used: FxHashSet<&str> = words(launches).collect();
        for (number, name) in self.temporaries.iter().enumerate() {
            if buffers[number].place == Place::Temporary && used.contains(&**name) {
                let place = match self.size(&slots[number].offset) {
                    zero if zero == "0" => "workspace".to_string(),
                    offset => format!("(char *)workspace + {offset}"),
                };
                let _ = writeln!(text, "  void *const {name} = {place};");
            }
        }
        text
    }

    /// Returns the address of a buffer as a C expression.
    fn memory(&self, slot: &Slot, number: usize) -> String {
        let whole = self.whole(slot, number);
        let rows = slot.rows.iter().map(|(of_loop, bytes)| {
            let bytes = expression(bytes, &self.entry.symbols).at(Level::Product);
            format!(" + {} * {bytes}", row(*of_loop))
        });
        match (rows.collect::<String>(), slot.base) {
            (rows, _) if rows.is_empty() => whole,
            (rows, Base::Argument(_) | Base::Constant(_)) => {
                format!("(const void *)((const char *){whole}{rows})")
            }
            (rows, Base::Result(_) | Base::Workspace) => {
                format!("(void *)((char *){whole}{rows})")
            }
        }
    }

    /// Returns the address of the whole buffer of which `slot` may be a row.
    fn whole(&self, slot: &Slot, number: usize) -> String {
        let entry = self.entry;
        match slot.base {
            Base::Workspace => self.temporaries[self.roots[number]].clone(),
            Base::Constant(at) => constants::name(&entry.name, at),
            Base::Argument(at) => {
                self.array(&entry.arguments[at].name, entry.arguments[at].group, at)
            }
            Base::Result(at) => self.array(&entry.results[at].name, entry.results[at].group, at),
        }
    }

    fn array(&self, name: &str, group: Group, at: usize) -> String {
        match self.entry.field(group, at) {
            Some((record, _)) => format!("{}->{name}", self.entry.records[record].name),
            None => name.to_string(),
        }
    }
}
