//! `mithril compile`: compiles models to source for a framework, to C, or to a library for C.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use mithril_driver::compile::{self, CompileOptions};
use mithril_driver::native::export::{Export, export};
use mithril_driver::native::{Native, Planning};
use mithril_driver::targets::{self, Dialect, TARGETS, TargetEntry};
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::Module;
use mithril_ir::{text, verify};
use mithril_kernels::host::{self, Host};
use mithril_passes::driver::Driver;
use mithril_passes::indexed::{Indexed, indexed};
use mithril_passes::pipeline::{self, Pipeline};
use mithril_passes::shard::layout::Mesh;
use mithril_passes::specialise::shapes::Shapes;
use mithril_passes::table::Table;
use mithril_source::python;

use crate::npz;
use crate::optimization::OptimizationOptions;
use crate::output::print;
use crate::saved::{self, Saved};

/// The options of `mithril compile`.
#[derive(Args)]
#[command(mut_arg("file", |file| file.help("The .json file of a saved model, or a .mir file")))]
pub struct Compile {
    #[command(flatten)]
    model: Saved,
    #[command(flatten)]
    optimization: OptimizationOptions,
    /// The name of the target.
    #[arg(short, long, help = help())]
    target: Option<String>,
    /// The file to write: a Python file (large constants go to an .npz file next to it), a C file,
    /// or a library (with its header and metadata next to it). `-` prints source.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The processors for a library: native, x86-64-v2, x86-64-v3, x86-64-v4, v4 with additional
    /// features, as in v4+avx512bf16, or arm64. Given several, the library selects the best one at
    /// run time. Defaults to the environment variable MITHRIL_CPU, or native.
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    cpu: Vec<String>,
    /// The device mesh that `shard` blocks and constraints divide arrays over, for torch and jax:
    /// axes with their sizes, such as data:2,model:4.
    #[arg(long, value_name = "AXIS:SIZE,…", value_parser = Mesh::parse)]
    mesh: Option<Mesh>,
    /// Passes to run first on a .mir file.
    #[arg(short, long = "passes", value_name = "PIPELINE")]
    pipeline: Option<String>,
    /// Print how long each stage of compiling a saved model took.
    #[arg(long)]
    timing: bool,
    /// Add the gradients of all params to a .mir file; a saved model always has them.
    #[arg(long)]
    gradients: bool,
}

/// An error, with the name and text of the source that its span points into.
pub struct Failure {
    pub error: Box<Diagnostic>,
    pub source: Option<(String, String)>,
}

impl From<Box<Diagnostic>> for Failure {
    fn from(error: Box<Diagnostic>) -> Failure {
        Failure { error, source: None }
    }
}

impl Compile {
    /// Compiles the file and writes the output.
    /// Errors: files that cannot be read or written; those of compiling.
    pub fn run(&self) -> Result<(), Failure> {
        let target = match &self.target {
            Some(name) => targets::find(name)?,
            None => by_extension(&self.output),
        };
        if self.mesh.is_some() && !has_meshes(target) {
            let able = TARGETS.iter().filter(|target| has_meshes(target));
            let expected = able.map(TargetEntry::name).collect::<Vec<_>>().join(" or ");
            return Err(misused_option(
                "`--mesh` needs a target with device meshes",
                target.name(),
                &expected,
            ));
        }
        let hosts = match (&*self.cpu, target.dialect) {
            ([], Dialect::Machine) => vec![host::chosen(None)?],
            (named, Dialect::Machine | Dialect::C | Dialect::Python(_)) => {
                named.iter().map(|cpu| Host::parse(cpu)).collect::<Result<_>>()?
            }
        };
        if self.model.file.extension().is_some_and(|extension| extension == "mir") {
            let module = self.module(target)?;
            return Ok(self.write_legal(&module, target, hosts)?);
        }
        if self.pipeline.is_some() || self.gradients {
            let (got, expected) = (self.model.file.display().to_string(), "a .mir file");
            return Err(misused_option(
                "`--passes` and `--gradients` are for .mir files",
                &got,
                expected,
            ));
        }
        match target.dialect {
            Dialect::Machine => {
                let program = self.program(target, "model".into())?;
                Ok(self.library(&program.module, program.indexed.clone(), hosts)?)
            }
            Dialect::Python(_) | Dialect::C => Ok(self.source(target)?),
        }
    }

    /// Writes a module that is already legal for the target.
    fn write_legal(
        &self,
        module: &Module,
        target: &'static TargetEntry,
        hosts: Vec<Host>,
    ) -> Result<()> {
        match target.dialect {
            Dialect::Machine => self.library(module, indexed(module)?, hosts),
            Dialect::C => {
                let (stem, indexed) = (self.stem(target)?, indexed(module)?);
                let native = Native::of_c(module, &stem, Planning::default(), &indexed)?;
                self.write(native.c().unwrap_or_default())
            }
            Dialect::Python(backend) => {
                let mesh = self.mesh.clone();
                let options =
                    python::Options { stem: self.stem(target)?, mesh, ..Default::default() };
                self.python(&python::emit(module, backend, &options)?)
            }
        }
    }

