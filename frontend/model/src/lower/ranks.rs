//! Inputs without a rank: which ranks a block needs, and whether any ranks fit it.
//!
//! A block that needs ranks is lowered with trial ranks until some fit. So an error that ranks do not
//! fix_it is found before they are known, and arguments and results have their dtypes.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Symbol;
use mithril_ir::graph::Module;

use super::block_error::BlockError;
use super::entry::{alone, check_options, shown, unranked};
use super::{DimSpec, Options};
use crate::block::{Block, Definition};
use crate::naming::symbol;

/// The functions of a block.
pub enum Lowered {
    /// For every rank that the options leave open.
    Complete(Module),
    NeedsRanks(Trial),
}

/// The functions of a block that needs ranks which the options leave open.
pub struct Trial {
    /// The inputs whose ranks are needed, in the block's order.
    pub inputs: Vec<Arc<str>>,
    /// The functions for some ranks of these inputs. Dims are symbols.
    pub module: Module,
}

/// Ranks in the order they are tried. More axes than 32 no array of NumPy had for long.
const RANKS: [usize; 33] = [
    2, 3, 4, 1, 5, 0, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
    26, 27, 28, 29, 30, 31, 32,
];

/// The most lowerings with trial ranks. One input takes 33 where none fits.
const ATTEMPTS: usize = 128;

/// The most inputs that are tried without a rank again, to name no more than are needed.
const DROPPED: usize = 8;

/// Lowers a block, with trial ranks where it needs ranks that nobody has given. `finish` adds what
/// the compile wants of the functions.
///
/// Errors: those of [`super::lower`] and of `finish`, where no rank fix_its them.
pub fn lower_or_try(
    block: &Block,
    options: &Options,
    finish: &dyn Fn(Module) -> Result<Module>,
) -> Result<Lowered> {
    let definition = alone(block)?;
    check_options(&definition, options)?;
    let mut search = Search {
        definition: &definition,
        finish,
        given: options.shapes.len(),
        options: options.clone(),
        levels: Vec::new(),
        failures: Vec::new(),
    };
    let first = match search.attempt() {
        Ok(module) => return Ok(Lowered::Complete(module)),
        Err(error) => error,
    };
    let Some(level) = search.asked(&first) else {
        return Err(first.report(&definition));
    };
    search.levels.push(level);
    match search.run() {
        Some(module) => Ok(Lowered::NeedsRanks(search.trial(module))),
        None if first.diagnostic.needs_rank.is_none() => Err(first.report(&definition)),
        None => Err(search.failure().unwrap_or_else(|| first.report(&definition))),
    }
}

/// A depth-first search for ranks that fit.
struct Search<'a> {
    definition: &'a Definition,
    finish: &'a dyn Fn(Module) -> Result<Module>,
    /// How many of the shapes are the caller's; those of the levels follow.
    given: usize,
    options: Options,
    levels: Vec<Level>,
    /// Why ranks did not fit.
    failures: Vec<Diagnostic>,
}

/// Inputs whose ranks one block asked for, and the choice of ranks that is tried.
struct Level {
    inputs: Vec<usize>,
    choice: usize,
    /// The one rank that the block takes.
    only: Option<usize>,
    /// Whether the block asked for the ranks of just these inputs, not of a value that may depend
    /// on others.
    exact: bool,
}

impl Level {
    /// The ranks of the inputs: all the same, then the first of them one higher or one lower than
    /// the others. `None`: all were tried.
    fn ranks(&self) -> Option<Vec<usize>> {
        let count = self.inputs.len();
        if let Some(rank) = self.only {
            return (self.choice == 0).then(|| vec![rank; count]);
        }
        if let Some(&rank) = RANKS.get(self.choice) {
            return Some(vec![rank; count]);
        }
        let (rank, is_higher) = ((self.choice - RANKS.len()) / 2, self.choice.is_multiple_of(2));
        if count < 2 || rank > 4 {
            return None;
        }
        let (first, others) = if is_higher { (rank + 1, rank) } else { (rank, rank + 1) };
        let mut ranks = vec![others; count];
        ranks[0] = first;
        Some(ranks)
    }
}

