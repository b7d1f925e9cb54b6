//! Prints a model as one file of readable C11 for any compiler: its interface, the functions that C
//! lacks, constants, kernels, and the entries that call them in order.

pub mod caller;
mod constants;
mod entry;
mod expression;
pub mod external;
mod functions;
mod kernel;
mod kernels;
mod loops;
mod size;
mod usage;
mod values;

use std::fmt::Write;

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Function;
use mithril_passes::indexed::Indexed;

use crate::entry::{ARITHMETIC, Interface, header};
use crate::program::Plan;
use kernels::Kernels;
use size::ROUND_UP;

/// A C file, and the interface that it declares.
#[derive(Clone, Debug)]
pub struct Source {
    pub text: String,
    pub interface: Interface,
}

/// Prints the file of a model's functions, the forward function first, from their plans for
/// [`Isa::PORTABLE`]. All names in it contain the model's name. `indexed` are the inputs whose
/// elements are checked.
///
/// Errors: an array that no memory holds; a dim that no argument shows.
///
/// [`Isa::PORTABLE`]: crate::isa::Isa::PORTABLE
pub fn print(model: &str, functions: &[(&Function, &Plan)], indexed: &[Indexed]) -> Result<Source> {
    let all: Vec<_> = functions.iter().map(|(function, plan)| (*function, vec![*plan])).collect();
    let interface = Interface::new(model, &all, indexed)?;
    let mut kernels = Kernels::new(&interface);
    let mut entries = String::new();
    for (entry, (_, plan)) in interface.entries.iter().zip(functions) {
        let calls = kernels.add(entry, plan)?;
        entries += &entry::print(entry, plan, &calls);
    }
    let constants = functions.iter().zip(&interface.entries);
    let constants: String =
        constants.map(|((_, plan), entry)| constants::print(&entry.name, plan, &entries)).collect();
    let own = kernels.functions();
    let mut text = header(&interface, &about(&interface.model));
    text += "\n#include <math.h>\n#include <stdbool.h>\n";
    let calls = |f: &&str| [&own, &entries, &kernels.text].iter().any(|text| text.contains(f));
    if ["memcpy(", "memset(", "memmove("].iter().any(calls) {
        text += "#include <string.h>\n";
    }
    if ["malloc(", "calloc(", "qsort(", "abs("].iter().any(|f| kernels.text.contains(f)) {
        text += "#include <stdlib.h>\n";
    }
    let rolled = if kernels.rolls { loops::ROLLED.1 } else { "" };
    for part in [rolled, &own, &arithmetic(&entries), &constants, &kernels.text, &entries] {
        if !part.is_empty() {
            let _ = write!(text, "\n{}\n", part.trim_end());
        }
    }
    Ok(Source { text, interface })
}

fn about(model: &str) -> String {
    format!(
        "The model {model} as C11, made by Mithril {}. It needs nothing but the headers it \
         includes and the library of mathematics:\n\n\
         cc -O3 -march=native -fno-math-errno -c {model}.c\n\n\
         Where MITHRIL_STATIC_ARENA is defined, functions whose workspace has a known size have \
         one of their own for each thread, which they use where the given one is NULL.",
        env!("CARGO_PKG_VERSION")
    )
}

/// The arithmetic functions that the sizes in the entries use.
fn arithmetic(entries: &str) -> String {
    let mut text = String::new();
    let uses = |name: &str, text: &str| text.contains(&format!("{name}("));
    // In reverse, as later functions call earlier ones.
    for line in ARITHMETIC.lines().rev() {
        let name = line.split('(').next().and_then(|head| head.split(' ').next_back());
        if name.is_some_and(|name| uses(name, entries) || uses(name, &text)) {
            text = format!("{line}\n{text}");
        }
    }
    if uses(ROUND_UP.0, entries) {
        text += ROUND_UP.1;
    }
    text
}
