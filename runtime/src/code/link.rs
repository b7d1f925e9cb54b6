//! Copies the sections of an object into the region and applies their relocations.

use super::layout::{Header, LITTLE, Layout, Object};
use super::region::Region;
use super::x86_64::{self, Form, STUB};
use super::{EXTERNAL, Error};
use object::elf;
use object::read::SymbolIndex;
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use std::collections::HashMap;
use std::ops::Range;

type Relocation = <Header as FileHeader>::Rela;

/// Copies the contents of sections, and writes the stubs for external symbols.
pub fn fill(object: &Object, layout: &Layout, memory: &mut [u8]) -> Result<(), Error> {
    for (section, range) in object.sections.iter().zip(&layout.ranges) {
        let Some(range) = range else { continue };
        let data = section.data(LITTLE, object.bytes)?;
        // Sections without data (`.bss`) stay zero. Others have data of their size.
        memory[range.clone()][..data.len()].copy_from_slice(data);
    }
    let functions =
        [libc::memcpy as *const (), libc::memmove as *const (), libc::memset as *const ()];
    for (function, stub) in functions.iter().zip(memory[layout.stubs..].chunks_exact_mut(STUB)) {
        stub.copy_from_slice(&x86_64::stub(function.addr() as u64));
    }
    Ok(())
}

/// Applies all relocations of the loaded sections.
pub fn relocate(object: &Object, layout: &Layout, region: &mut Region) -> Result<(), Error> {
    for section in object.sections.iter() {
        let target = section.sh_info(LITTLE) as usize;
        let range = match section.sh_type(LITTLE) {
            elf::SHT_RELA | elf::SHT_REL | elf::SHT_CREL => layout.range_of(target),
            _ => continue,
        };
        let Some(range) = range else { continue };
        let Some((relocations, _)) = section.rela(LITTLE, object.bytes)? else {
            return Err(Error::Unsupported(object.section_name(section)));
        };
        let base = region.as_ptr().addr();
        let mut binding = Binding { object, layout, base, memory: region.as_mut_slice() };
        for relocation in relocations {
            binding.apply(relocation, &range, target)?;
        }
    }
    Ok(())
}

/// The table of addresses, which compilers may name and which every linker makes itself.
const ADDRESS_TABLE: &str = "_GLOBAL_OFFSET_TABLE_";

/// Checks that an object uses no symbols but its own and those of [`EXTERNAL`].
pub fn check(object: &Object) -> Result<(), Error> {
    // The first symbol is empty.
    for symbol in object.symbols.iter().skip(1).filter(|symbol| symbol.is_undefined(LITTLE)) {
        let name = name(object, symbol);
        if name != ADDRESS_TABLE && !EXTERNAL.contains(&&*name) {
            return Err(Error::Undefined(name));
        }
    }
    Ok(())
}

/// The exported symbols, and their offsets in the region.
pub fn exports(object: &Object, layout: &Layout) -> Result<HashMap<String, usize>, Error> {
    let mut exports = HashMap::new();
    for (index, symbol) in object.symbols.enumerate() {
        if symbol.is_local() {
            continue;
        }
        if let Some(offset) = offset(object, layout, index, symbol)? {
            exports.insert(name(object, symbol), offset);
        }
    }
    Ok(exports)
}

fn name(object: &Object, symbol: &elf::Sym64<object::LittleEndian>) -> String {
    let name = object.symbols.symbol_name(LITTLE, symbol).unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// The offset of a symbol in the region; none if it is not in a loaded section.
fn offset(
    object: &Object,
    layout: &Layout,
    index: SymbolIndex,
    symbol: &elf::Sym64<object::LittleEndian>,
) -> Result<Option<usize>, Error> {
    let section = object.symbols.symbol_section(LITTLE, symbol, index)?;
    let Some(range) = section.and_then(|section| layout.range_of(section.0)) else {
        return Ok(None);
    };
    match usize::try_from(symbol.st_value(LITTLE)) {
        // A symbol may name the end of a section.
        Ok(value) if value <= range.len() => Ok(Some(range.start + value)),
        _ => {
            Err(Error::Damaged(format!("symbol {} lies outside its section", name(object, symbol))))
        }
    }
}

/// The object and memory that relocations are applied to.
struct Binding<'a> {
    object: &'a Object<'a>,
    layout: &'a Layout,
    /// The address of `memory`.
    base: usize,
    memory: &'a mut [u8],
}

impl Binding<'_> {
    fn apply(
        &mut self,
        relocation: &Relocation,
        range: &Range<usize>,
        section: usize,
    ) -> Result<(), Error> {
        let kind = relocation.r_type(LITTLE, false);
        if kind == elf::R_X86_64_NONE {
            return Ok(());
        }
        let form = x86_64::form(kind)
            .ok_or_else(|| Error::Unsupported(format!("relocation of type {kind}")))?;
        let index = SymbolIndex(relocation.r_sym(LITTLE, false) as usize);
        let at = field(form, relocation.r_offset(LITTLE), range)
            .ok_or_else(|| Error::Damaged("a relocation lies outside its section".into()))?;
        let mut address = self.address(index)?;
        if form.by_table {
            let entry = self.layout.addresses + index.0 * 8;
            self.memory[entry..entry + 8].copy_from_slice(&address.to_le_bytes());
            address = (self.base + entry) as u64;
        }
        // Intermediate addresses may wrap around: only the final value must fit.
        let value = (address as i64).wrapping_add(relocation.r_addend(LITTLE));
        let from = if form.relative { self.base + at.start } else { 0 };
        if form.field.write(&mut self.memory[at], value.wrapping_sub(from as i64)) {
            return Ok(());
        }
        let section = self.object.sections.section(object::SectionIndex(section))?;
        Err(Error::Range {
            symbol: name(self.object, self.object.symbols.symbol(index)?),
            section: self.object.section_name(section),
            offset: relocation.r_offset(LITTLE),
        })
    }

    /// The address of a symbol. An external one resolves to its stub, which code can reach.
    fn address(&self, index: SymbolIndex) -> Result<u64, Error> {
        let symbol = self.object.symbols.symbol(index)?;
        let name = || name(self.object, symbol);
        if symbol.is_absolute(LITTLE) {
            return Ok(symbol.st_value(LITTLE));
        }
        if symbol.is_undefined(LITTLE) {
            let external = EXTERNAL.iter().position(|e| *e == name());
            let external = external.ok_or_else(|| Error::Undefined(name()))?;
            return Ok((self.base + self.layout.stubs + external * STUB) as u64);
        }
        if matches!(symbol.st_type(), elf::STT_TLS | elf::STT_GNU_IFUNC) {
            return Err(Error::Unsupported(format!("symbol {}", name())));
        }
        let offset = offset(self.object, self.layout, index, symbol)?;
        let offset = offset.ok_or_else(|| {
            Error::Unsupported(format!("symbol {} lies in no section of code or data", name()))
        })?;
        Ok((self.base + offset) as u64)
    }
}

/// The bytes of the region that a relocation writes; none if they exceed the section.
fn field(form: Form, offset: u64, range: &Range<usize>) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(form.field.bytes())?;
    (end <= range.len()).then(|| range.start + start..range.start + end)
}
