//! Replaces masked stores of a single lane by scalar stores.

use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::values::{BasicValueEnum, CallSiteValue, InstructionValue, IntValue, VectorValue};

/// Replaces each masked store whose constant mask has exactly one lane by a store of that lane.
/// This works around a bug of LLVM 22 for AVX-512: it stores the lane of a truncated vector with
/// the width before the truncation, which overwrites the memory after it.
pub fn store_lanes(module: &Module, context: &Context) -> Result<(), BuilderError> {
    let builder = context.create_builder();
    for block in module.get_functions().flat_map(|function| function.get_basic_blocks()) {
        let stores: Vec<_> = block.get_instructions().filter(|i| is_masked_store(*i)).collect();
        for store in stores {
            if let Some(lane) = only_lane(store) {
                store_lane(&builder, store, lane)?;
                store.erase_from_basic_block();
            }
        }
    }
    Ok(())
}

fn is_masked_store(instruction: InstructionValue) -> bool {
    let called = CallSiteValue::try_from(instruction).ok().and_then(|c| c.get_called_fn_value());
    called.is_some_and(|f| f.get_name().to_bytes().starts_with(b"llvm.masked.store."))
}

fn vector(call: InstructionValue<'_>, operand: u32) -> Option<VectorValue<'_>> {
    match call.get_operand(operand)?.value()? {
        BasicValueEnum::VectorValue(vector) => Some(vector),
        _ => None,
    }
}

/// The lane that a masked store writes, if its mask is constant and has exactly one.
fn only_lane(store: InstructionValue<'_>) -> Option<IntValue<'_>> {
    let mask = vector(store, 2).filter(|mask| mask.is_const())?;
    let ty = mask.get_type();
    let index = ty.get_context().i32_type();
    let lanes = (0..ty.get_size()).map(|lane| index.const_int(lane.into(), false));
    let is_set = |lane: &IntValue| {
        mask.const_extract_element(*lane).into_int_value().get_zero_extended_constant() == Some(1)
    };
    let mut set = lanes.filter(is_set);
    set.next().filter(|_| set.next().is_none())
}

fn store_lane<'c>(
    builder: &Builder<'c>,
    store: InstructionValue<'c>,
    lane: IntValue<'c>,
) -> Result<(), BuilderError> {
    let (Some(value), Some(BasicValueEnum::PointerValue(to))) =
        (vector(store, 0), store.get_operand(1).and_then(|to| to.value()))
    else {
        return Ok(());
    };
    builder.position_before(&store);
    let element = builder.build_extract_element(value, lane, "")?;
    // SAFETY: the masked store writes to the same address.
    let to = unsafe { builder.build_gep(element.get_type(), to, &[lane], "")? };
    builder.build_store(to, element)?;
    Ok(())
}
