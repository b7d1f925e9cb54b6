//! The explanation of the rewrites, for Python, and text tables.

use mithril_passes::explain;
use mithril_passes::table::Table;
use pyo3::prelude::*;

/// What rewriting has done to a program: a table as text, and in notebooks.
#[pyclass(frozen, module = "mithril._core")]
pub struct Explanation(pub explain::Explanation);

/// A rule that fired.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct Fired {
    /// Its name.
    rule: &'static str,
    /// What it is about: `algebra`, `layout`, `composites`, ….
    topic: &'static str,
    /// What it may change: `exact`, `recognise`, `reassociate` or `fast`.
    math: &'static str,
    /// How often it was applied.
    times: usize,
    /// The paths of the blocks it was applied in.
    places: Vec<String>,
    /// The seconds that the program is estimated to take longer without it. Below 0 where the rule
    /// is there for numbers that stay finite.
    gain: f64,
}

#[pymethods]
impl Explanation {
    /// The seconds that the program is estimated to take with every operation of the model.
    #[getter]
    fn before(&self) -> f64 {
        seconds(self.0.before as f64)
    }

    /// The seconds that it is estimated to take as it was rewritten.
    #[getter]
    fn after(&self) -> f64 {
        seconds(self.0.after as f64)
    }

    /// The rules that fired, the most valuable first.
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

/// A table of text cells: as lines, and as HTML. The columns of `numbers` stand to the right.
#[pyfunction]
pub fn table(heads: Vec<String>, numbers: Vec<usize>, rows: Vec<Vec<String>>) -> (String, String) {
    let table = Table { heads, numbers, rows };
    (table.text(), table.html())
}