impl Search<'_> {
    /// The functions for the first ranks that fit; the levels say which these are.
    fn run(&mut self) -> Option<Module> {
        for _ in 0..ATTEMPTS {
            match self.attempt() {
                Ok(module) => return Some(module),
                Err(error) => match self.asked(&error) {
                    Some(level) => self.levels.push(level),
                    None => {
                        self.failures.push(*error.report(self.definition));
                        self.advance()?;
                    }
                },
            }
        }
        None
    }

    /// Lowers with the ranks that the levels choose.
    fn attempt(&mut self) -> std::result::Result<Module, Box<BlockError>> {
        self.options.shapes.truncate(self.given);
        for level in &self.levels {
            let ranks = level.ranks().unwrap_or_default();
            for (&input, rank) in level.inputs.iter().zip(ranks) {
                let name = self.definition.inputs[input].name.to_string();
                self.options.shapes.push((name, vec![DimSpec::Any; rank]));
            }
        }
        let (module, _) = shown(self.definition, &self.options)?;
        Ok((self.finish)(module)?)
    }

    /// Goes on to the next choice. `None`: there is none.
    fn advance(&mut self) -> Option<()> {
        loop {
            let level = self.levels.last_mut()?;
            level.choice += 1;
            if level.ranks().is_some() {
                return Some(());
            }
            self.levels.pop();
        }
    }

    /// The inputs whose ranks may fix_it this error. `None`: there are none.
    fn asked(&self, error: &BlockError) -> Option<Level> {
        let shapes = error.operands.iter().filter_map(|told| told.shape.as_ref());
        let leads: Vec<&Symbol> = match &error.diagnostic.needs_rank {
            Some(needs) => vec![&needs.lead],
            // What does not fit may do so once the ranks are known.
            None if error.diagnostic.is_misfit() => {
                shapes.filter_map(|shape| shape.lead.as_ref()).collect()
            }
            None => Vec::new(),
        };
        if leads.is_empty() {
            return None;
        }
        let open = unranked(self.definition, &self.options);
        let name = |input: usize| symbol(&self.definition.inputs[input].name);
        let exact = leads.iter().all(|lead| open.iter().any(|&input| name(input) == **lead));
        let is_asked = |input: &usize| !exact || leads.contains(&&name(*input));
        let inputs: Vec<usize> = open.iter().copied().filter(is_asked).collect();
        let only = error.diagnostic.needs_rank.as_ref().and_then(|needs| needs.rank);
        let only = only.filter(|_| exact);
        (!inputs.is_empty()).then_some(Level { inputs, choice: 0, only, exact })
    }

    /// The trial, with no more inputs than needed.
    fn trial(mut self, mut module: Module) -> Trial {
        let guessed = self.levels.iter().enumerate().filter(|(_, level)| !level.exact);
        let guessed: Vec<(usize, usize)> =
            guessed.flat_map(|(at, level)| level.inputs.iter().map(move |&i| (at, i))).collect();
        for (at, input) in guessed.into_iter().take(DROPPED) {
            let before = self.levels[at].inputs.clone();
            self.levels[at].inputs.retain(|&other| other != input);
            match self.attempt() {
                Ok(less) => module = less,
                Err(_) => self.levels[at].inputs = before,
            }
        }
        let mut inputs: Vec<usize> =
            self.levels.iter().flat_map(|level| level.inputs.iter().copied()).collect();
        inputs.sort_unstable();
        let name = |input: usize| self.definition.inputs[input].name.clone();
        Trial { inputs: inputs.into_iter().map(name).collect(), module }
    }

    /// The error to tell where no ranks fit: one that is not about shapes, or else the one of the
    /// place where most ranks failed.
    fn failure(self) -> Option<Box<Diagnostic>> {
        let times = |error: &Diagnostic| {
            self.failures.iter().filter(|other| other.place == error.place).count()
        };
        let weight = |error: &Diagnostic| (!error.is_misfit(), times(error));
        let best = self.failures.iter().enumerate();
        let best = best.max_by_key(|(at, error)| (weight(error), std::cmp::Reverse(*at)))?.0;
        self.failures.into_iter().nth(best).map(Box::new)
    }
}
