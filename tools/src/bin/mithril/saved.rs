//! Saved models, and the command-line options that describe how to compile them.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_model::{Block, Code, Mode, lower};

use crate::shape::{self, InputShape};

/// A model that `Model.save` wrote, and the options for lowering it.
#[derive(Args)]
pub struct Saved {
    /// The .json file.
    pub file: PathBuf,
    /// The shape of an input: `input=batch,784`, `?` for a dim that may vary. May be repeated.
    #[arg(short, long = "shape", value_name = "NAME=DIMS", value_parser = shape::parse)]
    shapes: Vec<InputShape>,
    /// The dtype of floats: f64, f32, f16 or bf16.
    #[arg(long, default_value = "f32", value_parser = float)]
    dtype: DType,
    /// Compile only the forward pass, with running statistics and without dropout.
    #[arg(long)]
    inference: bool,
    /// Load the bodies of custom operations, which are code that runs with the model. Without it, a
    /// file with such bodies is refused.
    #[arg(long)]
    pub trust_code: bool,
}

fn float(name: &str) -> Result<DType, String> {
    let dtype: Option<DType> = name.parse().ok();
    let known = dtype.filter(|d| d.is_float() && !d.is_storage_only());
    known.ok_or_else(|| "one of f64, f32, f16, bf16 is expected".to_string())
}

impl Saved {
    pub fn block(&self) -> Result<Block> {
        let error = |error: Box<Diagnostic>| Box::new(error.at(self.file.display().to_string()));
        let code = if self.trust_code { Code::Trusted } else { Code::Refused };
        Block::from_json_of(&text(&self.file)?, code).map_err(error)
    }

    /// The options for lowering the model. Errors: an input that is given two shapes.
    pub fn options(&self) -> Result<lower::Options> {
        for (i, given) in self.shapes.iter().enumerate() {
            if let Some(before) = self.shapes[..i].iter().find(|before| before.name == given.name) {
                return Diagnostic::new(format!("`--shape` names `{}` twice", given.name))
                    .got(format!("{before} and {given}"))
                    .expected("one shape for each input")
                    .err();
            }
        }
        Ok(lower::Options {
            mode: if self.inference { Mode::Inference } else { Mode::Training },
            shapes: self.shapes.iter().map(|g| (g.name.clone(), g.dims.clone())).collect(),
            dtype: self.dtype,
            ..lower::Options::default()
        })
    }

    /// Whether all options other than the file have their defaults.
    pub fn is_plain(&self) -> bool {
        self.shapes.is_empty() && self.dtype == DType::F32 && !self.inference && !self.trust_code
    }
}

/// The text of a file. Errors: the file cannot be read.
pub fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| {
        Box::new(
            Diagnostic::of(ErrorKind::File, "the file cannot be read")
                .at(path.display().to_string())
                .got(error),
        )
    })
}
