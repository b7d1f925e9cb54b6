//! Converts Python values for models: sources, settings, literals, shapes.

use std::sync::Arc;
use std::{ptr, slice};

use bytes::Bytes;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, did_you_mean};
use mithril_ir::dtype::DType as Element;
use mithril_ir::tensor::Tensor;
use mithril_model::block::quoted;
use mithril_model::blocks::elsewhere::block_called;
use mithril_model::blocks::{Entry, Kind, Parameter};
use mithril_model::init::{Function, Rule};
use mithril_model::lower::DimSpec;
use mithril_model::{Literal, Setting, Source};
use mithril_runtime::memory;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyEllipsis, PyFloat, PyInt, PyList, PySlice, PyString};
use pyo3::types::{PyTuple, PyType};

use super::block::Block;
use super::connection::Connection;
use super::dtype;
use super::error::{Answer, Error, surrogate};

/// The source that a terminal is connected to. `None` if it is not connected.
pub fn source(value: &Bound<'_, PyAny>) -> Answer<Option<Source>> {
    if value.is_none() {
        return Ok(None);
    }
    if let Ok(name) = value.cast::<PyString>() {
        return Ok(Some(Source::Name(name.extract::<String>()?.into())));
    }
    if let Ok(connection) = value.cast::<Connection>() {
        return Ok(Some(connection.get().0.clone()));
    }
    if let Some(items) = sequence(value) {
        if !is_numeric(value) {
            let items: Answer<Vec<Option<Source>>> = items.iter().map(source).collect();
            let items: Option<Vec<Source>> = items?.into_iter().collect();
            return match items {
                Some(items) => Ok(Some(Source::List(items))),
                None => Err(Diagnostic::new("a list of connections contains None").into()),
            };
        }
    }
    literal(value).map(|literal| Some(Source::Literal(literal)))
}

/// The items of a list or a tuple.
fn sequence<'py>(value: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = value.cast::<PyList>() {
        return Some(list.iter().collect());
    }
    value.cast::<PyTuple>().ok().map(|tuple| tuple.iter().collect())
}

/// Whether the value is a number, or a non-empty nested list of numbers.
fn is_numeric(value: &Bound<'_, PyAny>) -> bool {
    match sequence(value) {
        Some(items) => !items.is_empty() && items.iter().all(is_numeric),
        None => is_number(value),
    }
}

fn is_number(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyBool>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
}

/// A constant. Python's numbers, and lists of them, have no fixed dtype.
pub fn literal(value: &Bound<'_, PyAny>) -> Answer<Literal> {
    if is_number(value) {
        let scalar = |dtype, x: i64| Tensor::from_i64s(dtype, vec![], &[x]);
        return Ok(Literal::weak(if let Ok(truth) = value.cast::<PyBool>() {
            scalar(Element::Bool, truth.is_true().into())
        } else if value.is_instance_of::<PyInt>() {
            integer_literal(value)?
        } else {
            Tensor::scalar(Element::F64, value.extract()?)
        }));
    }
    let weak = sequence(value).is_some();
    tensor(value).map(|tensor| match weak {
        true => Literal::weak(tensor),
        false => Literal::array(tensor),
    })
}

/// An integer as `i64`, or `u64` if necessary. Beyond 64 bits it becomes a float.
fn integer_literal(value: &Bound<'_, PyAny>) -> Answer<Tensor> {
    if let Ok(v) = value.extract::<i64>() {
        return Ok(Tensor::from_i64s(Element::I64, vec![], &[v]));
    }
    if let Ok(v) = value.extract::<u64>() {
        return Ok(Tensor::from_i64s(Element::U64, vec![], &[v as i64]));
    }
    match value.extract::<f64>() {
        Ok(v) => Ok(Tensor::scalar(Element::F64, v)),
        Err(_) => Err(Diagnostic::of(ErrorKind::DType, "the integer does not fit into any dtype")
            .expected("a magnitude of at most 1.8e308")
            .into()),
    }
}

