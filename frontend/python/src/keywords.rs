//! The keywords that all blocks take, in addition to their own.

use mithril_model::place::Place;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::error::Answer;

/// The values of the keywords.
pub struct Keywords<'py> {
    name: Option<String>,
    place: Place,
    checkpoint: bool,
    pub gradient: Option<Bound<'py, PyAny>>,
}

/// Reads the value of a keyword as a string or None.
type Text<'a, 'py> = &'a dyn Fn(&str, &Bound<'py, PyAny>) -> Answer<Option<String>>;

impl<'py> Keywords<'py> {
    /// Takes them out of the keywords of a block. Errors: values of wrong types.
    pub fn taken_from(
        kwargs: Option<&Bound<'py, PyDict>>,
        text: Text<'_, 'py>,
    ) -> Answer<Keywords<'py>> {
        let own = |keyword| -> Answer<Option<String>> {
            let given = pop(kwargs, keyword)?;
            Ok(given.map(|given| text(keyword, &given)).transpose()?.flatten())
        };
        let (name, backend, device) = (own("name")?, own("backend")?, own("device")?);
        let checkpoint = pop(kwargs, "checkpoint")?;
        let gradient = pop(kwargs, "gradient")?.filter(|gradient| !gradient.is_none());
        Ok(Keywords {
            name,
            place: Place::new(backend.as_deref(), device.as_deref())?,
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
        Ok(block.placed(self.place))
    }
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
