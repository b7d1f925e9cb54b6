//! The outputs of `--emit`, which are printed instead of the module.

use std::str::FromStr;

use mithril_driver::compile::Target;
use mithril_driver::native::{Native, Planning, Stage, Tier};
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::graph::Module;
use mithril_ir::text;
use mithril_kernels::host::{self, Host};
use mithril_passes::indexed::indexed;
use mithril_passes::legalize::Legalize;
use mithril_passes::pipeline::{self, Pipeline};
use mithril_source::python::{self, Framework};

/// An output of `--emit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emit {
    Source(Framework),
    /// One C file.
    C,
    /// A picture of the module in Graphviz's language.
    Dot,
    /// The launches, and the kernels as IR functions.
    Kernels,
    /// The loop code of the kernels.
    Loops,
    /// The kernels in Cranelift's input format.
    Clif,
    /// The kernels as input of the code generator (MLIR), or as the output of one of its stages.
    Code(Option<Stage>),
}

const STAGES: [(&str, Option<Stage>); 4] = [
    ("mlir", None),
    ("llvm", Some(Stage::Optimized)),
    ("asm", Some(Stage::Assembly)),
    ("obj", Some(Stage::Object)),
];

impl FromStr for Emit {
    type Err = String;

    fn from_str(name: &str) -> Result<Emit, String> {
        let frameworks = || Framework::all().map(|f| (f.name(), Emit::Source(f)));
        let stages = STAGES.into_iter().map(|(name, stage)| (name, Emit::Code(stage)));
        let all = || {
            let others = [
                ("dot", Emit::Dot),
                ("c", Emit::C),
                ("kernels", Emit::Kernels),
                ("loops", Emit::Loops),
                ("clif", Emit::Clif),
            ];
            frameworks().chain(others).chain(stages.clone())
        };
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
            Emit::Source(framework) => Target::Framework(framework),
            Emit::C => Target::C,
            Emit::Kernels | Emit::Loops | Emit::Clif | Emit::Code(_) => Target::Cpu,
        };
        let pipeline = pipeline.then(Legalize { target: target.passes() });
        match self {
            Emit::Dot | Emit::Source(_) => pipeline,
            Emit::C | Emit::Kernels | Emit::Loops | Emit::Clif | Emit::Code(_) => {
                pipeline::flat(pipeline)
            }
        }
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
            Emit::Source(framework) => source(module, framework),
            Emit::C => {
                let name = module.entry().map_or("model", |entry| &entry.name);
                let native = Native::of_c(module, name, Planning::default(), &indexed(module)?)?;
                Ok(native.c().unwrap_or_default().into())
            }
            Emit::Kernels => Ok(native()?.listing().into_bytes()),
            Emit::Loops => {
                let native = native()?;
                let texts: Vec<String> = native.parts().flat_map(|part| part.loops()).collect();
                Ok(texts.join("\n").into_bytes())
            }
            Emit::Clif => {
                let native = native()?;
                let texts: Result<Vec<_>> = native.parts().map(|part| part.clif()).collect();
                Ok(texts?.concat().join("\n").into_bytes())
            }
            Emit::Code(stage) => code(&native()?, stage),
        }
    }
}

fn source(module: &Module, framework: Framework) -> Result<Vec<u8>> {
    let source = python::emit(module, framework, &python::Options::default())?;
    if !source.constants.is_empty() {
        let count = source.constants.len();
        eprintln!("mithril-opt: {count} large constants of the source are not written");
    }
    Ok(source.text.into_bytes())
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
