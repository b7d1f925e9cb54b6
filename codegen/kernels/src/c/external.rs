//! Prints external functions, whose C bodies the user has written. Their parameters are arrays and
//! dims.

use std::fmt::Write;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::loc::Loc;

use super::kernel::PrintedFunction;
use super::size::expression;
use crate::entry::{Dimension, Scope, c_type, identifier};
use crate::program::external::External;
use crate::program::{Kernel, size};

/// Prints the function under a name. The body can read the arrays, the number of elements `x_size`
/// and the dims `x_shape` of each array `x`, and the dims that the signature names.
///
/// Errors: a dim is unknown.
pub fn print(external: &External, name: &str, dims: usize) -> Result<PrintedFunction> {
    let mut scope = Scope::default();
    for array in &external.arrays {
        scope.name(&array.name);
    }
    let symbols: Vec<Symbol> = (0..dims as u32).map(Symbol::numbered).collect();
    let parameters: Vec<Dimension> = symbols
        .iter()
        .map(|symbol| Dimension { name: scope.name(symbol.as_str()), symbol: symbol.clone() })
        .collect();
    let value = |dim: &Dim| Ok(expression(&size(dim, &symbols)?, &parameters).text);
    let mut lines: Vec<String> = Vec::new();
    let reads = |name: &str| words(&external.text).any(|word| word == name);
    for array in &external.arrays {
        let own = &array.ty.shape.dims;
        let (count, shape) = (format!("{}_size", array.name), format!("{}_shape", array.name));
        if reads(&count) {
            let count_of: Dim = own.iter().cloned().product();
            lines.push(format!("const int64_t {count} = {};", value(&count_of)?));
        }
        if reads(&shape) {
            let sizes = own.iter().map(&value).collect::<Result<Vec<String>>>()?;
            let sizes = if sizes.is_empty() { "0".into() } else { sizes.join(", ") };
            lines.push(format!("const int64_t {shape}[] = {{{sizes}}};"));
        }
    }
    for (symbol, dim) in &external.symbols {
        let own = symbol.as_str();
        let is_parameter = parameters.iter().any(|parameter| parameter.name == own);
        if reads(own) && !is_parameter && external.arrays.iter().all(|array| *array.name != *own) {
            lines.push(format!("const int64_t {own} = {};", value(dim)?));
        }
    }
    lines.extend(external.text.lines().map(String::from));
    let arrays = external.arrays.iter().map(|array| {
        let constant = if array.written { "" } else { "const " };
        format!("{constant}{} *{}", c_type(array.ty.dtype), array.name)
    });
    let sizes = parameters.iter().map(|parameter| format!("int64_t {}", parameter.name));
    let all: Vec<String> = arrays.chain(sizes).collect();
    let mut text = format!("static void {name}({}) {{\n", all.join(", "));
    for line in lines {
        match line.trim().is_empty() {
            true => text.push('\n'),
            false => _ = writeln!(text, "  {line}"),
        }
    }
    text.push_str("}\n");
    let buffers = (0..external.arrays.len()).collect();
    Ok(PrintedFunction {
        text,
        scratch: false,
        buffers,
        dims: (0..dims).collect(),
        has_rolled_loops: false,
    })
}

/// The includes of a file that contains the functions of [`kernel`].
pub const HEAD: &str = concat!(
    "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <stdlib.h>\n",
    "#include <string.h>\n\n",
);

/// The first words of the comment above each external function.
pub const COMMENT: &str = "A custom operation";

/// Prints the function, and a kernel with the name `name` that calls it.
///
/// Errors: a dim is unknown.
pub fn kernel(kernel: &Kernel, external: &External, name: &str, loc: &Loc) -> Result<String> {
    let dims = kernel.lowered.code.dims as usize;
    let own = format!("{name}_{}", identifier(&external.name));
    let printed = print(external, &own, dims)?;
    let buffers = external.arrays.iter().enumerate().map(|(at, array)| {
        let constant = if array.written { "" } else { "const " };
        format!("({constant}{} *)buffers[{at}]", c_type(array.ty.dtype))
    });
    let args: Vec<String> = buffers.chain((0..dims).map(|n| format!("dims[{n}]"))).collect();
    let place = match loc.shortest() {
        Some(path) => format!("in {}", path.replace("*/", "")),
        None => external.name.to_string(),
    };
    Ok(format!(
        "/* {COMMENT}, {place}. */\n{}\nvoid {name}(void *scratch, void **buffers, const int64_t \
         *dims, int64_t lo, int64_t hi) {{\n  (void)scratch, (void)buffers, (void)dims;\n  \
         if (lo < hi) {own}({});\n}}\n\n",
        printed.text,
        args.join(", ")
    ))
}

/// The words of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}
