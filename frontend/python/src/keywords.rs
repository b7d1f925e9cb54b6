//! The keywords that all blocks take, in addition to their own.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::dtype::DType as Element;
use mithril_model::numerics::Numerics;
use mithril_model::place::Place;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::dtype;
use super::error::Answer;

/// The values of the keywords.
pub struct Keywords<'py> {
    name: Option<String>,
    place: Place,
    numerics: Numerics,
    checkpoint: bool,
    pub gradient: Option<Bound<'py, PyAny>>,
}

/// Reads the value of a keyword as a string or None.
type Text<'a, 'py> = &'a dyn Fn(&str, &Bound<'py, PyAny>) -> Answer<Option<String>>;

impl<'py> Keywords<'py> {
    /// Takes them out of the keywords of a block, except those that the block defines itself.
    /// Errors: values of wrong types.
    pub fn taken_from(
        kwargs: Option<&Bound<'py, PyDict>>,
        defines: &dyn Fn(&str) -> bool,
        text: Text<'_, 'py>,
    ) -> Answer<Keywords<'py>> {
        let own = |keyword| -> Answer<Option<String>> {
            let given = pop(kwargs, keyword)?;
            Ok(given.map(|given| text(keyword, &given)).transpose()?.flatten())
        };
        let (name, backend, device) = (own("name")?, own("backend")?, own("device")?);
        let checkpoint = pop(kwargs, "checkpoint")?;
        let gradient = pop(kwargs, "gradient")?.filter(|gradient| !gradient.is_none());
        let given = |keyword| match defines(keyword) {
            true => Ok(None),
            false => pop(kwargs, keyword).map(|given| given.filter(|given| !given.is_none())),
        };
        let (dtype, precision, acc) = (given("dtype")?, given("precision")?, given("acc")?);
        Ok(Keywords {
            name,
            place: Place::new(backend.as_deref(), device.as_deref())?,
            numerics: numerics(dtype.as_ref(), precision.as_ref(), acc.as_ref())?,
            checkpoint: checkpoint.map_or(Ok(false), |given| given.is_truthy())?,
            gradient,
        })
    }

    /// The block with these settings and this gradient. Errors: a name or a gradient that does not
    /// fit.
    pub fn applied(
        self,
        mut block: mithril_model::Block,
        gradient: Option<mithril_model::Block>,
    ) -> Answer<mithril_model::Block> {
        if let Some(name) = self.name {
            block = block.named(&name)?;
        }
        if self.checkpoint {
            block = block.checkpointed()?;
        }
        if let Some(gradient) = gradient {
            block = block.with_gradient(&gradient)?;
        }
        // A loop has the settings of its body, unless it has its own.
        if !self.place.is_inherited() {
            block = block.placed(self.place);
        }
        if !self.numerics.is_inherited() {
            block = block.computing_in(self.numerics);
        }
        Ok(block)
    }
}

/// The dtypes of a block. `precision` is the width of a float in bits.
///
/// Errors: a width that no float has; two dtypes that differ; those of [`Numerics::new`].
pub fn numerics(
    dtype: Option<&Bound<'_, PyAny>>,
    precision: Option<&Bound<'_, PyAny>>,
    acc: Option<&Bound<'_, PyAny>>,
) -> Answer<Numerics> {
    let mut own = dtype.map(dtype::of).transpose()?;
    if let Some(precision) = precision {
        let width = match precision.extract::<i64>() {
            Ok(16) => Element::F16,
            Ok(32) => Element::F32,
            Ok(64) => Element::F64,
            Ok(_) | Err(_) => {
                let what = "`precision` of a block must be the width of a float in bits";
                let error = Diagnostic::of(ErrorKind::Argument, what).got(precision.repr()?);
                return Err(error.expected("16, 32 or 64").into());
            }
        };
        if let Some(other) = own.filter(|own| own.bits() != width.bits()) {
            let what = "`dtype` and `precision` of a block disagree";
            let got = format!("{} and {}", other.array_name(), width.bits());
            return Err(Diagnostic::of(ErrorKind::Argument, what).got(got).into());
        }
        own = own.or(Some(width));
    }
    Ok(Numerics::new(own, acc.map(dtype::of).transpose()?)?)
}

fn pop<'py>(
    kwargs: Option<&Bound<'py, PyDict>>,
    keyword: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let given = kwargs.map(|kwargs| kwargs.get_item(keyword)).transpose()?.flatten();
    if let (Some(kwargs), Some(_)) = (kwargs, &given) {
        kwargs.del_item(keyword)?;
    }
    Ok(given)
}
