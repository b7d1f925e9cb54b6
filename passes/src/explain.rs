//! What rewriting has done to a program: which rules fired, where, and what each is worth.

use std::fmt::{self, Display, Formatter};

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Module;
use mithril_ir::loc::Loc;

use crate::driver::{Driver, Report};
use crate::pipeline::{Effort, Level, rewritten};
use crate::profile;
use crate::rules::{Class, RULES, Rule};
use crate::specialise::given::Shapes;
use crate::target::Target;

/// What rewriting has done.
#[derive(Debug)]
pub struct Explanation {
    /// The picoseconds that the program is estimated to take with every operation of the model.
    pub before: u64,
    /// Those it takes as it was rewritten.
    pub after: u64,
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
    /// The picoseconds that the program takes longer without it; below 0 where it is there for
    /// numbers that stay finite, not for time.
    pub gain: i64,
}

/// Explains how a model's functions are rewritten for `target`. What a rule is worth is told by
/// doing it all again without it.
///
/// Errors: those of compiling.
pub fn explain(
    module: &Module,
    shapes: &Shapes,
    target: Target,
    gradients: bool,
    effort: &Effort,
) -> Result<Explanation> {
    let run = |effort: &Effort| -> Result<(u64, Report)> {
        let pipeline = rewritten(shapes.clone(), target, gradients, effort);
        let (module, report) = Driver::default().run(&pipeline, module)?;
        Ok((profile::of_module(&module, target)?, report))
    };
    let (before, _) = run(&Effort { level: Level::None, ..effort.clone() })?;
    let (after, report) = run(effort)?;
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
        let mut effort = effort.clone();
        effort.without.push(fired.name.to_string());
        fired.gain = run(&effort)?.0 as i64 - after as i64;
    }
    rules.sort_by_key(|fired| std::cmp::Reverse(fired.gain));
    Ok(Explanation { before, after, rules })
}

impl Fired {
    fn new(rule: &Rule, loc: &Loc) -> Fired {
        let (name, topic, class) = (rule.name, rule.topic, rule.class);
        Fired { name, topic, class, times: 1, places: loc.clone(), gain: 0 }
    }

    /// The cells of its row in tables.
    pub fn cells(&self) -> [String; 5] {
        let places = self.places.blocks().unwrap_or_default();
        let gain = match self.gain {
            gain if gain < 0 => format!("-{}", time(gain.unsigned_abs())),
            gain => time(gain.unsigned_abs()),
        };
        let name = self.name.to_string();
        [name, self.class.name().to_string(), self.times.to_string(), gain, places]
    }
}

/// The heads of [`Fired::cells`].
pub const HEADS: [&str; 5] = ["rule", "class", "times", "gain", "where"];

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        writeln!(f, "estimated: {} before, {} after", time(self.before), time(self.after))?;
        if self.rules.is_empty() {
            return f.write_str("no rule fired");
        }
        let rows: Vec<[String; 5]> = self.rules.iter().map(Fired::cells).collect();
        let width = |at: usize| {
            let cells = rows.iter().map(|row| row[at].chars().count());
            cells.chain([HEADS[at].len()]).max().unwrap_or(0)
        };
        let widths: [usize; 5] = std::array::from_fn(width);
        let heads = HEADS.map(String::from);
        for (number, row) in [&heads].into_iter().chain(&rows).enumerate() {
            let line: Vec<String> = (row.iter().zip(widths).enumerate())
                .map(|(at, (cell, width))| match at {
                    2 | 3 => format!("{cell:>width$}"),
                    _ => format!("{cell:<width$}"),
                })
                .collect();
            let end = if number < rows.len() { "\n" } else { "" };
            write!(f, "{}{end}", line.join("  ").trim_end())?;
        }
        Ok(())
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

impl Explanation {
    /// The table as HTML.
    pub fn html(&self) -> String {
        let row = |tag: &str, cells: &[String]| {
            let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
            format!("<tr>{}</tr>", cells.collect::<String>())
        };
        let rows: String = self.rules.iter().map(|fired| row("td", &fired.cells())).collect();
        format!(
            "<p>estimated: {} before, {} after</p><table>{}{rows}</table>",
            time(self.before),
            time(self.after),
            row("th", &HEADS.map(String::from))
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
