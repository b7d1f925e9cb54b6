//! Blocks from functions: of `.mir` text, and with bodies in the languages of backends.

use std::path::Path;

use mithril_driver::targets;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::external::TargetBody;
use mithril_ir::message;
use mithril_model::{Custom, check_targets};
use mithril_passes::target::Language;
use pyo3::exceptions::PySyntaxError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::block::Block;
use super::error::{Answer, Error, guarded};
use super::file::{path, read};
use super::model::gradient_of;
use super::value::no_unicode;

/// Creates a block from a function in a `.mir` text or file. Its terminals are the function's
/// arguments and results. `name` chooses one of several functions; by default it is the function
/// that no other function calls. The dtype `float` in the text stands for the dtype of the model's
/// floats.
///
/// Errors: `MithrilError` for a file that cannot be read, for invalid text (with its line and
/// column), and for several functions without a `name`.
#[pyfunction]
#[pyo3(signature = (text_or_path: "str | PathLike[str]", name: "str | None"=None) -> "Block")]
pub fn load_function(
    text_or_path: &Bound<'_, PyAny>,
    name: Option<&Bound<'_, PyAny>>,
) -> Answer<Block> {
    guarded(|| {
        let name = name.map(|name| word("load_function", "name", name)).transpose()?;
        let text = text_or_path.cast::<PyString>().ok().map(|text| text.to_string_lossy());
        let text = text.filter(|text| is_text(text));
        if let Some(text) = text {
            let own = text_of("load_function", "text_or_path", text_or_path)?;
            debug_assert_eq!(own, text);
            return Ok(Block::of(of_text(&own, name.as_deref())?));
        }
        let file = path("load_function", text_or_path)?;
        let block = of_text(&read(text_or_path)?, name.as_deref());
        Ok(Block::of(block.map_err(|error| Box::new(in_file(*error, &file)))?))
    })
}

/// Creates the block of a function of a text. Errors: a body for a target that does not exist.
fn of_text(text: &str, name: Option<&str>) -> Result<mithril_model::Block> {
    let block = mithril_model::Block::from_function(text, name)?;
    check_targets(text, &targets::names())?;
    Ok(block)
}

/// Whether a string is the text of functions, rather than a path.
fn is_text(text: &str) -> bool {
    text.contains('\n') || text.trim_start().starts_with("mithril ") || text.trim().is_empty()
}

fn in_file(mut error: Diagnostic, file: &Path) -> Diagnostic {
    error.place = Some(match error.place {
        Some(place) => format!("{}, {place}", file.display()),
        None => file.display().to_string(),
    });
    error
}

/// Creates a block for a custom operation. Each body is source text. `mir` is the body for all
/// backends. The keywords `numpy`, `torch`, `jax`, `mlx`, `tinygrad`, `cpu` and `c` give bodies for
/// single backends, which take precedence. Native code also uses the body for `c`.
///
/// A body in Python or C is the body of a function that reads the inputs by their names. Python
/// code returns the outputs, C code stores them. `shape` declares the inputs and the outputs, such
/// as `"(x: [*b, n], w: [n, m]) -> [*b, m]"`. `*b` stands for any number of dims. An array has the
/// dtype of the model's floats unless it is declared with another one, such as `i64[n]`. The text
/// of `mir` contains its own declaration.
///
/// `gradient` is a block that computes the gradients, or a dict of bodies such as `{"numpy":
/// "return y_gradient * 2"}`. Its inputs are named after this block's inputs, its outputs, and its
/// outputs with the suffix `_gradient`. Its outputs are named after this block's inputs with the
/// suffix `_gradient`. Without `gradient`, PyTorch, JAX, MLX and tinygrad differentiate the body;
/// other backends use the gradients of `mir`.
///
/// Errors: `UsageError` for invalid arguments; `MithrilError` for invalid text, with its line and
/// column.
#[pyfunction]
#[pyo3(signature = (
    *,
    name: "str | None"=None,
    mir: "str | None"=None,
    shape: "str | None"=None,
    gradient: "Block | dict[str, str] | None"=None,
    **bodies: "str | None"
) -> "Block")]
pub fn custom(
    name: Option<&Bound<'_, PyAny>>,
    mir: Option<&Bound<'_, PyAny>>,
    shape: Option<&Bound<'_, PyAny>>,
    gradient: Option<&Bound<'_, PyAny>>,
    bodies: Option<&Bound<'_, PyDict>>,
) -> Answer<Block> {
    guarded(|| {
        let name = name.map_or(Ok("custom".into()), |name| word("custom", "name", name))?;
        let mut custom = Custom::new(name);
        if let Some(text) = mir {
            let text = text_of("custom", "mir", text)?;
            check_targets(&text, &targets::names())?;
            custom = custom.mir(text);
        }
        if let Some(text) = shape {
            custom = custom.shape(text_of("custom", "shape", text)?);
        }
        for (target, text) in bodies.into_iter().flatten() {
            let target: String = target.extract()?;
            if targets::find(&target).is_err() {
                return Err(no_keyword(&target).into());
            }
            if !text.is_none() {
                custom = custom.body(&*target, body(&target, &text)?);
            }
        }
        custom = match gradient.map(|given| (given, given.cast::<PyDict>())) {
            None => custom,
            Some((_, Ok(bodies))) => custom.gradient_bodies(gradient_bodies(bodies)?),
            Some((block, Err(_))) => custom.gradient(&gradient_of(block)?),
        };
        Ok(Block::of(custom.block()?))
    })
}

