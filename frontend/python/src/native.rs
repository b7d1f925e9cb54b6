//! Calls of native code from Python.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use mithril_driver::call::signature::Binding;
use mithril_driver::compile::Program;
use mithril_driver::native::export::Library;
use mithril_driver::native::{PlannedFunction, background, pool, worker};
use mithril_ir::diagnostic::Result;
use mithril_runtime::threads::Pool;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use super::arrays::Reader;
use super::check::{Checker, Dicts, Rejection, dicts};
use super::error::{Answer, Error, guarded};
use call::{Call, CallArrays, CallContext};

mod call;
mod export;

/// Runs a program's native code on arrays of NumPy.
#[pyclass(frozen, module = "mithril._core")]
pub struct Native {
    program: Arc<Program>,
    checker: Checker,
    forward: Call,
    joint: Option<Call>,
    pool: Arc<Pool>,
    /// Whether calls measure the time of kernels.
    measures: AtomicBool,
    /// Whether another program of the model may take arrays that this program does not take.
    one_of_several: bool,
}

/// Whether to call the function that also returns gradients, and whether it may overwrite the given
/// state.
#[derive(Clone, Copy)]
struct CallMode {
    joint: bool,
    donates: bool,
}

impl Native {
    /// Errors: the program has no code.
    pub fn new(
        py: Python<'_>,
        program: Arc<Program>,
        reader: Reader,
        threads: usize,
        one_of_several: bool,
    ) -> Answer<Native> {
        program.settled()?;
        let checker = Checker::new(py, &program, reader, &|dtype| dtype)?;
        let forward = Call::of(py, &program, &checker.signature, false)?;
        let joint = program.native().and_then(|native| native.joint.as_ref());
        let joint = joint.map(|_| Call::of(py, &program, &checker.signature, true)).transpose()?;
        let (pool, measures) = (pool::of(threads), AtomicBool::default());
        Ok(Native { program, checker, forward, joint, pool, measures, one_of_several })
    }

    /// Runs the code. `None` if some arrays are not NumPy's yet, or if another program may accept
    /// them.
    fn call<'py>(
        &self,
        py: Python<'py>,
        dicts: &Dicts<'_, 'py>,
        mode: CallMode,
    ) -> Answer<Option<Bound<'py, PyAny>>> {
        let mut taken = CallArrays::default();
        taken.clear(self.checker.signature.slots.len());
        match self.checker.check_all(py, dicts, &mut |at, value| taken.keep(at, value)) {
            Ok(binding) => self.run(py, mode, taken, &binding).map(Some),
            Err(Rejection::Foreign(_)) => Ok(None),
            Err(Rejection::Names(_) | Rejection::Mismatch(_)) if self.one_of_several => Ok(None),
            Err(wrong) => Err(self.checker.explain(py, dicts, wrong).into()),
        }
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        mode: CallMode,
        taken: CallArrays<'py>,
        binding: &Binding,
    ) -> Answer<Bound<'py, PyAny>> {
        let (call, joint) = match &self.joint {
            Some(call) if mode.joint => (call, true),
            _ => (&self.forward, false),
        };
        let part = part(&self.program, joint)?;
        if part.is_ready().is_none() {
            let program = self.program.clone();
            interruptible(py, move |stop| self::part(&program, joint)?.ready(stop).map(|_| ()))?;
        }
        let ready = part.is_ready().expect("it was made");
        for why in ready.warnings.take() {
            warn(py, &format!("{}: {why}", self.program.name))?;
        }
        let (checker, executable) = (&self.checker, &*ready.executable);
        if self.measures.load(Ordering::Relaxed) {
            executable.measure();
        }
        let machine = CallContext { checker, executable, pool: &self.pool, donates: mode.donates };
        let result = call.run(py, &machine, taken, binding, mode.joint);
        if let Some(tier_up) = &ready.tier_up {
            tier_up.begin();
        }
        result
    }
}

/// The code of one of a program's functions. Errors: the program has no native code.
fn part(program: &Program, joint: bool) -> Result<&PlannedFunction> {
    let native = program.native_code()?;
    Ok(native.joint.as_ref().filter(|_| joint).unwrap_or(&native.forward))
}

/// Runs work that may take long, while other Python threads can run. If a signal raises an
/// exception, such as `KeyboardInterrupt`, the flag that the work receives is set, and the work
/// should end.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
) -> Answer<T> {
    const PATIENCE: Duration = Duration::from_millis(50);
    let stop = Arc::new(AtomicBool::new(false));
    let wait = move || {
        let own = stop.clone();
        // Runs on another thread: this one waits for the GIL, and a forking thread that holds the
        // GIL would wait for the work (deadlock).
        let end = worker::begin(move || catch_unwind(AssertUnwindSafe(|| work(&own))));
        loop {
            let made = match end.recv_timeout(PATIENCE) {
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let Err(raised) = Python::attach(|py| py.check_signals()) else { continue };
                    stop.store(true, Ordering::Relaxed);
                    let _ = end.recv();
                    return Err(Error::from(raised));
                }
                made => made.expect("the work ends"),
            };
            return Ok(made.unwrap_or_else(|panic| resume_unwind(panic))?);
        }
    };
    py.detach(wait)
}

