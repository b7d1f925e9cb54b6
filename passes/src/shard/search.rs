//! Chooses how params and inputs are divided over a mesh: a beam search whose moves choose the layout
//! of one group of arrays. Layouts of all other values follow by propagation, in the manner of
//! PartIR (Alabed et al. 2025), and each state costs what its bill costs on a machine.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::bill::of_operation;
use super::layout::{Axis, Layout, Mesh};
use super::problem::Problem;
use super::propagate::{Relations, Spread};
use super::tables::Tables;
use super::time::{Estimates, Time};
use crate::cost::scaled;

/// The number of states that are kept after each move.
const BEAM: usize = 6;
/// The search ends after this many states. A count, so that the same model gets the same plan.
const VISITED: usize = 20_000;
/// The number of moves without a gain after which the search ends.
const PATIENCE: usize = 2;

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Plan {
    /// By value.
    pub values: Vec<Layout>,
    pub time: Time,
    /// The bytes that a device uses at most.
    pub memory: f64,
    /// The values whose layouts were chosen, in the order of the choices.
    pub chosen: Vec<Value>,
    /// The number of states that were looked at.
    pub visited: usize,
}

/// A choice of layouts.
#[derive(Clone)]
struct State {
    values: Vec<Layout>,
    fixed: Vec<bool>,
    /// Groups with their layouts, in the order in which they were chosen.
    choices: Vec<(usize, Layout)>,
    /// The time of each operation.
    times: Vec<Time>,
    score: Score,
}

/// States that need too much memory come last, by how much they need; the others by their time.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Score {
    excess: f64,
    seconds: f64,
}

impl Score {
    fn is_better(self, other: Score) -> bool {
        self.excess < other.excess || self.excess == other.excess && self.seconds < other.seconds
    }
}

/// A group of arguments, by number, and the layout that they will have.
#[derive(Clone)]
struct Move {
    group: usize,
    layout: Layout,
}

/// The moves of a search.
#[derive(Default)]
struct Moves {
    /// The only mesh axis that they use, if there is one.
    axis: Option<Axis>,
    /// A group, and a layout that it may not get.
    banned: Option<(usize, Layout)>,
}

impl Moves {
    fn allow(&self, own: &Move) -> bool {
        let mut axes = own.layout.dims.iter().flatten();
        let is_banned =
            |(group, layout): &(usize, Layout)| own.group == *group && own.layout == *layout;
        self.axis.is_none_or(|only| axes.all(|axis| *axis == only))
            && !self.banned.as_ref().is_some_and(is_banned)
    }
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    relations: Relations,
    /// For an operation, others whose cost depends on its layouts: those after it that read what it
    /// gathers, and those before it whose sums it adds up further.
    others: FxHashMap<usize, Vec<usize>>,
    estimates: Estimates,
    /// The bytes that a device may use.
    limit: f64,
    visited: usize,
}

/// Finds layouts of the arguments.
///
/// Errors: a given layout that does not fit; every layout that was found needs too much memory; a dim
/// without a number.
pub fn search(problem: &Problem) -> Result<Plan> {
    let mut search = Search::of(problem)?;
    let best = search.run()?;
    let memory = search.memory(&best);
    if best.score.excess > 0.0 {
        return Err(does_not_fit(problem.mesh, memory, problem.memory));
    }
    let time = best.times.iter().copied().sum();
    let (visited, chosen) = (search.visited, chosen(problem, &best));
    Ok(Plan { time, memory, visited, chosen, values: best.values })
}

/// The error of a model that needs more than the memory of a device.
pub fn does_not_fit(mesh: &Mesh, needed: f64, limit: f64) -> Box<Diagnostic> {
    let what = format!("the model does not fit into the memory of {} devices", mesh.devices());
    Box::new(
        Diagnostic::of(ErrorKind::Argument, what)
            .got(format!("{} a device, with the best layout that was found", scaled(needed, "B")))
            .expected(format!("at most {}", scaled(limit, "B")))
            .hint("use more devices, a smaller batch, or `gradient_checkpointing=True`"),
    )
}

/// The cost of given layouts alone, without a search.
///
/// Errors: as for [`search`], except that of the memory.
pub fn evaluate(problem: &Problem) -> Result<Plan> {
    let mut search = Search::of(problem)?;
    let state = search.first()?;
    let memory = search.memory(&state);
    let time = state.times.iter().copied().sum();
    let chosen = chosen(problem, &state);
    Ok(Plan { time, memory, visited: 1, chosen, values: state.values })
}

/// The values whose layouts were given or chosen, in that order.
fn chosen(problem: &Problem, state: &State) -> Vec<Value> {
    let given = problem.given.iter().map(|(value, _)| *value);
    let groups = state.choices.iter().flat_map(|(group, _)| problem.groups[*group].clone());
    given.chain(groups).collect()
}

