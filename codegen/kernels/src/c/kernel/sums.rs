//! Finds sums and products of signed integers that loops carry. They wrap, so their variables are
//! unsigned. Signed variables that are converted in each iteration are miscompiled by GCC 12.2,
//! which loses lanes of such sums (GCC bug 107212).

use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::code::{Binary, Callee, Code, Inst, Stmt, V};

/// Returns the loop parameters and loop results that are such sums and products.
pub fn wrapping(code: &Code) -> FxHashSet<V> {
    let mut found = FxHashSet::default();
    note(code, &code.body, &mut found);
    found
}

fn note(code: &Code, body: &[Stmt], found: &mut FxHashSet<V>) {
    for stmt in body {
        match &stmt.inst {
            Inst::For { region, .. } => {
                note(code, &region.body, found);
                let insts = region.body.iter().map(|own| (own.results.first(), &own.inst));
                let insts: FxHashMap<Option<&V>, &Inst> = insts.collect();
                for (i, next) in region.yields.iter().enumerate() {
                    let wraps = insts.get(&Some(next)).is_some_and(|inst| wraps(code, *next, inst));
                    if wraps || found.contains(next) {
                        found.extend([region.params[i + 1], stmt.results[i]]);
                    }
                }
            }
            Inst::If { yes, no, .. } => {
                note(code, &yes.body, found);
                note(code, &no.body, found);
            }
            _ => {}
        }
    }
}

/// Whether a signed value is computed with unsigned arithmetic.
fn wraps(code: &Code, v: V, inst: &Inst) -> bool {
    let dtype = code.ty(v).dtype;
    dtype.is_signed_int()
        && match inst {
            // 64-bit integers are indices, which do not overflow.
            Inst::Binary(op, ..) => {
                matches!(op, Binary::Add | Binary::Sub | Binary::Mul) && dtype != DType::I64
            }
            Inst::Call(Callee::Prim(prim), _) => {
                matches!(prim, Prim::Add | Prim::Sub | Prim::Mul)
            }
            _ => false,
        }
}

/// The unsigned type of the same width.
pub fn unsigned_type(dtype: DType) -> &'static str {
    match dtype.bits() {
        64 => "uint64_t",
        32 => "uint32_t",
        16 => "uint16_t",
        _ => "uint8_t",
    }
}
