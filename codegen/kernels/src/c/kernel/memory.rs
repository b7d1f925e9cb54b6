//! Memory: declarations, loads and stores.

use mithril_ir::dtype::DType;

use super::Printer;
use crate::c::expression::{Expr, Level, variable_type};
use crate::code::{Mem, Place, V};
use crate::entry::c_type;

impl Printer<'_> {
    /// Names buffers and local arrays. Scratch memory is named later, when its offset has been
    /// computed.
    pub fn place_memories(&mut self) {
        for at in 0..self.code.memories.len() {
            let memory = self.code.memories[at];
            if !self.usage.memories.contains(&Mem(at as u32)) {
                continue;
            }
            match memory.place {
                Place::Buffer(n) => {
                    self.memories[at] = Some(self.names.buffers[n as usize].clone())
                }
                Place::Local(count) => {
                    let mut names = self.code.names.iter();
                    let own = names.find(|(mem, _)| mem.0 as usize == at);
                    let name = self.name(own.map_or("sums", |(_, name)| name));
                    self.line(&format!("{} {name}[{count}];", variable_type(memory.dtype)));
                    self.memories[at] = Some(name);
                }
                Place::Scratch(_) => {}
            }
        }
    }

    pub fn place_scratch(&mut self) {
        for at in 0..self.code.memories.len() {
            let memory = self.code.memories[at];
            let (Place::Scratch(offset), None) = (memory.place, &self.memories[at]) else {
                continue;
            };
            if !self.usage.memories.contains(&Mem(at as u32)) {
                continue;
            }
            let Some(expr) = self.values[offset.0 as usize].clone() else { continue };
            self.scratch = true;
            let (name, ty) = (self.name("temporary"), c_type(memory.dtype));
            let place = match expr.text.as_str() {
                "0" => format!("({ty} *)scratch"),
                _ => format!("({ty} *)((char *)scratch + {})", expr.at(Level::Product)),
            };
            self.line(&format!("{ty} *const {name} = {place};"));
            self.memories[at] = Some(name);
        }
    }

    pub fn element(&mut self, mem: Mem, at: V) -> Expr {
        let memory = self.code.memories[mem.0 as usize];
        if let Place::Buffer(n) = memory.place {
            self.buffers.insert(n as usize);
        }
        let at = self.take(at);
        let name = self.memories[mem.0 as usize].clone().unwrap_or_default();
        let element = Expr::atom(format!("{name}[{}]", at.text)).reading(true);
        match memory.dtype {
            DType::Bool => {
                let zero = Expr::atom("0");
                Expr::binary(&element, "!=", &zero, Level::Comparison)
            }
            _ => element,
        }
    }

    pub fn store(&mut self, mem: Mem, at: V, value: V, mask: Option<V>) {
        let value = self.take(value);
        let element = self.element(mem, at);
        let element = element.text.trim_end_matches(" != 0").to_string();
        let mask = mask.map(|mask| self.take(mask));
        self.flush(false);
        let store = format!("{element} = {};", value.text);
        match mask {
            Some(mask) => self.line(&format!("if ({}) {store}", mask.text)),
            None => self.line(&store),
        }
    }
}
