//! Suggests how to convert params from PyTorch: their names, and the layout of their weights.

use mithril_driver::call::signature::{Group, Signature, Sizes, Slot};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::attributes;

/// The number of entries that a hint lists.
const MAX_SHOWN: usize = 6;

/// The Python expression that converts a `state_dict` to the dict of the model's params. `None` if
/// the names are not PyTorch's, or the blocks differ.
pub fn renamed(given: &Bound<'_, PyDict>, signature: &Signature) -> Option<String> {
    let keys: Vec<String> = given.keys().iter().map(|key| key.to_string()).collect();
    let split = |key: &str| {
        let (block, own) = key.rsplit_once('.').unwrap_or(("", key));
        let own = match own {
            "weight" => "w",
            "bias" => "b",
            _ => return None,
        };
        Some((block.to_string(), own))
    };
    let theirs: Vec<(String, &str)> = keys.iter().map(|key| split(key)).collect::<Option<_>>()?;
    let params: Vec<&Slot> = signature.slots.iter().filter(|s| s.group == Group::Params).collect();
    let block = |name: &str| name.rsplit_once('.').map_or("", |(block, _)| block).to_string();
    let unique = |mut names: Vec<String>| {
        names.dedup();
        names
    };
    let their_blocks = unique(theirs.iter().map(|(block, _)| block.clone()).collect());
    let own_blocks = unique(params.iter().map(|slot| block(&slot.name)).collect());
    // Blocks correspond by name. If the names differ, they correspond by position.
    let same = their_blocks.iter().all(|name| own_blocks.contains(name));
    if !same && their_blocks.len() != own_blocks.len() {
        return None;
    }
    let mut entries = Vec::new();
    for slot in &params {
        let own = slot.name.rsplit_once('.').map_or(&*slot.name, |(_, own)| own);
        let at = own_blocks.iter().position(|name| *name == block(&slot.name))?;
        let theirs_of = if same { &own_blocks[at] } else { &their_blocks[at] };
        let found = theirs.iter().position(|(block, name)| block == theirs_of && *name == own)?;
        let transposed = if is_transposed(given, &keys[found], slot) { ".T" } else { "" };
        entries.push(format!("\"{}\": params[\"{}\"]{transposed}", slot.name, keys[found]));
    }
    let more = if entries.len() > MAX_SHOWN { ", …" } else { "" };
    entries.truncate(MAX_SHOWN);
    Some(format!(
        "PyTorch's names, and its weights are (out, in): {{{}{more}}}",
        entries.join(", ")
    ))
}

/// Whether a weight is stored as (out, in) while the model has (in, out). A square matrix, whose
/// shape does not show the layout, counts as transposed.
fn is_transposed(given: &Bound<'_, PyDict>, key: &str, slot: &Slot) -> bool {
    let mut sizes = Sizes::new();
    let Some(value) = given.get_item(key).ok().flatten() else { return false };
    if attributes(&value, &mut sizes).is_none() || sizes.len() != 2 {
        return false;
    }
    let own: Vec<Option<i64>> = slot.ty.shape.dims.iter().map(|dim| dim.as_const()).collect();
    let as_it_is = own.iter().zip(&sizes).all(|(own, size)| own.is_none_or(|own| own == *size));
    let transposed = own.iter().zip(sizes.iter().rev());
    let transposed = transposed.into_iter().all(|(own, size)| own.is_none_or(|own| own == *size));
    transposed && (!as_it_is || sizes[0] == sizes[1] || own.contains(&None))
}
