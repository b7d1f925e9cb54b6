//! Ahead-of-time compilation: exports a model as a shared library for C, with its header, its
//! metadata and, if given, its weights.
//!
//! Kernels are compiled as for calls in this process, so they may come from the disk cache. The
//! library also contains the constants and one function for each entry.

mod link;
mod metadata;
mod object;
mod weights;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::{Function, Module};
use mithril_ir::tensor::Tensor;
use mithril_kernels::entry::llvm::{self, Processor, Symbols};
use mithril_kernels::entry::{Interface, header, identifier};
use mithril_kernels::host::{self, Architecture, Host};
use mithril_kernels::isa::Isa;
use mithril_kernels::program::{Constant, Plan, plan};
use mithril_model::naming::snake_case;
use mithril_passes::indexed::Indexed;
use rustc_hash::FxHashMap;

use super::c_library;
use super::library::{Library as CodeGenerator, Stage};
use super::objects::{self, Linked, Source};
use crate::VERSION;
use crate::compile::Program;
use crate::files::{name_of, publish, put, unwritable};
use crate::params;

/// What to export, and where.
#[derive(Clone, Debug)]
pub struct Export {
    /// The path of the library. The other files are written to the same folder.
    pub library: PathBuf,
    /// The name that functions and files contain.
    pub name: String,
    /// The processors to compile for. If there are several, the library selects one at run time.
    pub hosts: Vec<Host>,
    /// The params by name: all or none. Without params, no file of weights is written.
    pub weights: Option<Vec<(String, Tensor)>>,
    /// The inputs whose elements the functions check.
    pub indexed: Vec<Indexed>,
}

/// The name and the processors of a library.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// The name that functions and files contain; by default the model's name.
    pub name: Option<String>,
    /// The processors: `native`, `x86-64-v2` to `x86-64-v4`, or `arm64`. If empty, the one that
    /// MITHRIL_CPU names, or this machine's.
    pub cpu: Vec<String>,
}

impl Export {
    /// The export of a program with native code to this folder.
    ///
    /// Errors: an invalid file name or an unknown processor; a program for another target.
    pub fn of(
        program: &Program,
        folder: &Path,
        library: &Library,
        weights: Option<Vec<(String, Tensor)>>,
    ) -> Result<Export> {
        if program.native().is_none_or(|native| native.c().is_some()) {
            return Diagnostic::of(ErrorKind::Native, "a library for C needs native code")
                .got(format!("{}, compiled to source", program.name))
                .expected("the target `cpu`")
                .err();
        }
        let name = library.name.clone().unwrap_or_else(|| snake_case(&program.name));
        if name.is_empty() || name.contains('/') {
            return Diagnostic::new("this is not a valid name for files")
                .got(name)
                .expected("a name without folder and extension")
                .err();
        }
        let hosts = match &library.cpu[..] {
            [] => vec![host::chosen(None)?],
            named => named.iter().map(|cpu| Host::parse(cpu)).collect::<Result<_>>()?,
        };
        let library = folder.join(format!("lib{name}.so"));
        Ok(Export { library, hosts, weights, indexed: program.indexed.clone(), name })
    }
}

/// The files that were written.
#[derive(Clone, Debug)]
pub struct Files {
    pub library: PathBuf,
    pub header: PathBuf,
    pub metadata: PathBuf,
    pub weights: Option<PathBuf>,
    /// One for each kernel that LLVM failed on.
    pub warnings: Vec<String>,
}

