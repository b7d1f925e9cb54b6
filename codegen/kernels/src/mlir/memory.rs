//! Prints loads and stores. Some dtypes have another representation in memory than in registers.

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
            Place::Local(_) => unreachable!("code for C is not printed as MLIR"),
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

    /// Returns the name and the type of a loaded value before its conversion to the result's type.
    pub fn raw(&mut self, result: V) -> (String, Ty) {
        let ty = self.code.ty(result);
        let memory_type = ty.with(in_memory(ty.dtype));
        if memory_type == ty { (self.name(result), ty) } else { (self.fresh(), memory_type) }
    }

    pub fn narrowed(&mut self, result: V, raw: &str, memory_type: Ty) {
        let ty = self.code.ty(result);
        if ty != memory_type {
            let r = self.name(result);
            let name = if ty.dtype == DType::Bool { "trunci" } else { "bitcast" };
            line!(self, "{r} = arith.{name} {raw} : {} to {}", Mlir(memory_type), Mlir(ty));
        }
    }

    pub fn widened(&mut self, value: V) -> (String, Ty) {
        let ty = self.code.ty(value);
        let memory_type = ty.with(in_memory(ty.dtype));
        if memory_type == ty {
            return (self.name(value), ty);
        }
        let raw = self.fresh();
        let name = if ty.dtype == DType::Bool { "extui" } else { "bitcast" };
        line!(
            self,
            "{raw} = arith.{name} {} : {} to {}",
            self.name(value),
            Mlir(ty),
            Mlir(memory_type)
        );
        (raw, memory_type)
    }

    pub fn load(&mut self, result: V, mem: Mem, at: V, mask: Option<V>) {
        let pointer = self.address(mem, at);
        let (raw, memory_type) = self.raw(result);
        let (t, alignment) = (Mlir(memory_type), memory_type.dtype.bytes());
        match mask {
            None => line!(
                self,
                "{raw} = llvm.load {pointer} {{alignment = {alignment} : i64}} : !llvm.ptr -> {t}"
            ),
            Some(mask) => {
                let zero = self.splat_literal(memory_type, 0);
                let (mask, bools) = (self.name(mask), Mlir(memory_type.with(DType::Bool)));
                line!(
                    self,
                    "{raw} = llvm.intr.masked.load {pointer}, {mask}, {zero} {{alignment = {alignment} \
                     : i32}} : (!llvm.ptr, {bools}, {t}) -> {t}"
                );
            }
        }
        self.narrowed(result, &raw, memory_type);
    }

    pub fn store(&mut self, mem: Mem, at: V, value: V, mask: Option<V>, streaming: bool) {
        let pointer = self.address(mem, at);
        let (raw, memory_type) = self.widened(value);
        let (t, bytes) = (Mlir(memory_type), memory_type.dtype.bytes());
        match mask {
            None if streaming => {
                let alignment = bytes * memory_type.lanes as usize;
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
                let (mask, bools) = (self.name(mask), Mlir(memory_type.with(DType::Bool)));
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
        let (raw, memory_type) = self.raw(result);
        let mask = match mask {
            Some(mask) => self.name(mask),
            None => self.all_lanes(memory_type.lanes),
        };
        let zero = self.splat_literal(memory_type, 0);
        let (t, bools, n) =
            (Mlir(memory_type), Mlir(memory_type.with(DType::Bool)), memory_type.lanes);
        line!(
            self,
            "{raw} = llvm.intr.masked.gather {pointers}, {mask}, {zero} {{alignment = {} : i32}} : \
             (vector<{n}x!llvm.ptr>, {bools}, {t}) -> {t}",
            memory_type.dtype.bytes()
        );
        self.narrowed(result, &raw, memory_type);
    }

    pub fn scatter(&mut self, mem: Mem, at: V, value: V, mask: Option<V>) {
        let pointers = self.address(mem, at);
        let (raw, memory_type) = self.widened(value);
        let mask = match mask {
            Some(mask) => self.name(mask),
            None => self.all_lanes(memory_type.lanes),
        };
        let (t, bools, n) =
            (Mlir(memory_type), Mlir(memory_type.with(DType::Bool)), memory_type.lanes);
        line!(
            self,
            "llvm.intr.masked.scatter {raw}, {pointers}, {mask} {{alignment = {} : i32}} : {t}, \
             {bools} into vector<{n}x!llvm.ptr>",
            memory_type.dtype.bytes()
        );
    }
}
