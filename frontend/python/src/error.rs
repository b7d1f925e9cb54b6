//! Errors at the boundary to Python: diagnostics and panics become exceptions.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::IntoPyDict;

/// An error that will be raised in Python.
pub enum Error {
    Diagnostic(Box<Diagnostic>),
    Python(PyErr),
}

pub type Answer<T> = Result<T, Error>;

impl From<Box<Diagnostic>> for Error {
    fn from(error: Box<Diagnostic>) -> Error {
        Error::Diagnostic(error)
    }
}

impl From<Diagnostic> for Error {
    fn from(error: Diagnostic) -> Error {
        Error::Diagnostic(Box::new(error))
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Error {
        Error::Python(error)
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        match error {
            Error::Python(error) => Python::attach(|py| encodable(py, error)),
            Error::Diagnostic(error) => {
                Python::attach(|py| raised(py, &error).unwrap_or_else(|broken| broken))
            }
        }
    }
}

/// Converts the error for text that is not valid Unicode to a diagnostic; other errors are
/// unchanged.
fn encodable(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyUnicodeEncodeError>(py) {
        return error;
    }
    let text = error.value(py).getattr("object").and_then(|text| text.repr());
    text.map_or(error, |text| Error::from(surrogate(&text.to_string_lossy())).into())
}

/// The error for a Python text, given as its `repr`, that is not valid Unicode.
pub fn surrogate(text: &str) -> Diagnostic {
    Diagnostic::of(ErrorKind::Argument, "Unexpected argument: the text contains a lone surrogate")
        .got(text)
        .expected("valid Unicode; bytes decoded with `surrogateescape` have lone surrogates")
}

/// The class in `mithril.errors` for a kind of error.
fn class_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::IndexRange => "IndexRangeError",
        ErrorKind::Terminal => "TerminalError",
        ErrorKind::Shapes | ErrorKind::ShapesAtCall => "ShapeError",
        ErrorKind::Unsupported
        | ErrorKind::Framework
        | ErrorKind::Native
        | ErrorKind::CCompiler => "BackendError",
        ErrorKind::Argument | ErrorKind::NoValueYet => "UsageError",
        ErrorKind::Value
        | ErrorKind::UnknownBlock
        | ErrorKind::Setting
        | ErrorKind::Connection
        | ErrorKind::TwoWriters
        | ErrorKind::Name
        | ErrorKind::ModelInUse
        | ErrorKind::Cycle
        | ErrorKind::EmptyModel
        | ErrorKind::OtherModel
        | ErrorKind::DType
        | ErrorKind::Rank
        | ErrorKind::MissingArray
        | ErrorKind::OtherArray
        | ErrorKind::NotADict
        | ErrorKind::Index
        | ErrorKind::Training
        | ErrorKind::Memory
        | ErrorKind::File
        | ErrorKind::FunctionText
        | ErrorKind::Bug => "MithrilError",
    }
}

fn raised(py: Python<'_>, error: &Diagnostic) -> PyResult<PyErr> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module =
        MODULE.get_or_try_init(py, || PyModule::import(py, "mithril.errors").map(Bound::unbind))?;
    let class = module.bind(py).getattr(class_of(error.kind))?;
    let code = [("code", error.kind.code())].into_py_dict(py)?;
    Ok(PyErr::from_value(class.call((error.to_string(),), Some(&code))?))
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Stops panics inside [`guarded`] from printing a message: they become exceptions.
pub fn catch_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if GUARDED.get() {
            PANIC.with_borrow_mut(|kept| *kept = Some(info.to_string()));
        } else {
            usual(info);
        }
    }));
}

/// Runs an entry point. A panic in it becomes an error that asks for a report.
pub fn guarded<T>(run: impl FnOnce() -> Answer<T>) -> Answer<T> {
    let before = GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    GUARDED.set(before);
    result.unwrap_or_else(|_| {
        let what = PANIC.with_borrow_mut(Option::take).unwrap_or_default();
        Err(Diagnostic::of(ErrorKind::Bug, "this is a bug in Mithril")
            .got(what.replace('\n', " "))
            .hint("please report it, with the steps that led to it")
            .into())
    })
}

/// The hint for a name of another library: its replacement in Mithril. None if the name is not
/// known.
#[pyfunction]
pub fn elsewhere(name: &str) -> Option<&'static str> {
    mithril_model::blocks::elsewhere::elsewhere(name)
}

/// The hint ``did you mean `a` or `b`?`` with the candidates that are most similar to a name. None
/// if none is similar.
#[pyfunction]
pub fn did_you_mean(name: &str, candidates: Vec<String>) -> Option<String> {
    mithril_ir::diagnostic::did_you_mean(name, candidates.iter().map(String::as_str))
}
