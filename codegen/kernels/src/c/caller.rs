//! Wraps entry functions as kernels of the runtime: a program with a single launch, whose kernel
//! calls the entry function.

use std::fmt::Write;

use mithril_runtime::program::{Buffer, Launch, Place, Program};
use mithril_runtime::size::Size;

use super::Source;
use crate::entry::{Entry, Group, Parameter};

/// The name of the kernel that calls an entry.
pub fn name(entry: &Entry) -> String {
    format!("{}_kernel", entry.name)
}

/// Prints C to append to the file: one kernel per entry function. The buffers of the kernel are the
/// arguments, then the results. Its dims are the symbols, and its scratch memory is the workspace.
pub fn print(source: &Source) -> String {
    let mut text = String::new();
    for entry in &source.interface.entries {
        let _ = write!(
            text,
            "\nvoid {}(\n    unsigned char *scratch, void *const *buffers, const int64_t *dims, \
             int64_t first, int64_t last) {{\n  (void)scratch, (void)buffers, (void)dims, \
             (void)first, (void)last;\n",
            name(entry)
        );
        let buffer = |group: Group, at: usize| match group.is_read() {
            true => format!("buffers[{at}]"),
            false => format!("buffers[{}]", entry.arguments.len() + at),
        };
        let mut args = Vec::new();
        for parameter in entry.parameters() {
            args.push(match parameter {
                Parameter::Symbol(at) => format!("dims[{at}]"),
                Parameter::Argument(at) => buffer(entry.arguments[at].group, at),
                Parameter::Result(at) => buffer(entry.results[at].group, at),
                Parameter::Record(at) => {
                    let record = &entry.records[at];
                    let fields = record.fields.iter().map(|&at| buffer(record.group, at));
                    let fields: Vec<String> = fields.collect();
                    let _ = writeln!(
                        text,
                        "  const {} {} = {{{}}};",
                        record.type_name,
                        record.name,
                        fields.join(", ")
                    );
                    format!("&{}", record.name)
                }
                Parameter::Workspace => "scratch".into(),
            });
        }
        let _ = write!(text, "  {}({});\n}}\n", entry.name, args.join(", "));
    }
    text
}

/// The program that launches an entry's kernel, which has the number 0. `bytes` are the sizes of
/// the arguments, then of the results.
pub fn program(entry: &Entry, bytes: &[Size]) -> Program {
    let (args, results) = (entry.arguments.len(), entry.results.len());
    let places = (0..args).map(Place::Argument).chain((0..results).map(Place::Result));
    let buffers = places.zip(bytes).map(|(place, bytes)| Buffer { bytes: bytes.clone(), place });
    let launch = Launch {
        kernel: 0,
        buffers: (0..args + results).collect(),
        dims: (0..entry.symbols.len()).map(Size::Symbol).collect(),
        tasks: Size::Const(1),
        grain: Size::Const(1),
        scratch: entry.workspace.bytes.clone(),
    };
    Program {
        symbols: entry.symbols.len(),
        args,
        results,
        buffers: buffers.collect(),
        launches: vec![launch],
        ..Program::default()
    }
}
