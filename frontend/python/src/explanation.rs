//! The explanation of the rewrites, for Python, and text tables.

use mithril_passes::explain;
use mithril_passes::table::Table;
use pyo3::prelude::*;

/// The rewrites of a program. It prints as a table, also in notebooks.
#[pyclass(frozen, module = "mithril._core")]
pub struct Explanation(pub explain::Explanation);

/// A rule that was applied.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct Fired {
    /// The name of the rule.
    rule: &'static str,
    /// The topic of the rule, such as `algebra`, `layout` or `composites`.
    topic: &'static str,
    /// The `math` that allows the rule: `exact`, `recognise`, `reassociate` or `fast`.
    math: &'static str,
    /// The number of times that it was applied.
    times: usize,
    /// The paths of the blocks in which it was applied.
    places: Vec<String>,
    /// The estimated seconds that the program would take longer without the rule. It is negative if
    /// the rule serves numerical stability instead.
    gain: f64,
}

#[pymethods]
impl Explanation {
    /// The estimated seconds of a call without rewriting.
    #[getter]
    fn before(&self) -> f64 {
        seconds(self.0.before as f64)
    }

    /// The estimated seconds of a call after rewriting.
    #[getter]
    fn after(&self) -> f64 {
        seconds(self.0.after as f64)
    }

    /// The rules that were applied, the largest gain first.
    #[getter]
    fn rules(&self) -> Vec<Fired> {
        let rule = |fired: &explain::Fired| Fired {
            rule: fired.name,
            topic: fired.topic,
            math: fired.class.name(),
            times: fired.times,
            places: fired.places.paths().iter().map(|path| path.to_string()).collect(),
            gain: seconds(fired.gain as f64),
        };
        self.0.rules.iter().map(rule).collect()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn _repr_html_(&self) -> String {
        self.0.html()
    }
}

#[pymethods]
impl Fired {
    fn __repr__(&self) -> String {
        format!("{}: {} times, gain {:.3e} s", self.rule, self.times, self.gain)
    }
}

fn seconds(picoseconds: f64) -> f64 {
    picoseconds * 1e-12
}

/// Formats a table of texts: as plain text, and as HTML. The columns in `numbers` are aligned
/// right.
#[pyfunction]
pub fn table(heads: Vec<String>, numbers: Vec<usize>, rows: Vec<Vec<String>>) -> (String, String) {
    let table = Table { heads, numbers, rows };
    (table.text(), table.html())
}
