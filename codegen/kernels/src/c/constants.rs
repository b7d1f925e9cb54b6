//! Prints the constants of a function as C arrays.

use std::fmt::Write;

use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use rustc_hash::FxHashSet;

use super::expression::{literal, words};
use crate::entry::c_type;
use crate::program::Plan;

/// The name of a constant of an entry.
pub fn name(entry: &str, number: usize) -> String {
    format!("{}{number}", prefix(entry))
}

/// The first part of the names of an entry's constants.
pub fn prefix(entry: &str) -> String {
    format!("{}_constant_", entry.trim_start_matches("mithril_"))
}

/// Prints the constants of a plan that the text `entries` uses. The other constants are inside
/// kernels.
pub fn print(entry: &str, plan: &Plan, entries: &str) -> String {
    let named = plan.constants.iter().enumerate();
    let named = named.map(|(at, constant)| (name(entry, at), &constant.tensor));
    let words: FxHashSet<&str> = words(entries).collect();
    let used = named.filter(|(name, _)| words.contains(&**name));
    used.map(|(name, tensor)| array(&name, tensor)).collect()
}

fn array(name: &str, tensor: &Tensor) -> String {
    let (ty, dtype) = (c_type(tensor.dtype()), stored(tensor.dtype()));
    let sizes: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
    let count = tensor.len().max(1);
    let mut text = format!(
        "/* {} [{}] */\nstatic const {ty} {name}[{count}] = {{",
        tensor.dtype(),
        sizes.join(", ")
    );
    let mut width = usize::MAX;
    for at in 0..tensor.len() {
        let number = literal(dtype, tensor.element_bits(at)).text;
        if width.saturating_add(number.len()) > 96 {
            text += "\n ";
            width = 1;
        }
        width += number.len() + 2;
        let _ = write!(text, " {number},");
    }
    if tensor.is_empty() {
        text += "0";
    }
    text + "\n};\n"
}

/// The dtype in which elements are stored: bools are bytes.
fn stored(dtype: DType) -> DType {
    if dtype == DType::Bool { DType::U8 } else { dtype }
}
