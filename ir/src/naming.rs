//! Names that people would choose for parts of a model, for generated source.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Function, Operation, Role, Value};
use crate::op::Kind;

/// The last part of a block path. If that is a number, the part before it is included: `attn` for
/// `h.3.attn`, but `h.3` for `h.3`.
pub fn last_part(path: &str) -> &str {
    last_parts(path, 1)
}

/// The last `count` parts of a path, or more of them if the result would begin with a number.
pub fn last_parts(path: &str, count: usize) -> &str {
    let is_number = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let mut start = path.len();
    for (taken, part) in path.rsplit('.').enumerate() {
        start = start.saturating_sub(part.len() + usize::from(taken > 0));
        if taken + 1 >= count && !is_number(part) {
            break;
        }
    }
    &path[start..]
}

/// Short names for paths of params: for each path, the fewest last parts that distinguish it from
/// the others, but at least the block and its terminal. The names are distinct if the paths are.
pub fn short_paths<'p>(paths: &[&'p str]) -> Vec<&'p str> {
    let mut names: Vec<&str> = paths.iter().map(|path| last_parts(path, 2)).collect();
    for count in 3.. {
        let mut uses: FxHashMap<&str, u32> = FxHashMap::default();
        names.iter().for_each(|name| *uses.entry(name).or_default() += 1);
        let mut longer = false;
        for (name, path) in names.iter_mut().zip(paths) {
            if uses[*name] > 1 && *name != *path {
                *name = last_parts(path, count);
                longer = true;
            }
        }
        if !longer {
            break;
        }
    }
    names
}

/// Names for the values and the code of a function.
pub struct ValueNames<'f> {
    function: &'f Function,
    definitions: Vec<Option<u32>>,
    /// The values that are read outside the block that computes them.
    escapes: Vec<bool>,
    /// The values that depend on output gradients.
    backward: Vec<bool>,
}

impl<'f> ValueNames<'f> {
    pub fn of(function: &'f Function) -> ValueNames<'f> {
        let definitions = function.definitions();
        let mut escapes = vec![false; function.values.len()];
        let mut backward = escapes.clone();
        for (value, argument) in function.arguments() {
            backward[value.index()] = argument.role == Role::Cotangent;
        }
        for op in &function.ops {
            let path = op.loc.shortest();
            for operand in &op.operands {
                let own = definitions[operand.index()];
                let own = own.and_then(|at| function.ops[at as usize].loc.shortest());
                escapes[operand.index()] |= own != path;
            }
            let after = op.operands.iter().any(|operand| backward[operand.index()]);
            op.results().for_each(|value| backward[value.index()] = after);
        }
        function.results.iter().for_each(|result| escapes[result.value.index()] = true);
        ValueNames { function, definitions, escapes, backward }
    }

    fn definition(&self, value: Value) -> Option<&'f Operation> {
        self.definitions[value.index()].map(|at| &self.function.ops[at as usize])
    }

    /// The block whose result the value is. `None` for inner values of a block, and for operations
    /// that come from several blocks.
    fn block(&self, value: Value) -> Option<&'f str> {
        let loc = &self.definition(value)?.loc;
        let is_result = self.escapes[value.index()] && loc.paths().len() == 1;
        loc.shortest().filter(|_| is_result)
    }

    /// The name of a value: its own name, else the name of the block whose result it is, else the
    /// result name of its operation. The name of a param includes that of its block.
    pub fn value(&self, value: Value) -> String {
        let argument = self.function.args.get(value.index());
        let own = argument.map(|argument| last_parts(&argument.name, 2));
        let result = || self.function.results.iter().find(|result| result.value == value);
        let own = own.or_else(|| self.function.info(value).name.as_deref());
        let own = own.or_else(|| Some(&*result()?.name));
        let own = own.or_else(|| self.block(value).map(last_part));
        let own = own.or_else(|| Some(self.definition(value)?.op.result_name()));
        let own = own.unwrap_or("value");
        let suffix = if self.backward[value.index()] { "_gradient" } else { "" };
        format!("{}{suffix}", own.strip_suffix(suffix).unwrap_or(own))
    }

    /// A name for code that computes results from operands: the names of its blocks. If it computes
    /// only a part of one block, the name of the result follows. Code without blocks is named after
    /// its results.
    pub fn code(&self, operands: &[Value], results: &[Value]) -> String {
        let blocks = self.blocks(operands, results);
        let Some(&last) = results.last() else { return "nothing".into() };
        if blocks.is_empty() {
            let names: Vec<String> =
                results.iter().take(MAX_NAMES).map(|value| self.value(*value)).collect();
            return names.join("_");
        }
        let whole = results.iter().any(|result| self.block(*result).is_some());
        let name = match whole || blocks.len() > 1 {
            true => blocks.join("_"),
            false => format!("{}_{}", blocks[0], self.value(last)),
        };
        match self.backward[last.index()] && !name.ends_with("_gradient") {
            true => name + "_gradient",
            false => name,
        }
    }

    /// The last parts of the paths of the first blocks between operands and results, in order.
    fn blocks(&self, operands: &[Value], results: &[Value]) -> Vec<&'f str> {
        let mut found: FxHashSet<u32> = FxHashSet::default();
        let mut worklist = results.to_vec();
        while let Some(value) = worklist.pop() {
            let at = self.definitions[value.index()].filter(|_| !operands.contains(&value));
            if let Some(at) = at.filter(|at| found.insert(*at)) {
                worklist.extend(&self.function.ops[at as usize].operands);
            }
        }
        let mut order: Vec<u32> = found.into_iter().collect();
        order.sort_unstable();
        let mut blocks: Vec<&str> = Vec::new();
        for op in order.into_iter().map(|at| &self.function.ops[at as usize]) {
            let shared = op.op.kind == Kind::Constant;
            let block = op.loc.shortest().filter(|_| !shared).map(last_part);
            blocks.extend(block.filter(|block| !blocks.contains(block)));
        }
        blocks.truncate(MAX_NAMES);
        blocks
    }
}

/// The maximum number of names in the name of a piece of code.
const MAX_NAMES: usize = 3;

/// Whether a text is an identifier: letters, digits and underscores, of which the first is not a
/// digit.
pub fn is_identifier(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.chars().all(is_word) && text.starts_with(|c: char| !c.is_numeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_part_of_a_number_includes_the_part_before() {
        for (path, part) in [("h.3.attn", "attn"), ("h.3", "h.3"), ("3", "3"), ("a", "a")] {
            assert_eq!(last_part(path), part);
        }
        assert_eq!(last_parts("h.3.attn.w", 2), "attn.w");
        assert_eq!(last_parts("h.3.w", 2), "h.3.w");
    }

    #[test]
    fn short_paths_are_distinct() {
        let paths = ["a.x.w", "b.x.w", "b.y.w", "w", "deep.er.b.y.b"];
        assert_eq!(short_paths(&paths), ["a.x.w", "b.x.w", "y.w", "w", "y.b"]);
        assert_eq!(short_paths(&["x.w", "a.x.w"]), ["x.w", "a.x.w"]);
    }
}