/// Logs a problem of background work to Python's log.
pub fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1(intern!(py, "getLogger"), ("mithril",))?;
    logger.call_method1(intern!(py, "warning"), (text,))?;
    Ok(())
}

/// Makes background work end before the interpreter does, and so before the libraries that it uses
/// are unloaded.
pub fn close_at_exit(py: Python<'_>) -> PyResult<()> {
    static DONE: PyOnceLock<()> = PyOnceLock::new();
    DONE.get_or_try_init(py, || {
        let close = |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| background::close();
        let close = PyCFunction::new_closure(py, None, None, close)?;
        py.import("atexit")?.call_method1("register", (close,)).map(|_| ())
    })
    .copied()
}

#[pymethods]
impl Native {
    /// The outputs by name, or `(outputs, next_state)` if the model has state. None if some values
    /// are not NumPy arrays. With `donate`, the next state overwrites the arrays of the state.
    ///
    /// Errors: as for `Checker.check`; `BackendError` if code cannot be generated.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None"=None,
        donate=false,
    ) -> "Any")]
    fn forward<'py>(
        &self,
        params: &Bound<'py, PyAny>,
        inputs: &Bound<'py, PyAny>,
        state: Option<&Bound<'py, PyAny>>,
        donate: bool,
    ) -> Answer<Option<Bound<'py, PyAny>>> {
        let given = [Some(params), Some(inputs), state, None];
        let mode = CallMode { joint: false, donates: donate };
        guarded(|| self.call(params.py(), &dicts(&given)?, mode))
    }

    /// `(outputs, gradients)`, or `(outputs, gradients, next_state)` if the model has state.
    /// Gradients are by param. Omitted output gradients are zeros.
    ///
    /// Errors: as for `forward`.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None",
        output_gradients: "dict[str, object]",
        donate=false,
    ) -> "Any")]
    fn joint<'py>(
        &self,
        params: &Bound<'py, PyAny>,
        inputs: &Bound<'py, PyAny>,
        state: Option<&Bound<'py, PyAny>>,
        output_gradients: &Bound<'py, PyAny>,
        donate: bool,
    ) -> Answer<Option<Bound<'py, PyAny>>> {
        let given = [Some(params), Some(inputs), state, Some(output_gradients)];
        let mode = CallMode { joint: true, donates: donate };
        guarded(|| self.call(params.py(), &dicts(&given)?, mode))
    }

    /// Writes a library for C to a folder, with its header, its metadata and, if `params` are
    /// given, a file of weights. Returns the paths by `library`, `header`, `metadata` and
    /// `weights`. `cpu` lists the processors of the library.
    ///
    /// Errors: `BackendError` if code cannot be generated; `MithrilError` for params that do not
    /// fit, or files that cannot be written.
    #[pyo3(signature = (folder, name, cpu, params: "dict[str, object] | None") -> "dict[str, str]")]
    fn export<'py>(
        &self,
        py: Python<'py>,
        folder: PathBuf,
        name: Option<String>,
        cpu: Vec<String>,
        params: Option<&Bound<'py, PyDict>>,
    ) -> Answer<Bound<'py, PyDict>> {
        guarded(|| {
            let library = Library { name, cpu };
            let files = export::write(py, &self.program, &folder, &library, params)?;
            let paths = PyDict::new(py);
            paths.set_item("library", files.library)?;
            paths.set_item("header", files.header)?;
            paths.set_item("metadata", files.metadata)?;
            if let Some(weights) = files.weights {
                paths.set_item("weights", weights)?;
            }
            Ok(paths)
        })
    }

    /// The launches and kernels as text; for C, the source.
    #[getter]
    fn listing(&self) -> String {
        self.program.native().map(mithril_driver::native::Native::listing).unwrap_or_default()
    }

    /// Compiles the code, if shapes are known, and makes all later calls measure the time of each
    /// kernel for `report`.
    ///
    /// Errors: `BackendError` if code cannot be generated.
    fn measure(&self, py: Python<'_>) -> Answer<()> {
        guarded(|| {
            self.measures.store(true, Ordering::Relaxed);
            let program = self.program.clone();
            interruptible(py, move |stop| {
                let native = program.native();
                let mut parts = native.iter().flat_map(|native| native.parts());
                parts.try_for_each(|part| part.ready(stop).map(|_| ()))
            })
        })
    }

    /// Lines of text about each function and its kernels.
    #[getter]
    fn report(&self) -> Vec<String> {
        let native = self.program.native();
        native.iter().flat_map(|native| native.parts()).flat_map(|part| part.report()).collect()
    }
}
