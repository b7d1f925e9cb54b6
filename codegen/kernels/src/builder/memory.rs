//! Declares the memory of a kernel, and emits loads and stores.

use mithril_ir::dtype::DType;

use super::Builder;
use crate::code::{Inst, Mem, Memory, Place, Ty, V};
use crate::scalar::stored;

impl Builder {
    /// Declares buffer number `n` of the launch.
    pub fn buffer(&mut self, n: usize, dtype: DType, constant: bool) -> Mem {
        self.memory(Memory { dtype, place: Place::Buffer(n as u32), constant })
    }

    /// Declares scratch memory of the thread, from byte `offset` on.
    pub fn scratch(&mut self, dtype: DType, offset: V) -> Mem {
        self.memory(Memory { dtype, place: Place::Scratch(offset), constant: false })
    }

    /// Declares a local array. Only for code for C.
    pub fn local(&mut self, dtype: DType, count: i64) -> Mem {
        self.memory(Memory { dtype, place: Place::Local(count as u32), constant: false })
    }

    fn memory(&mut self, mut memory: Memory) -> Mem {
        self.elements.push(memory.dtype);
        if !self.source().calls {
            memory.dtype = stored(memory.dtype);
        }
        self.code.memories.push(memory);
        Mem(self.code.memories.len() as u32 - 1)
    }

    /// The dtype of a memory's elements.
    pub fn mem_dtype(&self, mem: Mem) -> DType {
        self.elements[mem.0 as usize]
    }

    /// The dtype in which a memory's elements are loaded and stored.
    fn access(&self, mem: Mem) -> DType {
        self.code.memories[mem.0 as usize].dtype
    }

    pub fn load(&mut self, mem: Mem, at: V, lanes: u32, mask: Option<V>) -> V {
        let ty = Ty { dtype: self.access(mem), lanes };
        self.push(ty, Inst::Load { mem, at, mask })
    }

    pub fn store(&mut self, mem: Mem, at: V, value: V, mask: Option<V>) {
        debug_assert_eq!(self.ty(value).dtype, self.access(mem));
        self.place(vec![], Inst::Store { mem, at, value, mask, streaming: false });
    }

    /// A streaming store of a vector to memory that is aligned to its size.
    pub fn stream(&mut self, mem: Mem, at: V, value: V) {
        debug_assert_eq!(self.ty(value).dtype, self.access(mem));
        self.place(vec![], Inst::Store { mem, at, value, mask: None, streaming: true });
        self.code.streams = true;
    }

    pub fn gather(&mut self, mem: Mem, at: V, mask: Option<V>) -> V {
        let ty = self.ty(at).with(self.access(mem));
        self.push(ty, Inst::Gather { mem, at, mask })
    }

    pub fn scatter(&mut self, mem: Mem, at: V, value: V, mask: Option<V>) {
        self.place(vec![], Inst::Scatter { mem, at, value, mask });
    }

    pub fn prefetch(&mut self, mem: Mem, at: V, write: bool) {
        self.place(vec![], Inst::Prefetch { mem, at, write });
    }
}
