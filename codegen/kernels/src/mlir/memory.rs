//! Loads and stores: addresses, masks, and dtypes that memory holds in another form than registers.

use std::fmt::Write;

use mithril_ir::dtype::DType;

use super::words::{Mlir, in_memory};
use super::{Printer, line};
use crate::code::{Mem, Place, Ty, V};

impl Printer<'_> {
    pub fn address(&mut self, mem: Mem, at: V) -> String {
        let memory = self.code.memories[mem.0 as usize];
        let base = match memory.place {
            Place::Buffer(n) => format!("%b{n}"),
            Place::Scratch(offset) => {
                let (base, offset) = (self.fresh(), self.name(offset));
                line!(
                    self,
                    "{base} = llvm.getelementptr %scratch[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
                );
                base
            }
            Place::Local(_) => unreachable!("kernels in a language are printed as C"),
        };
        let element = Mlir(Ty::scalar(in_memory(memory.dtype)));
        let (at, index) = (self.name(at), Mlir(self.code.ty(at)));
        let pointers = match index.0.lanes {
            1 => "!llvm.ptr".to_string(),
            n => format!("vector<{n}x!llvm.ptr>"),
        };
        let pointer = self.fresh();
        line!(
            self,
            "{pointer} = llvm.getelementptr {base}[{at}] : (!llvm.ptr, {index}) -> {pointers}, {element}"
        );
        pointer
    }

    /// The name and the type of a loaded value before it is converted to the result's type.
    pub fn raw(&mut self, result: V) -> (String, Ty) {
        let ty = self.code.ty(result);
        let held = ty.with(in_memory(ty.dtype));
        if held == ty { (self.name(result), ty) } else { (self.fresh(), held) }
    }

    pub fn narrowed(&mut self, result: V, raw: &str, held: Ty) {
        let ty = self.code.ty(result);
        if ty != held {
            let r = self.name(result);
            let name = if ty.dtype == DType::Bool { "trunci" } else { "bitcast" };
            line!(self, "{r} = arith.{name} {raw} : {} to {}", Mlir(held), Mlir(ty));
        }
    }

    pub fn widened(&mut self, value: V) -> (String, Ty) {
        let ty = self.code.ty(value);
        let held = ty.with(in_memory(ty.dtype));
        if held == ty {
            return (self.name(value), ty);
        }
        let raw = self.fresh();
        let name = if ty.dtype == DType::Bool { "extui" } else { "bitcast" };
        line!(self, "{raw} = arith.{name} {} : {} to {}", self.name(value), Mlir(ty), Mlir(held));
        (raw, held)
    }

    pub fn load(&mut self, result: V, mem: Mem, at: V, mask: Option<V>) {
        let pointer = self.address(mem, at);
        let (raw, held) = self.raw(result);
        let (t, alignment) = (Mlir(held), held.dtype.bytes());
        match mask {
            None => line!(
                self,
                "{raw} = llvm.load {pointer} {{alignment = {alignment} : i64}} : !llvm.ptr -> {t}"
            ),
            Some(mask) => {
                let zero = self.splat_literal(held, 0);
                let (mask, bools) = (self.name(mask), Mlir(held.with(DType::Bool)));
                line!(
                    self,
                    "{raw} = llvm.intr.masked.load {pointer}, {mask}, {zero} {{alignment = {alignment} \
                     : i32}} : (!llvm.ptr, {bools}, {t}) -> {t}"
                );
            }
        }
        self.narrowed(result, &raw, held);
    }

    pub fn store(&mut self, mem: Mem, at: V, value: V, mask: Option<V>, streaming: bool) {
        let pointer = self.address(mem, at);
        let (raw, held) = self.widened(value);
        let (t, bytes) = (Mlir(held), held.dtype.bytes());
        match mask {
            None if streaming => {
                let alignment = bytes * held.lanes as usize;
                line!(
                    self,
                    "llvm.store {raw}, {pointer} {{alignment = {alignment} : i64, nontemporal}} : \
                     {t}, !llvm.ptr"
                );
            }
            None => {
                line!(
                    self,
                    "llvm.store {raw}, {pointer} {{alignment = {bytes} : i64}} : {t}, !llvm.ptr"
                );
            }
            Some(mask) => {
                let (mask, bools) = (self.name(mask), Mlir(held.with(DType::Bool)));
                line!(
                    self,
                    "llvm.intr.masked.store {raw}, {pointer}, {mask} {{alignment = {bytes} : i32}} : \
                     {t}, {bools} into !llvm.ptr"
                );
            }
        }
    }

    pub fn all_lanes(&mut self, lanes: u32) -> String {
        self.splat_literal(Ty::vector(DType::Bool, lanes), 1)
    }

    pub fn gather(&mut self, result: V, mem: Mem, at: V, mask: Option<V>) {
        let pointers = self.address(mem, at);
        let (raw, held) = self.raw(result);
        let mask = match mask {
            Some(mask) => self.name(mask),
            None => self.all_lanes(held.lanes),
        };
        let zero = self.splat_literal(held, 0);
        let (t, bools, n) = (Mlir(held), Mlir(held.with(DType::Bool)), held.lanes);
        line!(
            self,
            "{raw} = llvm.intr.masked.gather {pointers}, {mask}, {zero} {{alignment = {} : i32}} : \
             (vector<{n}x!llvm.ptr>, {bools}, {t}) -> {t}",
            held.dtype.bytes()
        );
        self.narrowed(result, &raw, held);
    }

    pub fn scatter(&mut self, mem: Mem, at: V, value: V, mask: Option<V>) {
        let pointers = self.address(mem, at);
        let (raw, held) = self.widened(value);
        let mask = match mask {
            Some(mask) => self.name(mask),
            None => self.all_lanes(held.lanes),
        };
        let (t, bools, n) = (Mlir(held), Mlir(held.with(DType::Bool)), held.lanes);
        line!(
            self,
            "llvm.intr.masked.scatter {raw}, {pointers}, {mask} {{alignment = {} : i32}} : {t}, \
             {bools} into vector<{n}x!llvm.ptr>",
            held.dtype.bytes()
        );
    }
}
