//! Examples of blocks: settings, inputs and output.

/// One example. Tests run it and compare its output.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The settings in Python syntax: `dimension=3`.
    pub settings: &'static str,
    /// The arrays for data inputs and keys, in order: lists, converted to the input's dtype, or
    /// NumPy calls.
    pub inputs: &'static [&'static str],
    /// The arrays of params. If empty, params are drawn at random.
    pub params: &'static [&'static str],
    /// The code, where it does not follow from the settings and inputs.
    pub code: &'static str,
    /// The printed output, with four digits; if in parentheses, the shape of the output.
    pub output: &'static str,
}

impl Example {
    /// The same example with these settings.
    pub const fn with_settings(self, settings: &'static str) -> Example {
        Example { settings, ..self }
    }

    /// The same example with these arrays as params.
    pub const fn with_params(self, params: &'static [&'static str]) -> Example {
        Example { params, ..self }
    }

    /// Whether the example prints the shapes of outputs instead of their elements.
    pub fn prints_shapes(&self) -> bool {
        self.output.starts_with('(')
    }
}

/// The example of a block without settings: its inputs and its output.
pub(crate) const fn gives(inputs: &'static [&'static str], output: &'static str) -> Example {
    Example { settings: "", inputs, params: &[], code: "", output }
}

/// An example that is written out, and its output.
pub(crate) const fn written(code: &'static str, output: &'static str) -> Example {
    Example { settings: "", inputs: &[], params: &[], code, output }
}
