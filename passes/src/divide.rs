//! `divide`: divides the entry into functions, by blocks.

use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::context::PassContext;
use crate::part::Part;
use crate::pass::Pass;

pass! {
    /// Divides the operations of the entry into functions, by the blocks that they come from. The
    /// entry becomes a list of calls. There are as few functions as the order of the operations
    /// allows. The blocks around those that are named must be inlined.
    pub struct Divide("divide") {
        /// Blocks with the names of their functions: `encoder:torch`. Of two paths that contain an
        /// operation, the longer one counts. Operations of other blocks go to functions called
        /// `rest`.
        blocks: Vec<String> = Vec::new(),
    }
}

impl Pass for Divide {
    /// Errors: a path that no operation comes from.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let mut groups = vec!["rest"];
        let mut places = Vec::new();
        for item in &self.blocks {
            let (path, name) = item.rsplit_once(':').unwrap_or((item, item));
            let known = groups.iter().position(|group| *group == name);
            let group = known.unwrap_or_else(|| {
                groups.push(name);
                groups.len() - 1
            });
            places.push((path.to_string(), group));
        }
        let Some(entry) = module.entry().filter(|_| !places.is_empty()) else {
            return Ok(module.clone());
        };
        check_places(entry, &places)?;
        let (module, order) = divide(module, &places, &groups)?;
        cx.count("parts", order.len());
        Ok(module)
    }
}

/// Divides the entry's operations. `places` has the group of blocks by their paths; other blocks
/// belong to group 0. `names` are the names of the functions of each group. Returns the module, and
/// the group of each call of the new entry.
///
/// Errors: none for valid modules.
pub fn divide(
    module: &Module,
    places: &[(String, usize)],
    names: &[&str],
) -> Result<(Module, Vec<usize>)> {
    let Some(entry) = module.entry() else { return Ok((module.clone(), Vec::new())) };
    let groups = Groups::of(entry, places, names.len());
    let mut out = module.clone();
    let builder = Builder::like(entry.name.clone(), entry);
    let mut map: FxHashMap<Value, Value> =
        entry.arguments().map(|(value, _)| (value, value)).collect();
    let mut order = Vec::new();
    for stage in groups.stages() {
        let (ops, outside) = groups.operations(entry, stage);
        let part = Part::new(entry, ops, &|value| outside.contains(&value));
        if !part.outputs.is_empty() {
            let name = out.fresh_name(names[stage.1]);
            part.call(&builder, &mut out, entry, name, &mut map)?;
            order.push(stage.1);
        }
    }
    let results = entry.results.iter();
    let results = results.map(|own| ResultDef { value: map[&own.value], ..own.clone() }).collect();
    out.insert(builder.finish(results)?);
    Ok((out, order))
}

/// Errors: a path that no operation comes from.
fn check_places(entry: &Function, places: &[(String, usize)]) -> Result<()> {
    let paths: FxHashSet<&str> =
        entry.ops.iter().flat_map(|op| op.loc.paths()).map(|path| &**path).collect();
    let missing = places.iter().find(|(own, _)| !paths.iter().any(|path| contains(own, path)));
    let Some((missing, _)) = missing else { return Ok(()) };
    let what = format!("no operation comes from a block `{missing}`");
    let mut error = Diagnostic::of(ErrorKind::Terminal, what);
    error.hint = did_you_mean(missing, paths.into_iter());
    error.err()
}

