//! Explains how a program was rewritten: which rules fired, where, and how much time each saves.

use std::fmt::{self, Display, Formatter};

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Module;
use mithril_ir::loc::Loc;

use crate::driver::{Driver, Report};
use crate::eqsat;
use crate::estimate;
use crate::pipeline::{Level, OptimizationOptions, rewritten};
use crate::rules::{Class, RULES, Rule};
use crate::specialise::shapes::Shapes;
use crate::table::Table;
use crate::target::Target;

/// The result of rewriting a program.
#[derive(Debug)]
pub struct Explanation {
    /// The estimated time in picoseconds with every operation of the model kept.
    pub before: u64,
    /// The estimated time in picoseconds after rewriting.
    pub after: u64,
    /// Whether some dims are unknown, which estimates assume to be [`estimate::NOMINAL`].
    pub open: bool,
    /// The number of operations in functions that are too large for equality saturation.
    pub skipped: u64,
    /// The rules that fired, the most valuable first.
    pub rules: Vec<Fired>,
}

/// A rule that fired.
#[derive(Debug)]
pub struct Fired {
    pub name: &'static str,
    pub topic: &'static str,
    pub class: Class,
    pub times: usize,
    /// The blocks it was applied in.
    pub places: Loc,
    /// How many picoseconds longer the program takes without it. Negative if the rule exists for
    /// numerical stability, not for speed.
    pub gain: i64,
}

/// Explains how a model's functions are rewritten for `target`. The value of a rule is measured by
/// rewriting again without it.
///
/// Errors: those of compiling.
pub fn explain(
    module: &Module,
    shapes: &Shapes,
    target: Target,
    gradients: bool,
    optimization: &OptimizationOptions,
) -> Result<Explanation> {
    let run = |optimization: &OptimizationOptions| -> Result<(Module, Report)> {
        let pipeline = rewritten(shapes.clone(), target, gradients, optimization);
        Driver::default().run(&pipeline, module)
    };
    let time = |module: &Module| estimate::of_module(module, target);
    let before =
        time(&run(&OptimizationOptions { level: Level::None, ..optimization.clone() })?.0)?;
    let (rewritten, report) = run(optimization)?;
    let after = time(&rewritten)?;
    let mut rules: Vec<Fired> = Vec::new();
    for rewrite in &report.rewrites {
        let Some(rule) = RULES.iter().find(|rule| rule.name == rewrite.rule) else {
            continue;
        };
        match rules.iter_mut().find(|fired| fired.name == rule.name) {
            Some(fired) => {
                fired.times += 1;
                fired.places.merge(&rewrite.loc);
            }
            None => rules.push(Fired::new(rule, &rewrite.loc)),
        }
    }
    for fired in &mut rules {
        let mut optimization = optimization.clone();
        optimization.without.push(fired.name.to_string());
        fired.gain = time(&run(&optimization)?.0)? as i64 - after as i64;
    }
    rules.sort_by_key(|fired| std::cmp::Reverse(fired.gain));
    let statistics = report.passes.iter().flat_map(|outcome| &outcome.statistics);
    let skipped = statistics.filter(|(name, _)| *name == eqsat::TOO_LARGE).map(|(_, n)| *n).max();
    let (open, skipped) = (takes_unknown_dims(&rewritten), skipped.unwrap_or(0));
    Ok(Explanation { before, after, open, skipped, rules })
}

/// Whether the entry takes arrays of which some dims are not known.
fn takes_unknown_dims(module: &Module) -> bool {
    module.entry().is_some_and(|entry| {
        let mut any = false;
        let types = entry.arguments().map(|(value, _)| entry.ty(value));
        types.for_each(|ty| ty.shape.for_each_symbol(&mut |_| any = true));
        any
    })
}

impl Fired {
    fn new(rule: &Rule, loc: &Loc) -> Fired {
        let (name, topic, class) = (rule.name, rule.topic, rule.class);
        Fired { name, topic, class, times: 1, places: loc.clone(), gain: 0 }
    }

    fn cells(&self) -> Vec<String> {
        let places = self.places.blocks().unwrap_or_default();
        let gain = match self.gain {
            gain if gain < 0 => format!("-{}", time(gain.unsigned_abs())),
            gain => time(gain.unsigned_abs()),
        };
        let name = self.name.to_string();
        vec![name, self.class.name().to_string(), self.times.to_string(), gain, places]
    }
}

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        match self.rules.is_empty() {
            true => f.write_str("no rule fired"),
            false => f.write_str(self.table().text().trim_end()),
        }
    }
}

impl Explanation {
    /// The explanation of a program that consists of several.
    pub fn joined(all: Vec<Explanation>) -> Explanation {
        let mut rules: Vec<Fired> = Vec::new();
        let mut joined =
            Explanation { before: 0, after: 0, open: false, skipped: 0, rules: vec![] };
        for own in all {
            joined.before += own.before;
            joined.after += own.after;
            joined.open |= own.open;
            joined.skipped += own.skipped;
            for fired in own.rules {
                match rules.iter_mut().find(|known| known.name == fired.name) {
                    Some(known) => {
                        known.times += fired.times;
                        known.places.merge(&fired.places);
                        known.gain += fired.gain;
                    }
                    None => rules.push(fired),
                }
            }
        }
        rules.sort_by_key(|fired| std::cmp::Reverse(fired.gain));
        Explanation { rules, ..joined }
    }

    fn summary(&self) -> String {
        let (before, after) = (time(self.before), time(self.after));
        let open = match self.open {
            true => format!(", with {} for unknown dims", estimate::NOMINAL),
            false => String::new(),
        };
        let skipped = match self.skipped {
            0 => String::new(),
            n => format!("; {n} operations are in functions that are too large to be rewritten"),
        };
        format!("estimated: {before} before, {after} after{open}{skipped}")
    }

    fn table(&self) -> Table {
        let heads = ["rule", "class", "times", "gain", "where"];
        Table::new(&heads, &[2, 3], self.rules.iter().map(Fired::cells).collect())
    }

    /// As HTML, for notebooks.
    pub fn html(&self) -> String {
        format!("<p>{}</p>{}", self.summary(), self.table().html())
    }
}

/// Picoseconds with a unit.
fn time(picoseconds: u64) -> String {
    let scales = [(1e12, "s"), (1e9, "ms"), (1e6, "µs"), (1e3, "ns")];
    let number = picoseconds as f64;
    match scales.iter().find(|(scale, _)| number >= *scale) {
        Some((scale, unit)) => format!("{:.1} {unit}", number / scale),
        None => "0 ns".to_string(),
    }
}
