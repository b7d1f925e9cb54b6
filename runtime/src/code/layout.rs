//! Parses an object and assigns its sections offsets in a memory region.

use super::region::page;
use super::x86_64::STUB;
use super::{EXTERNAL, Error};
use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, SymbolTable};
use std::ops::Range;

pub type Header = elf::FileHeader64<LittleEndian>;
pub const LITTLE: LittleEndian = LittleEndian;

/// The maximum size of a region in bytes, so that code of the small code model reaches all of it.
const MAX_REGION: usize = 1 << 30;

/// A parsed object.
pub struct Object<'a> {
    pub bytes: &'a [u8],
    /// ELF's number of the architecture.
    machine: u16,
    pub sections: SectionTable<'a, Header>,
    pub symbols: SymbolTable<'a, Header>,
}

impl<'a> Object<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Object<'a>, Error> {
        let header = Header::parse(bytes)?;
        let little = header.endian()?;
        if header.e_type(little) != elf::ET_REL {
            return Err(Error::Unsupported("it is not relocatable".into()));
        }
        let sections = header.sections(little, bytes)?;
        let symbols = sections.symbols(little, bytes, elf::SHT_SYMTAB)?;
        Ok(Object { bytes, machine: header.e_machine(little), sections, symbols })
    }

    /// Whether this process can run its code.
    pub fn is_for_this_machine(&self) -> bool {
        self.machine == elf::EM_X86_64 && cfg!(target_arch = "x86_64")
    }

    /// The name of a section, for messages and for sections that are recognised by name.
    pub fn section_name(&self, section: &elf::SectionHeader64<LittleEndian>) -> String {
        let name = self.sections.section_name(LITTLE, section).unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// The layout of the region, as offsets in bytes. Each segment starts at a page boundary.
pub struct Layout {
    pub bytes: usize,
    /// Code and the stubs for external symbols; becomes executable.
    pub text: Range<usize>,
    /// Data that is read-only after relocation, and the table of addresses.
    pub constants: Range<usize>,
    /// The offset of the stubs: one jump for each symbol of `EXTERNAL`.
    pub stubs: usize,
    /// The offset of the table of addresses (GOT), with an entry of eight bytes for each symbol.
    pub addresses: usize,
    /// The range of each section, by section index; none for sections that code does not need.
    pub ranges: Vec<Option<Range<usize>>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Segment {
    Text,
    Constants,
    Data,
}

impl Layout {
    pub fn of(object: &Object) -> Result<Layout, Error> {
        let mut end = 0;
        let mut ranges = vec![None; object.sections.len()];
        let text = section_ranges(object, Segment::Text, &mut end, &mut ranges)?;
        let stubs = reserve(&mut end, 16, EXTERNAL.len() * STUB)?;
        let text = text..pages(&mut end)?;
        let start = section_ranges(object, Segment::Constants, &mut end, &mut ranges)?;
        let addresses = reserve(&mut end, 8, object.symbols.len().saturating_mul(8))?;
        let constants = start..pages(&mut end)?;
        section_ranges(object, Segment::Data, &mut end, &mut ranges)?;
        let bytes = pages(&mut end)?;
        Ok(Layout { bytes, text, constants, stubs, addresses, ranges })
    }

    /// The range of a section; none if the section is not loaded.
    pub fn range_of(&self, section: usize) -> Option<Range<usize>> {
        self.ranges.get(section)?.clone()
    }
}

/// Places the sections of one segment from `end` on, and returns the offset where they begin.
fn section_ranges(
    object: &Object,
    of: Segment,
    end: &mut usize,
    ranges: &mut [Option<Range<usize>>],
) -> Result<usize, Error> {
    let begin = *end;
    for (index, section) in object.sections.enumerate() {
        if segment_of(object, section)? != Some(of) {
            continue;
        }
        let name = || object.section_name(section);
        let damaged = |what| Error::Damaged(format!("the {what} of section {}", name()));
        let align = usize::try_from(section.sh_addralign(LITTLE)).unwrap_or(0).max(1);
        if !align.is_power_of_two() || align > page() {
            return Err(damaged("alignment"));
        }
        let bytes = usize::try_from(section.sh_size(LITTLE)).map_err(|_| damaged("size"))?;
        let start = reserve(end, align, bytes)?;
        ranges[index.0] = Some(start..*end);
    }
    Ok(begin)
}

/// The segment that a section goes to; none for sections that code does not need.
fn segment_of(
    object: &Object,
    section: &elf::SectionHeader64<LittleEndian>,
) -> Result<Option<Segment>, Error> {
    let (kind, flags) = (section.sh_type(LITTLE), section.sh_flags(LITTLE));
    let has = |flag: u32| flags & u64::from(flag) != 0;
    let name = object.section_name(section);
    // Kernels do not unwind, so unwind tables are not loaded.
    let unwind = kind == elf::SHT_X86_64_UNWIND || name == ".eh_frame";
    if !has(elf::SHF_ALLOC) || kind == elf::SHT_NOTE || unwind {
        return Ok(None);
    }
    let plain = matches!(kind, elf::SHT_PROGBITS | elf::SHT_NOBITS);
    if !plain || has(elf::SHF_TLS) || has(elf::SHF_COMPRESSED) {
        return Err(Error::Unsupported(format!("section {name}")));
    }
    Ok(Some(if has(elf::SHF_EXECINSTR) {
        Segment::Text
    } else if has(elf::SHF_WRITE) && !name.starts_with(".data.rel.ro") {
        Segment::Data
    } else {
        Segment::Constants
    }))
}

/// Reserves `bytes` aligned bytes from `end` on: advances `end`, and returns their offset.
fn reserve(end: &mut usize, align: usize, bytes: usize) -> Result<usize, Error> {
    let start = end.next_multiple_of(align);
    match start.checked_add(bytes) {
        Some(after) if after <= MAX_REGION => {
            *end = after;
            Ok(start)
        }
        _ => Err(Error::Unsupported(format!("more than {MAX_REGION} bytes"))),
    }
}

fn pages(end: &mut usize) -> Result<usize, Error> {
    reserve(end, page(), 0)?;
    *end = end.next_multiple_of(page());
    Ok(*end)
}
