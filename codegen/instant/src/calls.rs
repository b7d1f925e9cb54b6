//! The private functions of a kernel, and calls of them. Arguments and results are passed in a
//! stack slot of the caller: calls are rare, and Cranelift returns only a few vectors in registers.

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, Function, InstBuilder, MemFlags, Signature, StackSlotData,
    StackSlotKind, Type, UserExternalName, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_codegen::{FinalizedMachReloc, FinalizedRelocTarget};
use mithril_kernels::code::{Region, V};

use crate::representation::PIECE;
use crate::translator::Translator;
use crate::{Result, unsupported};

/// The signature of a private function. Its parameter is the address of a frame that holds the
/// arguments and receives the results.
pub fn signature() -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params = vec![AbiParam::new(I64)];
    signature
}

/// The offset in bytes of value number `index` in a frame. Each value has room for a piece.
fn frame_offset(index: usize) -> i32 {
    index as i32 * PIECE as i32
}

impl Translator<'_> {
    /// Emits the body of a function whose arguments are at `frame`. Its results are stored there
    /// too.
    pub fn function(&mut self, function: &Region, frame: Value) -> Result<()> {
        self.load_values(&function.params, frame)?;
        self.block(&function.body)?;
        let results = self.flat_all(&function.yields)?;
        self.store_values(&results, frame);
        Ok(())
    }

    /// Loads these values from `frame`.
    fn load_values(&mut self, values: &[V], frame: Value) -> Result<()> {
        let types = self.flat_all_types(values)?.into_iter().enumerate();
        let load = |(i, ty): (usize, Type)| {
            self.b.ins().load(ty, MemFlags::trusted(), frame, frame_offset(i))
        };
        let loaded: Vec<Value> = types.map(load).collect();
        self.set_all(values, &loaded)
    }

    fn store_values(&mut self, values: &[Value], frame: Value) {
        for (i, &value) in values.iter().enumerate() {
            self.b.ins().store(MemFlags::trusted(), value, frame, frame_offset(i));
        }
    }

    pub fn call(&mut self, results: &[V], number: u32, args: &[V]) -> Result<()> {
        let args = self.flat_all(args)?;
        let size = frame_offset(args.len().max(self.flat_all_types(results)?.len())) as u32;
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, size, PIECE.ilog2() as u8);
        let slot = self.b.create_sized_stack_slot(slot);
        let frame = self.b.ins().stack_addr(I64, slot, 0);
        self.store_values(&args, frame);
        let name = UserExternalName::new(0, number);
        let name = ExternalName::User(self.b.func.declare_imported_user_function(name));
        let signature = self.b.import_signature(signature());
        let callee = ExtFuncData { name, signature, colocated: true };
        let callee = self.b.import_function(callee);
        self.b.ins().call(callee, &[frame]);
        self.load_values(results, frame)
    }
}

/// A call in finished code: the offset of the operand that names its target, and the function that
/// it calls.
pub struct Call {
    pub at: usize,
    pub function: usize,
    addend: i64,
}

impl Call {
    /// Reads a relocation in the code of a function, which begins at `start`, as a call.
    ///
    /// # Errors
    /// [`crate::Unsupported`] if the relocation is not a call.
    pub fn of(reloc: &FinalizedMachReloc, function: &Function, start: usize) -> Result<Call> {
        match (reloc.kind, &reloc.target) {
            (
                Reloc::X86CallPCRel4,
                FinalizedRelocTarget::ExternalName(ExternalName::User(name)),
            ) => {
                let number = function.params.user_named_funcs()[*name].index as usize;
                Ok(Call {
                    at: start + reloc.offset as usize,
                    function: number,
                    addend: reloc.addend,
                })
            }
            (_, target) => unsupported(format!("{target:?}")),
        }
    }

    /// Writes the distance to the called function, which begins at `to`, into `code`.
    pub fn resolve(&self, code: &mut [u8], to: usize) {
        let distance = to as i64 - self.at as i64 + self.addend;
        code[self.at..self.at + 4].copy_from_slice(&(distance as i32).to_le_bytes());
    }
}