/// The error of `custom` for a keyword that it does not have.
fn no_keyword(name: &str) -> Diagnostic {
    let others = ["name", "shape", "gradient"];
    let known = [vec!["mir"], targets::built_in_names(), others.to_vec()].concat();
    let what = format!("Unexpected argument: `custom` has no keyword `{name}`");
    let mut error = Diagnostic::of(ErrorKind::Argument, what).expected(known.join(", "));
    error.hint = did_you_mean(name, known.into_iter().chain(targets::names()));
    error
}

/// The keywords of bodies.
fn languages() -> Vec<&'static str> {
    [vec!["mir"], targets::names()].concat()
}

fn gradient_bodies(given: &Bound<'_, PyDict>) -> Answer<Vec<(String, String)>> {
    let languages = languages();
    let mut bodies = Vec::new();
    for (target, text) in given {
        let target = word("custom", "gradient", &target)?;
        if !languages.contains(&target.as_str()) {
            return Err(Diagnostic::of(
                ErrorKind::Argument,
                "Unexpected argument: `gradient` must be a dict of bodies by backend",
            )
            .got(format!("`{target}`"))
            .expected(languages.join(", "))
            .into());
        }
        let text = body(&target, &text)?;
        bodies.push((target, text));
    }
    if bodies.is_empty() {
        return Err(Diagnostic::of(
            ErrorKind::Argument,
            "Unexpected argument: `gradient` has no body",
        )
        .expected(languages.join(", "))
        .into());
    }
    Ok(bodies)
}

/// A string argument. Errors: it is not a string.
fn word(function: &str, keyword: &str, value: &Bound<'_, PyAny>) -> Answer<String> {
    string_argument(function, keyword, value, "a string")
}

/// An argument that is source text. Errors: it is not a string.
fn text_of(function: &str, keyword: &str, value: &Bound<'_, PyAny>) -> Answer<String> {
    string_argument(function, keyword, value, "a string of source text")
}

fn string_argument(
    function: &str,
    keyword: &str,
    value: &Bound<'_, PyAny>,
    expected: &str,
) -> Answer<String> {
    value.extract().map_err(|_| {
        let class = value.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        let what = format!("Unexpected argument: `{keyword}` of `{function}` must be a string");
        let error = Diagnostic::of(ErrorKind::Argument, what).got(class).expected(expected);
        no_unicode(value).unwrap_or(error).into()
    })
}

/// A body for `mir` or a target. Errors: it is not a string; it is Python that cannot be parsed or
/// that returns nothing.
fn body(language: &str, value: &Bound<'_, PyAny>) -> Answer<String> {
    let text = text_of("custom", language, value)?;
    let Ok(target) = targets::find(language) else { return Ok(text) };
    match target.passes.language {
        Language::Python => check_python(language, &text, value.py())?,
        Language::C => {}
    }
    let body = TargetBody { target: language.into(), text: text.as_str().into() };
    targets::check_body(&body).map_err(|mut error| {
        let what = std::mem::take(&mut error.what);
        error.what = message!["Unexpected argument: `custom`: "].then(what);
        error
    })?;
    Ok(text)
}

/// Checks that the text is the body of a Python function.
fn check_python(target: &str, text: &str, py: Python<'_>) -> Answer<()> {
    let dedented = py.import("textwrap")?.call_method1("dedent", (text,))?;
    let indented = py.import("textwrap")?.call_method1("indent", (dedented, " "))?;
    let source = format!("def body():\n{}", indented.extract::<String>()?);
    let compiled = py.import("builtins")?.call_method1("compile", (source, "body", "exec"));
    let Err(error) = compiled else { return Ok(()) };
    if !error.is_instance_of::<PySyntaxError>(py) {
        return Err(Error::Python(error));
    }
    let value = error.value(py);
    let field = |name: &str| value.getattr(name).ok();
    let line = field("lineno").and_then(|line| line.extract::<usize>().ok()).unwrap_or(1);
    let reason = field("msg").map(|text| text.to_string()).unwrap_or_default();
    let what = format!("Unexpected argument: `custom`: the body for {target} is not valid Python");
    let mut diagnostic =
        Diagnostic::of(ErrorKind::Argument, what).at(format!("line {}", line.max(2) - 1));
    if let Some(shown) = text.lines().nth(line.max(2) - 2).filter(|line| !line.trim().is_empty()) {
        diagnostic = diagnostic.fact("text", shown.trim());
    }
    Err(diagnostic.got(reason).hint("write the body of a function: `return …`").into())
}
