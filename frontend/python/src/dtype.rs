//! Converts Python's dtypes: `ml.float32`, names, and the dtypes of frameworks.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, did_you_mean};
use mithril_ir::dtype;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::error::{Answer, Error};

/// The type of an array's elements.
#[pyclass(frozen, eq, hash, module = "mithril._core")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DType(pub dtype::DType);

#[pymethods]
impl DType {
    /// The dtype for a name such as `"float32"`, or for a dtype of a framework.
    ///
    /// Errors: `MithrilError` for a dtype that Mithril does not have.
    #[new]
    #[pyo3(signature = (dtype, /))]
    fn new(dtype: &Bound<'_, PyAny>) -> Answer<DType> {
        of(dtype).map(DType)
    }

    /// The name, such as `float32`.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.array_name()
    }

    /// The name in Mithril's IR, such as `f32`.
    #[getter]
    fn short(&self) -> &'static str {
        self.0.name()
    }

    /// The width of an element in bits.
    #[getter]
    fn bits(&self) -> u32 {
        self.0.bits()
    }

    /// Whether it is a floating-point type.
    #[getter]
    fn is_float(&self) -> bool {
        self.0.is_float()
    }

    fn __repr__(&self) -> String {
        format!("mithril.{}", self.name())
    }

    fn __str__(&self) -> &'static str {
        self.name()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&'static str,)) {
        (py.get_type::<DType>(), (self.name(),))
    }

    /// The names of all dtypes.
    #[staticmethod]
    fn names() -> Vec<&'static str> {
        dtype::DType::ALL.into_iter().map(dtype::DType::array_name).collect()
    }
}

/// The dtype that a Python object denotes.
/// Errors: Mithril does not have this dtype.
pub fn of(value: &Bound<'_, PyAny>) -> Answer<dtype::DType> {
    if let Ok(own) = value.cast::<DType>() {
        return Ok(own.get().0);
    }
    let text = name_of(value)?;
    named(&text).ok_or_else(|| {
        let names = dtype::DType::ALL.into_iter().map(dtype::DType::array_name);
        let mut error = Diagnostic::of(ErrorKind::DType, "this is not a dtype")
            .got(&text)
            .expected("a name such as `ml.float32` or \"float32\", or a framework's dtype");
        error.hint = did_you_mean(&text, names);
        Error::from(error)
    })
}

/// The dtype for a name that NumPy, PyTorch, JAX or Mithril uses.
pub fn named(text: &str) -> Option<dtype::DType> {
    let name = text.rsplit('.').next().unwrap_or(text);
    let name = match name {
        "bool_" => "bool",
        "float" | "double" => "float64",
        "half" => "float16",
        "int" | "long" => "int64",
        other => other,
    };
    let mut all = dtype::DType::ALL.into_iter();
    all.find(|d| d.array_name() == name || d.name() == name)
}

/// tinygrad's names of dtypes, and ours.
const C_NAMES: [(&str, &str); 13] = [
    ("bool", "bool"),
    ("signed char", "int8"),
    ("unsigned char", "uint8"),
    ("short", "int16"),
    ("unsigned short", "uint16"),
    ("int", "int32"),
    ("unsigned int", "uint32"),
    ("long", "int64"),
    ("unsigned long", "uint64"),
    ("half", "float16"),
    ("__bf16", "bfloat16"),
    ("float", "float32"),
    ("double", "float64"),
];

/// The name of a dtype object. NumPy's dtypes have `name`, its scalar types `__name__`, and JAX's
/// types `dtype`. PyTorch's dtypes print as `torch.float32`. tinygrad's dtypes have a `bitsize`, and
/// `name` is that of C.
fn name_of(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = value.cast::<PyString>() {
        return text.extract();
    }
    if value.hasattr("bitsize")? {
        let name: String = value.getattr("name")?.extract()?;
        return Ok(C_NAMES
            .iter()
            .find(|(c, _)| *c == name)
            .map_or(name, |(_, own)| own.to_string()));
    }
    for attribute in ["name", "__name__"] {
        if let Ok(name) = value.getattr(attribute) {
            if let Ok(text) = name.extract() {
                return Ok(text);
            }
        }
    }
    match value.getattr("dtype") {
        Ok(dtype) if !dtype.is(value) => name_of(&dtype),
        _ => Ok(value.str()?.to_string()),
    }
}
