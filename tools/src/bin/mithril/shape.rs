//! Parses shapes on the command line: `input=batch,784`.

use std::fmt;

use mithril_model::DimSpec;

/// The shape given for an input.
#[derive(Clone)]
pub struct InputShape {
    pub name: String,
    pub dims: Vec<DimSpec>,
}

impl fmt::Display for InputShape {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let dims = self.dims.iter().map(|dim| match dim {
            DimSpec::Number(number) => number.to_string(),
            DimSpec::Any => "?".to_string(),
            DimSpec::Named(name) => name.to_string(),
        });
        write!(f, "{}={}", self.name, dims.collect::<Vec<_>>().join(","))
    }
}

/// Parses `input=batch,784`. `?` is a dim that may vary; no dims at all are a scalar.
/// Errors: no `=`, or a dim that is neither a number, a name nor `?`.
pub fn parse(text: &str) -> Result<InputShape, String> {
    let (name, dims) = text.split_once('=').ok_or("`name=dims` is expected")?;
    let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let dims: Result<Vec<DimSpec>, String> = dims.map(dim).collect();
    Ok(InputShape { name: name.trim().to_string(), dims: dims? })
}

fn dim(text: &str) -> Result<DimSpec, String> {
    if text == "?" {
        return Ok(DimSpec::Any);
    }
    if let Ok(number) = text.parse::<u64>() {
        return Ok(number.into());
    }
    match mithril_ir::text::is_identifier(text) {
        true => Ok(text.into()),
        false => Err(format!("`{text}` is neither a number, a name nor `?`")),
    }
}