/// The elements of an array of any framework.
/// Errors: not an array; a dtype that Mithril does not have.
pub fn tensor(value: &Bound<'_, PyAny>) -> Answer<Tensor> {
    let py = value.py();
    let wrong = || {
        let class = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
        Error::from(
            Diagnostic {
                hint: uncalled(value),
                ..Diagnostic::of(ErrorKind::Connection, "this cannot be the value of a terminal")
            }
            .got(class)
            .expected("a name, a connection, a number, an array, or a list of these"),
        )
    };
    let array = match value.hasattr("__dlpack__")? || value.hasattr("detach")? {
        true => py.import("mithril.backends.foreign")?.call_method1("as_numpy", (value,))?,
        false if value.hasattr("__array__")? || sequence(value).is_some() => {
            let asarray = py.import("numpy")?.getattr("asarray")?;
            asarray.call1((value,)).map_err(|_| wrong())?
        }
        false => return Err(wrong()),
    };
    if array.getattr("dtype")?.getattr("kind")?.extract::<String>()? == "O" {
        return Err(wrong());
    }
    let dtype = dtype::of(&array.getattr("dtype")?)?;
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let native = array.getattr("dtype")?.call_method1("newbyteorder", ("=",))?;
    let plain = py.import("numpy")?.call_method1("ascontiguousarray", (array, native))?;
    let (size, place) = (plain.getattr("nbytes")?, plain.getattr("__array_interface__")?);
    let (data, _): (usize, bool) = place.get_item("data")?.extract()?;
    // SAFETY: the elements are contiguous at this address, and the array lives to the end of this
    // function.
    let bytes = match size.extract()? {
        0 => &[],
        size => unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(data), size) },
    };
    let block = memory::Block::copy_of(bytes)
        .map_err(|error| Diagnostic::of(ErrorKind::Memory, error.to_string()))?;
    Tensor::from_bytes(dtype, shape, Bytes::from_owner(block))
        .map_err(|why| Diagnostic::new(why).into())
}

/// An argument that must be a string; Python names the argument. Errors: it is not a string.
pub fn text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.extract().map_err(|_| wrong_type(value, "a string", name_of(value)))
}

/// The hint for a connection that was given instead of its name.
fn name_of(value: &Bound<'_, PyAny>) -> Option<String> {
    let name = value.cast::<Connection>().ok()?.get().name()?;
    Some(format!("the connection's name is \"{name}\""))
}

/// Describes a value by the name of its class; a class is described by its own name.
pub fn class(value: &Bound<'_, PyAny>) -> String {
    match value.cast::<PyType>() {
        Ok(class) => {
            format!("the class {}", class.name().map(|n| n.to_string()).unwrap_or_default())
        }
        Err(_) => value.get_type().name().map(|n| n.to_string()).unwrap_or_default(),
    }
}

/// An argument that must be a string or None; Python names the argument. Errors: it is neither.
pub fn optional_text(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if value.is_none() { Ok(None) } else { text(value).map(Some) }
}

/// An argument that must be a number; Python names the argument. Errors: it is not a number.
pub fn number(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    value.extract().map_err(|_| wrong_type(value, "a number", None))
}

/// An argument that must be a bool; Python names the argument. Errors: it is not a bool.
pub fn truth(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.extract().map_err(|_| wrong_type(value, "True or False", None))
}

/// An argument that must be a bool or None; Python names the argument. Errors: it is neither.
pub fn optional_truth(value: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    if value.is_none() { Ok(None) } else { truth(value).map(Some) }
}

/// An argument that must be an integer; Python names the argument. Errors: it is not an integer.
pub fn integer(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract().map_err(|_| wrong_type(value, "an integer", None))
}

/// The error for a string that is not valid Unicode; `None` if the value is not such a string.
pub fn no_unicode(value: &Bound<'_, PyAny>) -> Option<Diagnostic> {
    let text = value.cast::<PyString>().ok().filter(|text| text.to_cow().is_err())?;
    let shown = text.repr().ok()?;
    Some(surrogate(&shown.to_string_lossy()))
}

