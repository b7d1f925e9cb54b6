//! LLVM: compiles MLIR's llvm dialect to machine code.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Once;

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::llvm_sys::LLVMDiagnosticSeverity;
use inkwell::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use inkwell::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMGetErrorMessage};
use inkwell::llvm_sys::prelude::LLVMDiagnosticInfoRef;
use inkwell::llvm_sys::target_machine::{LLVMCodeGenFileType, LLVMTargetMachineEmitToMemoryBuffer};
use inkwell::llvm_sys::transforms::pass_builder::LLVMRunPasses;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple,
};

use crate::recover::{LlvmValue, catch};
use crate::single::store_lanes;
use crate::{Options, Stage};

/// The target of empty [`Options::triple`].
const DEFAULT: &str = "x86_64-unknown-linux-gnu";

/// Compiles a module of the llvm dialect to the output of `stage`.
///
/// Errors: LLVM's messages, including those of fatal errors.
pub fn assemble(
    module: &melior::ir::Module,
    options: &Options,
    stage: Stage,
) -> Result<Vec<u8>, String> {
    let errors = RefCell::new(Vec::new());
    let context = LlvmValue::new(Context::create());
    collect_errors(&context, &errors);
    let module = translate(module, &context)?;
    let machine = LlvmValue::new(machine(options)?);
    module.set_triple(&machine.get_triple());
    // Without a data layout, loops that clear memory become stores of single bytes.
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    if stage == Stage::Llvm {
        return Ok(module.print_to_string().to_bytes().to_vec());
    }
    optimize(&module, &machine)?;
    store_lanes(&module, &context).map_err(|e| e.to_string())?;
    let file = match stage {
        Stage::Optimized => return Ok(module.print_to_string().to_bytes().to_vec()),
        Stage::Assembly => LLVMCodeGenFileType::LLVMAssemblyFile,
        Stage::Object | Stage::Mlir | Stage::Llvm => LLVMCodeGenFileType::LLVMObjectFile,
    };
    let buffer = emit(&module, &machine, file)?;
    let errors = errors.into_inner();
    if !errors.is_empty() {
        return Err(errors.join("\n  "));
    }
    let bytes = buffer.as_slice();
    // Assembly ends with a zero byte that is not text.
    let text = stage == Stage::Assembly && bytes.last() == Some(&0);
    Ok(bytes[..bytes.len() - usize::from(text)].to_vec())
}

/// Collects the errors that LLVM reports for code of this context. Without a handler, LLVM ends the
/// process at the first error.
fn collect_errors(context: &Context, errors: &RefCell<Vec<String>>) {
    extern "C" fn on_diagnostic(diagnostic: LLVMDiagnosticInfoRef, errors: *mut c_void) {
        // SAFETY: LLVM passes a valid diagnostic, and `errors` lives as long as its context is
        // used.
        unsafe {
            if LLVMGetDiagInfoSeverity(diagnostic) != LLVMDiagnosticSeverity::LLVMDSError {
                return;
            }
            let text = LLVMGetDiagInfoDescription(diagnostic);
            let errors = &*errors.cast_const().cast::<RefCell<Vec<String>>>();
            errors.borrow_mut().push(CStr::from_ptr(text).to_string_lossy().into_owned());
            LLVMDisposeMessage(text);
        }
    }
    let errors = std::ptr::from_ref(errors).cast_mut().cast();
    // SAFETY: as above.
    unsafe { LLVMContextSetDiagnosticHandler(context.raw(), Some(on_diagnostic), errors) };
}

fn translate<'c>(
    module: &melior::ir::Module,
    context: &'c Context,
) -> Result<LlvmValue<Module<'c>>, String> {
    let (whole, context) = (module.as_operation().to_raw(), context.raw().cast());
    // SAFETY: both arguments are live. We own the returned module, which belongs to `context`.
    unsafe {
        let raw = catch(|| mlir_sys::mlirTranslateModuleToLLVMIR(whole, context))?;
        match raw.is_null() {
            true => Err("MLIR cannot translate a kernel to LLVM".into()),
            false => Ok(LlvmValue::new(Module::new(raw.cast()))),
        }
    }
}

/// Runs LLVM's optimization passes.
fn optimize(module: &Module, machine: &TargetMachine) -> Result<(), String> {
    let passes = LlvmValue::new(PassBuilderOptions::create());
    // Kernels are already vectorized and unrolled, so LLVM's vectorizers and loop unroller are off.
    passes.set_loop_vectorization(false);
    passes.set_loop_slp_vectorization(false);
    passes.set_loop_unrolling(false);
    let (module, machine) = (module.as_mut_ptr(), machine.as_mut_ptr());
    let options = passes.as_mut_ptr();
    // SAFETY: all arguments are live, and we own the returned error.
    unsafe {
        let error = catch(|| LLVMRunPasses(module, c"default<O2>".as_ptr(), machine, options))?;
        if error.is_null() {
            return Ok(());
        }
        let text = LLVMGetErrorMessage(error);
        let said = CStr::from_ptr(text).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(text);
        Err(said)
    }
}

/// Emits the module as a file in memory.
fn emit(
    module: &Module,
    machine: &TargetMachine,
    file: LLVMCodeGenFileType,
) -> Result<MemoryBuffer<'static>, String> {
    let (module, machine) = (module.as_mut_ptr(), machine.as_mut_ptr());
    let (mut buffer, mut error) = (ptr::null_mut(), ptr::null_mut());
    let to = (&raw mut buffer, &raw mut error);
    // SAFETY: both arguments are live, and we own what is written to `to`.
    unsafe {
        let failed =
            catch(|| LLVMTargetMachineEmitToMemoryBuffer(machine, module, file, to.1, to.0))?;
        if failed == 0 {
            return Ok(MemoryBuffer::new(buffer));
        }
        let said = CStr::from_ptr(error).to_string_lossy().into_owned();
        LLVMDisposeMessage(error);
        Err(said)
    }
}

/// Initializes the LLVM target of a triple, once per process.
fn initialize(triple: &str) {
    static X86: Once = Once::new();
    static ARM64: Once = Once::new();
    let config = InitializationConfig::default();
    if triple.starts_with("x86_64-") {
        X86.call_once(|| Target::initialize_x86(&config));
    } else if triple.starts_with("aarch64-") {
        ARM64.call_once(|| Target::initialize_aarch64(&config));
    }
}

fn machine(options: &Options) -> Result<TargetMachine, String> {
    let Options { triple, cpu, features } = options;
    let triple = if triple.is_empty() { DEFAULT } else { triple };
    initialize(triple);
    let triple = TargetTriple::create(triple);
    let target = Target::from_triple(&triple).map_err(|e| e.to_string())?;
    let level = OptimizationLevel::Aggressive;
    target
        .create_target_machine(&triple, cpu, features, level, RelocMode::PIC, CodeModel::Default)
        .ok_or_else(|| format!("LLVM has no processor `{cpu}` with `{features}`"))
}
