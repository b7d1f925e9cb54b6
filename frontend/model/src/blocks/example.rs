//! Examples of blocks: how one is made, what it is given and what it gives.

/// One example. Tests run it and compare what it prints.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The settings, as Python writes them: `dimension=3`.
    pub settings: &'static str,
    /// The arrays of the inputs for data and keys, in their order: lists of the dtype that the
    /// input takes, or calls of NumPy.
    pub inputs: &'static [&'static str],
    /// The arrays of what is learned; where empty, they are drawn.
    pub params: &'static [&'static str],
    /// What is printed, with four digits; in parentheses, the shape of the output.
    pub output: &'static str,
}

impl Example {
    /// Made with these settings.
    pub const fn made(self, settings: &'static str) -> Example {
        Example { settings, ..self }
    }

    /// With these arrays as params.
    pub const fn learned(self, params: &'static [&'static str]) -> Example {
        Example { params, ..self }
    }

    /// Whether the shapes of outputs are printed, not their elements.
    pub fn prints_shapes(&self) -> bool {
        self.output.starts_with('(')
    }
}

/// The example of a block without settings: its inputs and its output.
pub(crate) const fn gives(inputs: &'static [&'static str], output: &'static str) -> Example {
    Example { settings: "", inputs, params: &[], output }
}