/// The arguments of a method, which must be names of terminals. Errors: one is not a string.
pub fn names(method: &str, values: &Bound<'_, PyTuple>) -> Answer<Vec<String>> {
    let name = |value: Bound<'_, PyAny>| {
        value.extract().map_err(|_| {
            let what = format!("Unexpected argument: `{method}` takes names of terminals");
            let error =
                Diagnostic::of(ErrorKind::Argument, what).got(class(&value)).expected("strings");
            let error = Diagnostic { hint: name_of(&value), ..error };
            Error::from(no_unicode(&value).unwrap_or(error))
        })
    };
    values.iter().map(name).collect()
}

/// An argument that must be a list or None; Python names the argument. Errors: it is neither.
pub fn optional_list<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let one = || match value.extract::<String>() {
        Ok(word) => block_called(&word).map(|block| format!("[{block}()]")),
        Err(_) => value.repr().ok().map(|value| format!("[{value}]")),
    };
    value.extract().map_err(|_| wrong_type(value, "a list", one()))
}

/// An argument that must be a dict or None; Python names the argument. Errors: it is neither.
pub fn optional_dict<'a, 'py>(
    value: &'a Bound<'py, PyAny>,
) -> PyResult<Option<&'a Bound<'py, PyDict>>> {
    if value.is_none() {
        return Ok(None);
    }
    value.cast().map(Some).map_err(|_| wrong_type(value, "a dict", None))
}

/// Rejects unknown keywords. Errors: a keyword that `function` does not have.
pub fn check_keywords(
    function: &str,
    given: Option<&Bound<'_, PyDict>>,
    known: &[&str],
) -> Answer<()> {
    check_keywords_or(function, given, known, |_| None)
}

/// As [`check_keywords`]. The hint is that of `explain`, or else a known keyword that is near.
pub fn check_keywords_or(
    function: &str,
    given: Option<&Bound<'_, PyDict>>,
    known: &[&str],
    explain: impl Fn(&str) -> Option<String>,
) -> Answer<()> {
    for (name, _) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        if !known.contains(&&*name) {
            let what = format!("Unexpected argument: `{function}` has no keyword `{name}`");
            let near = || did_you_mean(&name, known.iter().copied());
            let hint = explain(&name).or_else(near);
            let error = Diagnostic::of(ErrorKind::Argument, what).expected(quoted(known));
            return Err(Diagnostic { hint, ..error }.into());
        }
    }
    Ok(())
}

fn wrong_type(value: &Bound<'_, PyAny>, expected: &str, hint: Option<String>) -> PyErr {
    if let Some(error) = no_unicode(value) {
        return Error::from(error).into();
    }
    let what = Diagnostic::of(ErrorKind::Argument, "Unexpected argument: it has the wrong type");
    Error::from(Diagnostic { hint, ..what.got(class(value)).expected(expected) }).into()
}

/// Positional arguments of a constructor, then named ones.
type Arguments = (Vec<Setting>, Vec<(String, Setting)>);

/// The positional and named arguments of a constructor.
pub fn settings(
    entry: &'static Entry,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> Answer<Arguments> {
    let mut positional = Vec::new();
    for (i, value) in args.iter().enumerate() {
        positional.push(setting(&value, entry.parameters.get(i))?);
    }
    let mut named = Vec::new();
    for (name, value) in kwargs.into_iter().flatten() {
        let name: String = name.extract()?;
        let parameter = entry.parameters.iter().find(|p| p.name == name);
        named.push((name, setting(&value, parameter)?));
    }
    Ok((positional, named))
}

/// The value of a constructor's parameter. The parameter's kind distinguishes dtypes from names,
/// and arrays from lists.
pub fn setting(value: &Bound<'_, PyAny>, parameter: Option<&Parameter>) -> Answer<Setting> {
    setting_of(value, parameter.map(|p| p.kind), &|| {
        parameter.map_or("this".to_string(), |p| format!("`{}`", p.name))
    })
}