    fn program(
        &self,
        target: &'static TargetEntry,
        stem: String,
    ) -> Result<std::sync::Arc<compile::Program>> {
        let defaults =
            CompileOptions::new(target.name(), self.model.options()?, self.optimization())?;
        let options = CompileOptions { stem, ..defaults };
        let program = compile::compile(&self.model.block()?, &options)?;
        program.settled()?;
        if self.timing {
            eprint!("{}", timings(&program).text());
        }
        Ok(program)
    }

    fn optimization(&self) -> pipeline::OptimizationOptions {
        let mesh = self.mesh.clone();
        pipeline::OptimizationOptions { mesh, ..self.optimization.options() }
    }

    /// Whether source is printed to standard output.
    fn is_printed(&self) -> bool {
        self.output.as_os_str() == "-"
    }

    fn stem(&self, target: &'static TargetEntry) -> Result<String> {
        match self.is_printed() {
            true => Ok("model".into()),
            false => target.stem("--output", &self.output),
        }
    }

    fn source(&self, target: &'static TargetEntry) -> Result<()> {
        let program = self.program(target, self.stem(target)?)?;
        if let Some(text) = program.native().and_then(Native::c) {
            return self.write(text);
        }
        program.source().map_or(Ok(()), |source| self.python(source))
    }

    fn python(&self, source: &python::Source) -> Result<()> {
        if !source.constants.is_empty() {
            if self.is_printed() {
                return Diagnostic::new("large constants need a file of their own")
                    .got("`-`, which prints the source")
                    .hint("name a file: `--output model.py`")
                    .err();
            }
            let archive = self.output.with_extension("npz");
            fs::write(&archive, npz::archive(&source.constants))
                .map_err(|error| write_error(&archive, &error))?;
        }
        self.write(&source.text)
    }

    fn write(&self, text: &str) -> Result<()> {
        if self.is_printed() {
            return print(text);
        }
        fs::write(&self.output, text).map_err(|error| write_error(&self.output, &error))
    }

    /// Reads the module of a .mir file, and runs `--passes` and the target's pipeline on it.
    fn module(&self, target: &'static TargetEntry) -> Result<Module, Failure> {
        if !self.model.is_plain() {
            let what =
                "`--shape`, `--dtype`, `--inference` and `--trust-code` are for saved models";
            return Err(misused_option(
                what,
                &self.model.file.display().to_string(),
                "a .json file",
            ));
        }
        let within = |name: &str, text: &str| {
            let source = Some((name.to_string(), text.to_string()));
            move |error| Failure { error, source }
        };
        let passes = self.pipeline.as_deref().unwrap_or("");
        let first =
            Pipeline::parse(passes, targets::of_passes()).map_err(within("--passes", passes))?;
        let file = saved::text(&self.model.file)?;
        let name = self.model.file.display().to_string();
        let module = text::parse(&file).map_err(within(&name, &file))?;
        verify::verify(&module).map_err(within(&name, &file))?;
        text::check_targets(&file, &targets::names()).map_err(within(&name, &file))?;
        let optimization = self.optimization();
        let then =
            pipeline::standard(Shapes::default(), target.passes, self.gradients, &optimization);
        let then = target.finish(then);
        let run = |pipeline: &Pipeline, module: &Module| -> Result<Module, Failure> {
            let ran = Driver::default().run(pipeline, module);
            Ok(ran.map_err(within(&name, &file))?.0)
        };
        run(&then, &run(&first, &module)?)
    }

    fn library(&self, module: &Module, indexed: Vec<Indexed>, hosts: Vec<Host>) -> Result<()> {
        let stem = self.output.file_stem().map_or("model".into(), |stem| stem.to_string_lossy());
        let request = Export {
            library: self.output.clone(),
            name: stem.strip_prefix("lib").unwrap_or(&stem).to_string(),
            hosts,
            weights: None,
            indexed,
        };
        export(module, &request, &AtomicBool::new(false)).map(|_| ())
    }
}

/// Whether a target divides arrays over device meshes: whether it spells constraints.
fn has_meshes(target: &TargetEntry) -> bool {
    match target.dialect {
        Dialect::Python(backend) => backend.spellings.iter().any(|(name, _)| *name == "constrain"),
        Dialect::C | Dialect::Machine => false,
    }
}

/// The help of `--target`.
fn help() -> String {
    format!(
        "The target: {}. Defaults to the first one whose files have the output's extension, or {}",
        targets::listing(),
        TARGETS[0].name()
    )
}

/// The first target whose files have the extension of this one, or the first of all.
fn by_extension(file: &Path) -> &'static TargetEntry {
    let own = file.extension().unwrap_or_default();
    TARGETS.iter().find(|target| own == target.extension).unwrap_or(&TARGETS[0])
}

/// A table of the time of each stage, and the total.
fn timings(program: &compile::Program) -> Table {
    let row = |stage: &str, time: Duration| {
        vec![stage.to_string(), format!("{:.3} ms", 1e3 * time.as_secs_f64())]
    };
    let total = program.timings.iter().map(|(_, time)| *time).sum();
    let stages = program.timings.iter().map(|(stage, time)| row(stage, *time));
    Table::new(&["stage", "time"], &[1], stages.chain([row("total", total)]).collect())
}

fn misused_option(what: &str, got: &str, expected: &str) -> Failure {
    Box::new(Diagnostic::new(what).got(got).expected(expected)).into()
}

fn write_error(path: &Path, error: &std::io::Error) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::of(ErrorKind::File, "the file cannot be written")
            .at(path.display().to_string())
            .got(error),
    )
}
