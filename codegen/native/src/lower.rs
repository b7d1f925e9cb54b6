//! MLIR: lowers text to the llvm dialect.

use std::cell::RefCell;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::Once;

use melior::Context;
use melior::dialect::DialectRegistry;
use melior::ir::Module;
use melior::pass::PassManager;
use melior::utility::{
    parse_pass_pipeline, register_all_dialects, register_all_llvm_translations, register_all_passes,
};
use mlir_sys::{MlirStringRef, mlirModuleCreateParse, mlirOperationVerify, mlirPassManagerRunOnOp};

use crate::recover::{LlvmValue, aborted, catch};

/// The passes that lower the dialects of the text to llvm. Rounding to bf16 is expanded to other
/// operations, because LLVM would call a function for it.
const PIPELINE: &str = "builtin.module(\
    arith-expand{include-bf16=true},\
    convert-scf-to-cf,\
    convert-vector-to-llvm,\
    convert-arith-to-llvm,\
    convert-func-to-llvm,\
    convert-cf-to-llvm,\
    reconcile-unrealized-casts)";

/// A context, and the diagnostics that it reported during the current compilation.
struct Session {
    context: Context,
    complaints: Rc<RefCell<Vec<String>>>,
}

thread_local! {
    // Creating a context takes milliseconds, so each thread that compiles keeps its own.
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

static PASSES: Once = Once::new();

impl Session {
    fn new() -> Session {
        PASSES.call_once(register_all_passes);
        let registry = DialectRegistry::new();
        register_all_dialects(&registry);
        let context = Context::new();
        context.append_dialect_registry(&registry);
        for dialect in ["arith", "cf", "func", "llvm", "scf", "vector"] {
            context.get_or_load_dialect(dialect);
        }
        // Kernels are compiled in parallel already, so MLIR's own threads would gain nothing.
        context.enable_multi_threading(false);
        register_all_llvm_translations(&context);
        let complaints = Rc::new(RefCell::new(Vec::new()));
        let heard = complaints.clone();
        context.attach_diagnostic_handler(move |diagnostic| {
            heard.borrow_mut().push(format!("{}: {diagnostic}", diagnostic.location()));
            true
        });
        Session { context, complaints }
    }
}

/// Runs `body` with this thread's context. If `body` fails, MLIR's diagnostics are added to its
/// error. If MLIR or LLVM aborted, the next compilation gets a new context.
pub fn with_context<T>(body: impl FnOnce(&Context) -> Result<T, String>) -> Result<T, String> {
    let session = SESSION.take().unwrap_or_else(Session::new);
    session.complaints.borrow_mut().clear();
    let session = LlvmValue::new(session);
    let result = body(&session.context).map_err(|what| {
        let said = session.complaints.borrow().join("\n  ");
        if said.is_empty() { what } else { format!("{what}\n  {said}") }
    });
    if !aborted() {
        SESSION.set(Some(session.take()));
    }
    result
}

/// Parses `text` and lowers it to the llvm dialect.
pub fn lower<'c>(context: &'c Context, text: &str) -> Result<LlvmValue<Module<'c>>, String> {
    let text = CString::new(text).map_err(|error| error.to_string())?;
    // SAFETY: the text and the context are live. We own the returned module, which may be null.
    let module = unsafe {
        let raw = context.to_raw();
        let text = MlirStringRef { data: text.as_ptr(), length: text.as_bytes().len() };
        Module::from_option_raw(catch(|| mlirModuleCreateParse(raw, text))?)
    };
    let module = LlvmValue::new(module.ok_or("MLIR cannot read a kernel")?);
    let whole = module.as_operation().to_raw();
    // SAFETY: the module is live.
    if !catch(|| unsafe { mlirOperationVerify(whole) })? {
        return Err("MLIR finds a kernel invalid".into());
    }
    let passes = LlvmValue::new(PassManager::new(context));
    parse_pass_pipeline(passes.as_operation_pass_manager(), PIPELINE)
        .map_err(|error| format!("the pipeline of MLIR: {error}"))?;
    let manager = passes.to_raw();
    // SAFETY: the manager and the module are live.
    let done = catch(|| unsafe { mlirPassManagerRunOnOp(manager, whole) })?;
    match done.value {
        0 => Err("MLIR cannot lower a kernel".into()),
        _ => Ok(module),
    }
}
