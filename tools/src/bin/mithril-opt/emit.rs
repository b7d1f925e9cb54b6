//! The outputs of `--emit`, which are printed instead of the module.

use std::str::FromStr;

use mithril_driver::native::{Native, Planning, Stage, Tier};
use mithril_driver::targets::{self, CPU, Dialect, TARGETS, TargetEntry};
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::graph::Module;
use mithril_ir::text;
use mithril_kernels::host::{self, Host};
use mithril_passes::indexed::indexed;
use mithril_passes::legalize::Legalize;
use mithril_passes::pipeline::Pipeline;
use mithril_source::backends::Backend;
use mithril_source::python;

/// An output of `--emit`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Emit {
    /// The code of a target. For machine code, its launches and kernels.
    Code(&'static TargetEntry),
    /// A picture of the module in Graphviz's language.
    Dot,
    /// The kernels of machine code, in a form on the way to it.
    Kernels(Form),
}

/// A form of kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Loop code.
    Loops,
    /// Cranelift's input format.
    Clif,
    /// The input of the code generator (MLIR), or the output of one of its stages.
    Stage(Option<Stage>),
}

/// The outputs besides those of targets, by name.
const OTHERS: [(&str, Emit); 8] = [
    ("dot", Emit::Dot),
    ("kernels", Emit::Code(&CPU)),
    ("loops", Emit::Kernels(Form::Loops)),
    ("clif", Emit::Kernels(Form::Clif)),
    ("mlir", Emit::Kernels(Form::Stage(None))),
    ("llvm", Emit::Kernels(Form::Stage(Some(Stage::Optimized)))),
    ("asm", Emit::Kernels(Form::Stage(Some(Stage::Assembly)))),
    ("obj", Emit::Kernels(Form::Stage(Some(Stage::Object)))),
];

fn all() -> impl Iterator<Item = (&'static str, Emit)> {
    TARGETS.iter().map(|target| (target.name(), Emit::Code(target))).chain(OTHERS)
}

/// The help of `--emit`.
pub fn help() -> String {
    format!(
        "Print another form of the module: the code of a target, {}; launches and kernels, which \
         cpu prints as well, or the kernels as loops, clif, mlir, llvm, asm or obj; or a graph for \
         Graphviz (dot). Operations that the target lacks are decomposed first",
        targets::listing()
    )
}

impl FromStr for Emit {
    type Err = String;

    fn from_str(name: &str) -> Result<Emit, String> {
        let found = all().find(|(own, _)| *own == name).map(|(_, emit)| emit);
        found.ok_or_else(|| {
            format!("one of {}", all().map(|(own, _)| own).collect::<Vec<_>>().join(", "))
        })
    }
}

impl Emit {
    /// Extends the pipeline so that its result is legal for this output.
    pub fn legal(self, pipeline: Pipeline) -> Pipeline {
        let target = match self {
            Emit::Dot => return pipeline,
            Emit::Code(target) => target,
            Emit::Kernels(_) => &CPU,
        };
        target.finish(pipeline.then(Legalize { target: target.passes }))
    }

    /// The output for a module, in bytes. `cpu` is a processor's level; without it, the level is that
    /// of MITHRIL_CPU, or of this machine's processor.
    /// Errors: the target does not support the module; those of the native library.
    pub fn emit(self, module: &Module, cpu: Option<&str>) -> Result<Vec<u8>> {
        let native = || {
            let host = cpu.map_or_else(|| host::chosen(None), Host::parse)?;
            Native::of(module, &host, Tier::Llvm, Planning::default())
        };
        match self {
            Emit::Dot => Ok(text::dot(module).into_bytes()),
            Emit::Code(target) => match target.dialect {
                Dialect::Python(backend) => source(module, backend),
                Dialect::C => {
                    let name = module.entry().map_or("model", |entry| &entry.name);
                    let indexed = indexed(module)?;
                    let native = Native::of_c(module, name, Planning::default(), &indexed)?;
                    Ok(native.c().unwrap_or_default().into())
                }
                Dialect::Machine => Ok(native()?.listing().into_bytes()),
            },
            Emit::Kernels(form) => kernels(&native()?, form),
        }
    }
}

fn source(module: &Module, backend: &'static Backend) -> Result<Vec<u8>> {
    let source = python::emit(module, backend, &python::Options::default())?;
    if !source.constants.is_empty() {
        let count = source.constants.len();
        eprintln!("mithril-opt: {count} large constants of the source are not written");
    }
    Ok(source.text.into_bytes())
}

/// All kernels in this form, joined.
fn kernels(native: &Native, form: Form) -> Result<Vec<u8>> {
    match form {
        Form::Loops => {
            let texts: Vec<String> = native.parts().flat_map(|part| part.loops()).collect();
            Ok(texts.join("\n").into_bytes())
        }
        Form::Clif => {
            let texts: Result<Vec<_>> = native.parts().map(|part| part.clif()).collect();
            Ok(texts?.concat().join("\n").into_bytes())
        }
        Form::Stage(stage) => code(native, stage),
    }
}

/// The code of all kernels at a stage, joined. Objects cannot be joined: there must be only one.
fn code(native: &Native, stage: Option<Stage>) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for part in native.parts() {
        all.extend(part.stage(stage)?);
    }
    if stage == Some(Stage::Object) {
        return match <[Vec<u8>; 1]>::try_from(all) {
            Ok([object]) => Ok(object),
            Err(all) => Diagnostic::new("an object file holds one kernel")
                .got(format!("{} kernels", all.len()))
                .hint("`--emit=kernels` shows them")
                .err(),
        };
    }
    Ok(all.join(&b'\n'))
}