impl<'a> Search<'a> {
    /// Errors: a dim without a number.
    fn of(problem: &'a Problem<'a>) -> Result<Search<'a>> {
        let (computed, _) = problem.gradients();
        let relations = Relations::of(problem.function, &computed);
        let estimates = Estimates::of(problem)?;
        let mut others: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for at in 0..problem.function.ops.len() {
            relations.earlier(at).iter().for_each(|own| others.entry(*own).or_default().push(at));
            for value in problem.function.ops[at].results() {
                let sums = relations.sums.after(value);
                sums.for_each(|(own, _)| others.entry(own).or_default().push(at));
            }
        }
        Ok(Search { problem, relations, others, estimates, limit: problem.memory, visited: 0 })
    }

    fn spread(&self) -> Spread<'_> {
        let Problem { function, mesh, .. } = *self.problem;
        Spread { function, mesh, relations: &self.relations }
    }

    fn first(&mut self) -> Result<State> {
        let (values, fixed) = self.spread().start(self.problem.given)?;
        let times = vec![Time::default(); self.problem.function.ops.len()];
        let score = Score { excess: 0.0, seconds: 0.0 };
        let mut state = State { values, fixed, choices: Vec::new(), times, score };
        self.count(&mut state, 0..self.problem.function.ops.len());
        Ok(state)
    }

    /// The best state that is found. The first searches take one mesh axis after the other, in both
    /// orders, and then all together. After them, each choice of the best state is banned in turn, as
    /// the choice that gains most at first may hide better ones.
    fn run(&mut self) -> Result<State> {
        let first = self.first()?;
        let axes: Vec<Axis> =
            self.problem.mesh.axes().enumerate().map(|(at, _)| at as Axis).collect();
        let mut best = self.beam(&first, &Moves::default());
        if axes.len() > 1 {
            for order in [axes.clone(), axes.into_iter().rev().collect()] {
                let step = |state: State, axis: &Axis| {
                    self.beam(&state, &Moves { axis: Some(*axis), banned: None })
                };
                let by_axes = order.iter().fold(first.clone(), step);
                let other = self.beam(&by_axes, &Moves::default());
                if other.score.is_better(best.score) {
                    best = other;
                }
            }
        }
        let other = self.fast_then_small(&first);
        if other.score.is_better(best.score) {
            best = other;
        }
        best = self.refined(&first, best);
        let mut at = 0;
        while at < best.choices.len() && self.visited < VISITED {
            let banned = Some(best.choices[at].clone());
            let other = self.beam(&first, &Moves { axis: None, banned });
            at += 1;
            if other.score.is_better(best.score) {
                best = self.refined(&first, other);
                at = 0;
            }
        }
        Ok(best)
    }

    /// The best state without a limit of memory, and what follows from it within the limit: arrays
    /// that are only kept are then divided further.
    fn fast_then_small(&mut self, first: &State) -> State {
        self.limit = f64::INFINITY;
        let mut state = self.beam(first, &Moves::default());
        self.limit = self.problem.memory;
        self.count(&mut state, []);
        self.beam(&state, &Moves::default())
    }

    /// Leaves out or changes one choice of a state, as long as that is better.
    fn refined(&mut self, first: &State, mut best: State) -> State {
        let mut at = 0;
        while at < best.choices.len() && self.visited < VISITED {
            let (group, own) = best.choices[at].clone();
            let value = self.problem.groups[group][0];
            let others = self.layouts(value).into_iter().map(Some).chain([None]);
            let mut found = None;
            for other in others.filter(|other| other.as_ref() != Some(&own)) {
                let mut choices = best.choices.clone();
                match other {
                    Some(layout) => choices[at].1 = layout,
                    None => drop(choices.remove(at)),
                }
                let mut state = first.clone();
                for (group, layout) in choices {
                    self.apply(&mut state, Move { group, layout });
                    self.visited += 1;
                }
                let least = found.as_ref().map_or(best.score, |found: &State| found.score);
                if state.score.is_better(least) {
                    found = Some(state);
                }
            }
            at += 1;
            if let Some(state) = found {
                best = state;
                at = 0;
            }
        }
        best
    }

    /// A beam search from a state.
    fn beam(&mut self, from: &State, allowed: &Moves) -> State {
        let mut beam = vec![from.clone()];
        let mut best = from.clone();
        let mut seen: FxHashSet<(i64, i64)> = FxHashSet::default();
        let mut without_gain = 0;
        while !beam.is_empty() && without_gain < PATIENCE {
            let mut found: Vec<(Score, usize, Move)> = Vec::new();
            for (at, state) in beam.iter().enumerate() {
                let mut copy = state.clone();
                for own in self.moves(state).into_iter().filter(|own| allowed.allow(own)) {
                    let score = self.tried(state, &mut copy, &own);
                    if seen.insert(likeness(score)) {
                        found.push((score, at, own));
                    }
                }
            }
            found.sort_by(|(one, ..), (other, ..)| {
                one.excess.total_cmp(&other.excess).then(one.seconds.total_cmp(&other.seconds))
            });
            found.truncate(BEAM);
            let reached = found.into_iter().map(|(_, at, own)| self.moved(&beam[at], own));
            let next: Vec<State> = reached.collect();
            match next.first() {
                Some(first) if first.score.is_better(best.score) => {
                    best = first.clone();
                    without_gain = 0;
                }
                _ => without_gain += 1,
            }
            beam = next;
        }
        best
    }

    /// The moves that a state allows: each group is chosen once.
    fn moves(&self, state: &State) -> Vec<Move> {
        let Problem { function, groups, given, .. } = *self.problem;
        let mut moves = Vec::new();
        for (group, values) in groups.iter().enumerate() {
            let is_given = given.iter().any(|(value, _)| values.contains(value));
            if is_given || state.choices.iter().any(|(own, _)| *own == group) {
                continue;
            }
            let dims = &function.ty(values[0]).shape.dims;
            let now = &state.values[values[0].index()];
            // Convolutions are not divided along their images.
            let is_image = values[0].index() >= function.args.len() && dims.len() > 3;
            let fits = |own: &Layout| {
                own != now && !(is_image && own.dims[2..].iter().any(|axes| !axes.is_empty()))
            };
            let all = self.layouts(values[0]).into_iter();
            moves.extend(all.filter(fits).map(|layout| Move { group, layout }));
        }
        moves
    }

    /// The state after a move.
    fn moved(&mut self, state: &State, own: Move) -> State {
        let mut next = state.clone();
        self.apply(&mut next, own);
        next
    }

    /// The score of a state after a move. `copy` is a copy of the state, and is one again afterwards.
    fn tried(&mut self, state: &State, copy: &mut State, own: &Move) -> Score {
        let (values, operations) = self.apply(copy, own.clone());
        self.visited += 1;
        for at in values.iter().map(|value| value.index()) {
            copy.values[at].clone_from(&state.values[at]);
            copy.fixed[at] = state.fixed[at];
        }
        for at in operations {
            copy.times[at] = state.times[at];
        }
        copy.choices.pop();
        copy.score
    }

    /// Makes a move, and returns the values and operations that it may have changed.
    fn apply(&mut self, state: &mut State, own: Move) -> (Vec<Value>, Vec<usize>) {
        let group = &self.problem.groups[own.group];
        let (values, fixed) = (&mut state.values, &mut state.fixed);
        let mut changed = self.spread().give(values, fixed, group, &own.layout);
        changed.extend(group);
        state.choices.push((own.group, own.layout));
        let users = changed.iter().flat_map(|value| self.relations.users(*value)).copied();
        let mut users: FxHashSet<usize> = users.collect();
        let others = users.iter().flat_map(|at| self.others.get(at).into_iter().flatten());
        let others: Vec<usize> = others.copied().collect();
        users.extend(others);
        let count = self.problem.function.ops.len();
        let operations: Vec<usize> = users.into_iter().filter(|at| *at < count).collect();
        self.count(state, operations.iter().copied());
        (changed, operations)
    }

    /// Counts the time of these operations anew.
    fn count(&mut self, state: &mut State, operations: impl IntoIterator<Item = usize>) {
        let Problem { function, mesh, .. } = *self.problem;
        for at in operations {
            let values = (&state.values[..], self.estimates.bytes());
            let bill = of_operation(function, mesh, &self.relations, at, values);
            state.times[at] = self.estimates.time(self.problem, at, &bill);
        }
        let excess = (self.memory(state) - self.limit).max(0.0);
        let seconds = state.times.iter().map(|time| time.total()).sum();
        state.score = Score { excess, seconds };
    }

    /// The layouts that may be chosen for a value.
    fn layouts(&self, value: Value) -> Vec<Layout> {
        let Problem { function, mesh, .. } = *self.problem;
        choices(function, mesh, &self.relations.tables, value)
    }

    /// The bytes that a device uses at most.
    fn memory(&self, state: &State) -> f64 {
        self.estimates.memory(self.problem, &state.values)
    }
}