/// Whether the block `outer` is the block `path`, or one around it.
fn contains(outer: &str, path: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A number for each group.
type ByGroup = SmallVec<[usize; 4]>;

/// The group and level of an operation. Operations of one group and one level form a part. Values
/// go from a part to parts of higher levels alone.
type Stage = (usize, usize);

/// The stage of each operation; `None` for one that each part computes for itself.
struct Groups {
    stages: Vec<Option<Stage>>,
    count: usize,
}

impl Groups {
    fn of(entry: &Function, places: &[(String, usize)], count: usize) -> Groups {
        let results: FxHashSet<Value> = entry.results.iter().map(|result| result.value).collect();
        let stage = |op: &Operation| {
            let repeated = is_cheap(entry, op) && !op.results().any(|v| results.contains(&v));
            (!repeated).then(|| (0, group(op, places)))
        };
        let stages = entry.ops.iter().map(stage).collect();
        let mut groups = Groups { stages, count };
        groups.raise(entry);
        groups.delay(entry);
        groups
    }

    /// Gives each operation the lowest level at which its operands are known.
    fn raise(&mut self, entry: &Function) {
        // For each value and group, the level at which the group can read the value.
        let mut known: Vec<ByGroup> = vec![SmallVec::from_elem(0, self.count); entry.values.len()];
        for (op, stage) in entry.ops.iter().zip(&mut self.stages) {
            let mut levels: ByGroup = SmallVec::from_elem(0, self.count);
            for operand in &op.operands {
                let operand = &known[operand.index()];
                levels.iter_mut().zip(operand).for_each(|(own, level)| *own = (*own).max(*level));
            }
            if let Some((level, group)) = stage {
                *level = levels[*group];
                levels.fill(*level + 1);
                levels[*group] = *level;
            }
            op.results().for_each(|value| known[value.index()].clone_from(&levels));
        }
    }

    /// Moves operations to the later part of their group that reads them first, so that their
    /// values do not wait in between.
    fn delay(&mut self, entry: &Function) {
        // For each value and group, the lowest level at which the group reads the value.
        let mut read: Vec<ByGroup> =
            vec![SmallVec::from_elem(usize::MAX, self.count); entry.values.len()];
        for (op, stage) in entry.ops.iter().zip(&mut self.stages).rev() {
            let mut levels: ByGroup = SmallVec::from_elem(usize::MAX, self.count);
            for value in op.results() {
                let own = &read[value.index()];
                levels.iter_mut().zip(own).for_each(|(own, level)| *own = (*own).min(*level));
            }
            if let Some((level, group)) = stage {
                let own = levels[*group];
                let others = levels.iter().enumerate().filter(|(at, _)| at != group);
                let is_first = others.map(|(_, other)| *other).all(|other| own < other);
                if own != usize::MAX && is_first {
                    *level = own.max(*level);
                }
                levels.fill(usize::MAX);
                levels[*group] = *level;
            }
            for operand in &op.operands {
                let operand = &mut read[operand.index()];
                operand.iter_mut().zip(&levels).for_each(|(own, level)| *own = (*own).min(*level));
            }
        }
    }

    /// The parts, in an order in which they can run.
    fn stages(&self) -> Vec<Stage> {
        let mut stages: Vec<Stage> = self.stages.iter().flatten().copied().collect();
        stages.sort_unstable();
        stages.dedup();
        stages
    }

    /// The operations of a part with those that it repeats, and the values that are read elsewhere.
    fn operations(&self, entry: &Function, stage: Stage) -> (Vec<bool>, FxHashSet<Value>) {
        let mut needed: FxHashSet<Value> = FxHashSet::default();
        let mut outside: FxHashSet<Value> =
            entry.results.iter().map(|result| result.value).collect();
        let mut chosen = vec![false; entry.ops.len()];
        // What others read, also through operations that they repeat.
        let mut elsewhere: FxHashSet<Value> = FxHashSet::default();
        for (at, op) in entry.ops.iter().enumerate().rev() {
            let is_own = self.stages[at] == Some(stage);
            let is_repeated = self.stages[at].is_none();
            chosen[at] = is_own || (is_repeated && op.results().any(|v| needed.contains(&v)));
            if chosen[at] {
                needed.extend(&op.operands);
            }
            let read = is_repeated && op.results().any(|v| elsewhere.contains(&v));
            if read || !(is_own || is_repeated) {
                elsewhere.extend(&op.operands);
            }
        }
        let own = entry.ops.iter().zip(&self.stages).filter(|(_, own)| **own == Some(stage));
        let computed: FxHashSet<Value> = own.flat_map(|(op, _)| op.results()).collect();
        outside.extend(elsewhere);
        outside.retain(|value| computed.contains(value));
        (chosen, outside)
    }
}

/// Whether each part that reads the operation's results computes them itself: constants, and sizes,
/// which would not be known as dims otherwise.
fn is_cheap(entry: &Function, op: &Operation) -> bool {
    let is_known = |value: Value| entry.info(value).known.is_some();
    op.operands.is_empty() || op.results().all(is_known)
}

/// The group of an operation: that of the longest path that contains one of its blocks.
fn group(op: &Operation, places: &[(String, usize)]) -> usize {
    let own = op.loc.paths();
    let around = places.iter().filter(|(path, _)| own.iter().any(|own| contains(path, own)));
    around.max_by_key(|(path, _)| path.len()).map_or(0, |(_, group)| *group)
}