/// The value of a setting. `name` is its name in messages.
fn setting_of(
    value: &Bound<'_, PyAny>,
    kind: Option<Kind>,
    name: &dyn Fn() -> String,
) -> Answer<Setting> {
    if kind == Some(Kind::DType) && !value.is_none() {
        return dtype::of(value).map(Setting::DType);
    }
    if kind == Some(Kind::Index) {
        return index(value);
    }
    if let (Some(Kind::Names | Kind::Axes | Kind::Split), Ok(dict)) = (kind, value.cast::<PyDict>())
    {
        return pairs(dict, name);
    }
    let array = |value: &Bound<'_, PyAny>| tensor(value).map(Setting::Tensor);
    if kind == Some(Kind::Value) && sequence(value).is_some() {
        return array(value);
    }
    if value.is_none() {
        Ok(Setting::None)
    } else if let Ok(truth) = value.cast::<PyBool>() {
        Ok(Setting::Bool(truth.is_true()))
    } else if value.is_instance_of::<PyInt>() {
        of_64_bits(value, name).map(Setting::Int)
    } else if value.is_instance_of::<PyFloat>() {
        Ok(Setting::Float(value.extract()?))
    } else if let Ok(text) = value.cast::<PyString>() {
        Ok(Setting::from(&*text.extract::<String>()?))
    } else if let Ok(block) = value.cast::<Block>() {
        Ok(Setting::Block(block.get().sealed()?))
    } else if let Ok(connection) = value.cast::<Connection>() {
        Ok(Setting::Connection(Box::new(connection.get().0.clone())))
    } else if let Ok(slice) = value.cast::<PySlice>() {
        let part = |name: &str| setting(&slice.getattr(name)?, None);
        Ok(Setting::Slice(Arc::new([part("start")?, part("stop")?, part("step")?])))
    } else if value.is_instance_of::<PyEllipsis>() {
        Ok(Setting::Ellipsis)
    } else if let Some(items) = sequence(value) {
        let own = kind.and_then(Kind::item).filter(|kind| kind.is_block());
        let item = |(i, item)| {
            setting_of(item, own, &|| match name().strip_suffix('`') {
                Some(list) => format!("{list}[{i}]`"),
                None => name(),
            })
        };
        let items: Answer<Vec<Setting>> = items.iter().enumerate().map(item).collect();
        Ok(Setting::List(items?.into()))
    } else if let Ok(index) = value.call_method0("__index__") {
        Ok(Setting::Int(index.extract()?))
    } else if kind == Some(Kind::Init) && value.is_callable() {
        function(value).map(Setting::Function)
    } else if value.is_instance_of::<PyType>() || !value.hasattr("shape")? {
        dtype::of(value).map(Setting::DType).map_err(|_| invalid_setting(value, kind, &name()))
    } else {
        array(value)
    }
}

/// A dict as a list of pairs.
fn pairs(dict: &Bound<'_, PyDict>, name: &dyn Fn() -> String) -> Answer<Setting> {
    let pair = |(key, value)| {
        let pair = [setting_of(&key, None, name)?, setting_of(&value, None, name)?];
        Ok(Setting::List(pair.into()))
    };
    Ok(Setting::List(dict.iter().map(pair).collect::<Answer<_>>()?))
}

/// The error for a value that cannot be a setting.
fn invalid_setting(value: &Bound<'_, PyAny>, kind: Option<Kind>, name: &str) -> Error {
    let mut error =
        Diagnostic::of(ErrorKind::Setting, format!("{name} has the wrong type")).got(class(value));
    error.hint = uncalled(value);
    match kind {
        Some(kind) => error.expected(kind.name()).into(),
        None => error.into(),
    }
}

/// A Python function that draws initial values.
fn function(value: &Bound<'_, PyAny>) -> Answer<Function> {
    let name = match value.getattr("__qualname__") {
        Ok(name) => name.extract::<String>()?,
        Err(_) => value.get_type().name()?.to_string(),
    };
    let own = value.clone().unbind();
    Ok(Function { name: name.into(), id: value.as_ptr() as usize, value: Arc::new(own) })
}

/// The rule for initial values given when params are drawn. Errors: it is not a name, number or
/// function.
pub fn rule(value: &Bound<'_, PyAny>) -> Answer<Rule> {
    let setting = setting_of(value, Some(Kind::Init), &|| "`init`".into())?;
    Rule::of(&setting).ok_or_else(|| {
        let error =
            Diagnostic::of(ErrorKind::Argument, "there is no such `init`").got(setting.describe());
        Diagnostic { hint: Rule::similar(&setting), ..error.expected(Rule::expected()) }.into()
    })
}