/// The layouts that a search may choose for a value: all but those that make the rows of a table too
/// narrow.
pub fn choices(function: &Function, mesh: &Mesh, tables: &Tables, value: Value) -> Vec<Layout> {
    let mut all = layouts(mesh, &function.ty(value).shape.dims);
    all.retain(|layout| !tables.is_narrow(function, mesh, value, layout));
    all
}

/// All layouts of an array with these dims.
fn layouts(mesh: &Mesh, dims: &[Dim]) -> Vec<Layout> {
    let mut all = vec![Layout::replicated(dims.len())];
    for (axis, _) in mesh.axes().enumerate() {
        let axis = axis as Axis;
        if mesh.parts(&[axis]) == 1 {
            continue;
        }
        for at in 0..all.len() {
            for (dim, size) in dims.iter().enumerate() {
                let mut layout = all[at].clone();
                layout.dims[dim].push(axis);
                if mesh.divides(&layout.dims[dim], size) {
                    all.push(layout);
                }
            }
        }
    }
    all
}

/// A number that states share if they cost the same up to about a thousandth: most of these divide
/// the same work in ways that are equivalent.
fn likeness(score: Score) -> (i64, i64) {
    let rounded = |number: f64| ((number + f64::MIN_POSITIVE).ln() * 1000.0).round() as i64;
    (rounded(score.seconds), rounded(score.excess))
}
