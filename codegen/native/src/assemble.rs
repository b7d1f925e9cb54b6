//! LLVM: from MLIR's llvm dialect to machine code.

use std::sync::Once;

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple,
};

use crate::single::store_lanes;
use crate::{Options, Stage};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

static TARGETS: Once = Once::new();

/// What `stage` gives for a module of the dialect llvm.
pub fn assemble(
    module: &melior::ir::Module,
    options: &Options,
    stage: Stage,
) -> Result<Vec<u8>, String> {
    let context = Context::create();
    let module = translate(module, &context)?;
    let machine = machine(options)?;
    module.set_triple(&machine.get_triple());
    // Without a layout, loops that clear memory become stores of single bytes.
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    if stage == Stage::Llvm {
        return Ok(module.print_to_string().to_bytes().to_vec());
    }
    let passes = PassBuilderOptions::create();
    // Kernels are vectors and loops as they should be: LLVM need not look for more.
    passes.set_loop_vectorization(false);
    passes.set_loop_slp_vectorization(false);
    passes.set_loop_unrolling(false);
    module.run_passes("default<O2>", &machine, passes).map_err(|e| e.to_string())?;
    store_lanes(&module, &context).map_err(|e| e.to_string())?;
    let file = match stage {
        Stage::Optimized => return Ok(module.print_to_string().to_bytes().to_vec()),
        Stage::Assembly => FileType::Assembly,
        Stage::Object | Stage::Mlir | Stage::Llvm => FileType::Object,
    };
    let buffer = machine.write_to_memory_buffer(&module, file).map_err(|e| e.to_string())?;
    let bytes = buffer.as_slice();
    // Assembly ends with a zero that is not text.
    let text = stage == Stage::Assembly && bytes.last() == Some(&0);
    Ok(bytes[..bytes.len() - usize::from(text)].to_vec())
}

fn translate<'c>(module: &melior::ir::Module, context: &'c Context) -> Result<Module<'c>, String> {
    // SAFETY: both arguments live, and the module that comes back belongs to `context` and to us.
    unsafe {
        let raw = mlir_sys::mlirTranslateModuleToLLVMIR(
            module.as_operation().to_raw(),
            context.raw().cast(),
        );
        match raw.is_null() {
            true => Err("MLIR cannot translate a kernel to LLVM".into()),
            false => Ok(Module::new(raw.cast())),
        }
    }
}

fn machine(options: &Options) -> Result<TargetMachine, String> {
    TARGETS.call_once(|| Target::initialize_x86(&InitializationConfig::default()));
    let triple = TargetTriple::create(TRIPLE);
    let target = Target::from_triple(&triple).map_err(|e| e.to_string())?;
    let level = OptimizationLevel::Aggressive;
    let Options { cpu, features } = options;
    let cpu = if cpu.is_empty() { "x86-64" } else { cpu };
    target
        .create_target_machine(&triple, cpu, features, level, RelocMode::PIC, CodeModel::Default)
        .ok_or_else(|| format!("LLVM has no processor `{cpu}` with `{features}`"))
}
