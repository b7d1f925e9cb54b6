//! `mithril`: compile and describe saved models from the command line.

mod npz;
mod shape;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use mithril::native::Native;
use mithril::compile::{self, CompileOptions, Target};
use mithril::{Block, Diagnostic, Mode, Result, lower, summary};
use mithril_ir::dtype::DType;

use shape::Given;

/// Write a model once, run it on any backend.
#[derive(Parser)]
#[command(name = "mithril", version = mithril::VERSION, arg_required_else_help = true)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a saved model as source for a framework, or as C.
    Compile {
        #[command(flatten)]
        model: Saved,
        /// numpy, torch, jax or c.
        #[arg(short, long, default_value = "numpy")]
        target: String,
        /// The Python file to write, with large constants as an .npz beside it; or the C file.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Print a saved model's blocks with their terminals, shapes and numbers of params.
    Summary {
        #[command(flatten)]
        model: Saved,
        /// How many levels of blocks to show.
        #[arg(short, long, default_value_t = 1)]
        depth: usize,
    },
}

/// A model that `Model.save` wrote, and what is said of it.
#[derive(Args)]
struct Saved {
    /// The .json file.
    file: PathBuf,
    /// The shape of an input: `input=batch,784`, `?` for a dim that may vary. May be repeated.
    #[arg(short, long = "shape", value_name = "NAME=DIMS", value_parser = shape::parse)]
    shapes: Vec<Given>,
    /// The dtype of floats: f64, f32, f16 or bf16.
    #[arg(long, default_value = "f32", value_parser = float)]
    dtype: DType,
    /// Compile the forward pass alone, with running statistics and no dropout.
    #[arg(long)]
    inference: bool,
}

fn float(name: &str) -> Result<DType, String> {
    let dtype: Option<DType> = name.parse().ok();
    let known = dtype.filter(|d| d.is_float() && !d.is_storage_only());
    known.ok_or_else(|| "one of f64, f32, f16, bf16 is expected".to_string())
}

impl Saved {
    fn block(&self) -> Result<Block> {
        let text =
            fs::read_to_string(&self.file).map_err(|error| unreadable(&self.file, &error))?;
        Block::from_json(&text).map_err(|error| Box::new(error.at(self.file.display().to_string())))
    }

    fn options(&self) -> lower::Options {
        lower::Options {
            mode: if self.inference { Mode::Inference } else { Mode::Training },
            shapes: self.shapes.iter().map(|g| (g.name.clone(), g.dims.clone())).collect(),
            dtype: self.dtype,
            ..lower::Options::default()
        }
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Box<Diagnostic> {
    Box::new(Diagnostic::new("the file cannot be read").at(path.display().to_string()).got(error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::new("the file cannot be written").at(path.display().to_string()).got(error),
    )
}

fn write(model: &Saved, target: &str, output: &Path) -> Result<()> {
    let target = Target::find(target)?;
    let options = CompileOptions {
        target,
        lower: model.options(),
        optimize: true,
        stem: compile::stem(&output.display().to_string(), target)?,
        cache: false,
    };
    let program = compile::compile(&model.block()?, &options)?;
    if let Some(text) = program.native().and_then(Native::c) {
        return fs::write(output, text).map_err(|error| unwritable(output, &error));
    }
    let Some(source) = program.source() else {
        return match target {
            Target::C => Diagnostic::new("C is for ranks and sizes of params that are known")
                .hint("give the shapes of the model's inputs with `--shape`")
                .err(),
            _ => Diagnostic::new("native code is not written to files yet")
                .expected("a framework: numpy, torch or jax; or c")
                .err(),
        };
    };
    if !source.constants.is_empty() {
        let beside = output.with_extension("npz");
        fs::write(&beside, npz::archive(&source.constants))
            .map_err(|error| unwritable(&beside, &error))?;
    }
    fs::write(output, &source.text).map_err(|error| unwritable(output, &error))
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Compile { model, target, output } => write(model, target, output),
        Command::Summary { model, depth } => {
            let rows = summary::summary(&model.block()?, Some(&model.options()), *depth)?;
            print!("{}", summary::table(&rows));
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    match run(&Options::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