/// Writes the library of a module that was legalized for native code and whose functions call no
/// others. Each file is written atomically, and none is written if the library cannot be made.
///
/// Errors: those of planning and of the native library; params that do not fit; no linker; a file
/// that cannot be written; `stop`.
pub fn export(module: &Module, request: &Export, stop: &AtomicBool) -> Result<Files> {
    let mut hosts = request.hosts.clone();
    // The library uses the first variant that its processor supports, so the most capable comes
    // first.
    hosts.sort_by_key(|host| std::cmp::Reverse(host.rank()));
    hosts.dedup();
    if hosts.is_empty() || module.entry().is_none() {
        let got = format!("{} functions for {} processors", module.functions.len(), hosts.len());
        return Diagnostic::new("there is nothing to compile to a library").got(got).err();
    }
    let architecture = hosts[0].level.architecture;
    if let Some(other) = hosts.iter().find(|host| host.level.architecture != architecture) {
        return Diagnostic::new("a library cannot be for processors of different architectures")
            .got(format!("{} and {}", hosts[0].name(), other.name()))
            .hint("export twice, to different folders")
            .err();
    }
    let processors: Vec<Processor> = hosts.iter().map(Host::processor).collect();
    let functions: Vec<&Function> = module.called_from_outside().map(|f| &**f).collect();
    let plans = functions
        .iter()
        .map(|function| hosts.iter().map(|host| plan(module, function, &isa(host))).collect());
    let plans: Vec<Vec<Plan>> = plans.collect::<Result<_>>()?;
    let signatures = functions.iter().zip(&plans).map(|(f, plans)| (*f, plans.iter().collect()));
    let mut interface =
        Interface::new(&request.name, &signatures.collect::<Vec<_>>(), &request.indexed)?;
    interface.shared = true;
    let mut files = Files::of(request, &interface.model);
    let entry = &interface.entries[0];
    let weights =
        request.weights.as_ref().map(|given| weights::ordered(entry, given)).transpose()?;
    let objects = objects(&interface, &plans, &hosts, &processors, &mut files.warnings, stop)?;
    let names: Vec<&str> = processors.iter().map(|processor| &*processor.name).collect();
    let about = format!(
        "{}: a model as native code for {}, in {}. Made by Mithril {VERSION}.",
        interface.model,
        names.join(", "),
        name_of(&files.library),
    );
    if let Some(folder) = files.library.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
    }
    publish(&files.library, |temporary| {
        link::link(&objects, architecture, temporary, &files.library, stop)?;
        let places = match (&files.weights, &weights) {
            (Some(path), Some(weights)) => {
                publish(path, |temporary| params::write(weights, temporary))?
            }
            _ => Vec::new(),
        };
        let metadata = metadata::text(&interface, &names, &files, &places);
        publish(&files.header, |temporary| put(temporary, header(&interface, &about).as_bytes()))?;
        publish(&files.metadata, |temporary| put(temporary, metadata.as_bytes()))
    })?;
    Ok(files)
}

/// The features that kernels may use. Arrays from C can have any alignment, so streaming stores are
/// off.
fn isa(host: &Host) -> Isa {
    Isa { streams: false, ..host.isa }
}

impl Files {
    fn of(request: &Export, model: &str) -> Files {
        let sibling = |name: String| request.library.with_file_name(name);
        Files {
            library: request.library.clone(),
            header: sibling(format!("{model}.h")),
            // The metadata is named after the library, because a saved model may have the model's
            // name.
            metadata: request.library.with_extension("json"),
            weights: request.weights.as_ref().map(|_| sibling(format!("{model}.safetensors"))),
            warnings: Vec::new(),
        }
    }
}