/// The hint for a class of blocks, or its name, that was given instead of a block.
pub fn uncalled(value: &Bound<'_, PyAny>) -> Option<String> {
    if let Ok(word) = value.extract::<String>() {
        return block_called(&word).map(|block| format!("`{block}()` is that block"));
    }
    let class = value.cast::<PyType>().ok()?;
    let name = class.name().ok()?;
    let is_block = class.is_subclass_of::<Block>().ok()?;
    is_block.then(|| format!("call the class: `{name}(…)`"))
}

/// A 64-bit integer. Errors: it does not fit.
fn of_64_bits(value: &Bound<'_, PyAny>, name: &dyn Fn() -> String) -> Answer<i64> {
    value.extract().map_err(|_| {
        let bound =
            Diagnostic::of(ErrorKind::Setting, format!("{} does not fit into 64 bits", name()));
        bound.got(value).into()
    })
}

/// An index as in NumPy: a tuple has an item for each axis, a list is an array of indices.
fn index(value: &Bound<'_, PyAny>) -> Answer<Setting> {
    if let Ok(items) = value.cast::<PyTuple>() {
        let items: Answer<Vec<Setting>> = items.iter().map(|item| index_item(&item)).collect();
        return Ok(Setting::List(items?.into()));
    }
    match index_item(value)? {
        // A None without a tuple is a new axis, not a missing index.
        Setting::None => Ok(Setting::List([Setting::None].into())),
        item => Ok(item),
    }
}

fn index_item(value: &Bound<'_, PyAny>) -> Answer<Setting> {
    if let Ok(list) = value.cast::<PyList>() {
        if list.is_empty() {
            return Ok(Setting::Tensor(Tensor::from_i64s(Element::I64, vec![0], &[])));
        }
        return tensor(value).map(Setting::Tensor);
    }
    let connection = value.is_instance_of::<Connection>();
    if !connection && value.hasattr("shape")? && value.getattr("shape")?.len()? > 0 {
        return tensor(value).map(Setting::Tensor);
    }
    setting(value, None)
}

/// The dtypes of inputs, by name.
pub fn dtypes(given: &Bound<'_, PyDict>) -> Answer<Vec<(String, Element)>> {
    let mut dtypes = Vec::new();
    for (name, value) in given {
        dtypes.push((name.extract()?, dtype::of(&value)?));
    }
    Ok(dtypes)
}

/// Shapes by name: numbers, names of dims, and `None` for a dim that may vary.
pub fn shapes(given: &Bound<'_, PyDict>) -> Answer<Vec<(String, Vec<DimSpec>)>> {
    let mut shapes = Vec::new();
    for (name, dims) in given {
        shapes.push((name.extract()?, shape(&dims)?));
    }
    Ok(shapes)
}

pub fn shape(dims: &Bound<'_, PyAny>) -> Answer<Vec<DimSpec>> {
    let wrong = |got: &Bound<'_, PyAny>| {
        Error::from(
            Diagnostic::of(ErrorKind::Shapes, "this is not a shape")
                .got(got.repr().map(|r| r.to_string()).unwrap_or_default())
                .expected("a list of sizes, names of dims, and None where a dim may vary"),
        )
    };
    let items = dims.try_iter().map_err(|_| wrong(dims))?;
    if dims.is_instance_of::<PyString>() {
        return Err(wrong(dims));
    }
    let mut shape = Vec::new();
    for item in items {
        let item = item?;
        shape.push(if item.is_none() {
            DimSpec::Any
        } else if let Ok(name) = item.cast::<PyString>() {
            DimSpec::Named(name.extract::<String>()?.into())
        } else if item.is_instance_of::<PyBool>() {
            return Err(wrong(dims));
        } else {
            DimSpec::Number(item.extract().map_err(|_| wrong(dims))?)
        });
    }
    Ok(shape)
}