/// An object file to write, and its name.
pub struct Object {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// All objects that the library is linked from.
fn objects(
    interface: &Interface,
    plans: &[Vec<Plan>],
    hosts: &[Host],
    processors: &[Processor],
    warnings: &mut Vec<String>,
    stop: &AtomicBool,
) -> Result<Vec<Object>> {
    let architecture = hosts[0].level.architecture;
    let mut objects = Vec::new();
    let mut kernels: Symbols = vec![Vec::new(); plans.len()];
    for (variant, host) in hosts.iter().enumerate() {
        let mut sources: Vec<Source> = Vec::new();
        let mut known: FxHashMap<String, usize> = FxHashMap::default();
        for (entry, plans) in plans.iter().enumerate() {
            let plan = &plans[variant];
            let own = plan.kernels.iter().zip(plan.locs_of_kernels()).enumerate();
            let own = own.map(|(at, (kernel, loc))| {
                if kernel.external.is_some() {
                    return external_symbol(interface, entry, variant, at);
                }
                let (text, code) = (kernel.text(), &kernel.lowered.code);
                let number = *known.entry(text.clone()).or_insert_with(|| {
                    sources.push(Source { text, code, quick: false, loc });
                    sources.len() - 1
                });
                kernel_symbol(interface, host, number)
            });
            let symbols = own.collect();
            kernels[entry].push(symbols);
        }
        for (number, linked) in objects::linked(&sources, host, stop)?.into_iter().enumerate() {
            let name = kernel_symbol(interface, host, number);
            let bytes = match linked {
                Linked::Object(bytes) => object::renamed(&bytes, "kernel", &name),
                Linked::Function(code, failure) => {
                    warnings.push(failure.warning(number, &sources[number].loc));
                    object::function(architecture, &name, &code)
                }
            };
            objects.push(Object { name, bytes: bytes.map_err(objects::malformed_code)? });
        }
    }
    objects.extend(external_objects(interface, plans, architecture, stop)?);
    let (constants, symbols) = constants(interface, plans);
    if !constants.is_empty() {
        let name = format!("mithril_{}_constants", interface.model);
        let bytes = object::constants(architecture, &constants).map_err(objects::malformed_code)?;
        objects.push(Object { name, bytes });
    }
    let library = llvm::Library { interface, processors, kernels, constants: symbols };
    let text = llvm::llvm(&library);
    let bytes = CodeGenerator::open()?.compile(&text, &Host::plain(architecture), Stage::Object);
    let name = format!("mithril_{}", interface.model);
    objects.push(Object { name, bytes: bytes.map_err(objects::malformed_code)? });
    Ok(objects)
}

/// The objects of kernels whose bodies the user wrote, by the system's compiler or, for another
/// architecture, a cross compiler.
///
/// Errors: there is no compiler; a body that does not compile.
fn external_objects(
    interface: &Interface,
    plans: &[Vec<Plan>],
    architecture: Architecture,
    stop: &AtomicBool,
) -> Result<Vec<Object>> {
    let mut objects = Vec::new();
    for (entry, plans) in plans.iter().enumerate() {
        for (variant, plan) in plans.iter().enumerate() {
            let symbol = |at| external_symbol(interface, entry, variant, at);
            let Some(text) = c_library::external_kernels(plan, &symbol)? else { continue };
            let name = format!("mithril_{}_custom_{entry}_{variant}", interface.model);
            objects.push(Object { name, bytes: c_library::object(&text, architecture, stop)? });
        }
    }
    Ok(objects)
}

/// The symbol of a kernel whose body the user wrote.
fn external_symbol(interface: &Interface, entry: usize, variant: usize, at: usize) -> String {
    format!("mithril_{}_custom_{entry}_{variant}_{at}", interface.model)
}

fn kernel_symbol(interface: &Interface, host: &Host, number: usize) -> String {
    format!("mithril_{}_{}_k{number}", interface.model, identifier(&host.name()))
}

/// Deduplicates constants. Returns each with its symbol, and the symbols by entry and variant.
fn constants<'p>(
    interface: &Interface,
    plans: &'p [Vec<Plan>],
) -> (Vec<(String, &'p Constant)>, Symbols) {
    let mut all: Vec<(String, &Constant)> = Vec::new();
    let mut symbol = |constant: &'p Constant| {
        if let Some((symbol, _)) = all.iter().find(|(_, known)| *known == constant) {
            return symbol.clone();
        }
        let symbol = format!("mithril_{}_c{}", interface.model, all.len());
        all.push((symbol.clone(), constant));
        symbol
    };
    let mut own = |plan: &'p Plan| plan.constants.iter().map(&mut symbol).collect();
    let symbols = plans.iter().map(|plans| plans.iter().map(&mut own).collect()).collect();
    (all, symbols)
}
