//! Object files of a library: kernels with unique symbols, and constants.

use mithril_kernels::host::Architecture;
use mithril_kernels::program::Constant;
use mithril_runtime::align::ALIGN;
use object::build::elf::{Builder, SectionData};
use object::elf::{SHT_STRTAB, STV_HIDDEN};
use object::write::{self, SectionId, Symbol, SymbolSection};
use object::{BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

/// Renames the function `from` to `to` in an object and makes it hidden outside the library.
///
/// Errors: the object is malformed.
pub fn renamed(bytes: &[u8], from: &str, to: &str) -> Result<Vec<u8>, String> {
    let mut builder = Builder::read(bytes).map_err(|error| error.to_string())?;
    for symbol in builder.symbols.iter_mut() {
        if *symbol.name == *from.as_bytes() {
            symbol.name = to.as_bytes().to_vec().into();
            symbol.st_other = STV_HIDDEN;
        }
    }
    // LLVM stores the names of sections and symbols in one string table, which the builder cannot
    // write. This adds a table for the sections.
    let names = builder.sections.add();
    names.name = b".shstrtab"[..].into();
    names.sh_type = SHT_STRTAB;
    names.data = SectionData::SectionString;
    let mut renamed = Vec::new();
    builder.write(&mut renamed).map_err(|error| error.to_string())?;
    Ok(renamed)
}

/// An object with one function `name` of position-independent machine code, hidden outside the
/// library.
///
/// Errors: it cannot be written.
pub fn function(architecture: Architecture, name: &str, code: &[u8]) -> Result<Vec<u8>, String> {
    let mut object = empty(architecture);
    let section = object.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
    add(&mut object, section, name, SymbolKind::Text, code);
    object.write().map_err(|error| error.to_string())
}

/// An object with these constants, each 64-byte aligned and hidden outside the library.
///
/// Errors: it cannot be written; out of memory.
pub fn constants(
    architecture: Architecture,
    constants: &[(String, &Constant)],
) -> Result<Vec<u8>, String> {
    let mut object = empty(architecture);
    let section = object.add_section(Vec::new(), b".rodata".to_vec(), SectionKind::ReadOnlyData);
    for (name, constant) in constants {
        let tensor = constant.value().map_err(|error| error.to_string())?;
        add(&mut object, section, name, SymbolKind::Data, &tensor.bytes());
    }
    object.write().map_err(|error| error.to_string())
}

fn empty(architecture: Architecture) -> write::Object<'static> {
    let architecture = match architecture {
        Architecture::X86_64 => object::Architecture::X86_64,
        Architecture::Arm64 => object::Architecture::Aarch64,
    };
    let mut object = write::Object::new(BinaryFormat::Elf, architecture, Endianness::Little);
    // Without this section, linkers assume that the library needs an executable stack.
    object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
    object
}

/// Adds bytes, 64-byte aligned, and a symbol for their address.
fn add(object: &mut write::Object, section: SectionId, name: &str, kind: SymbolKind, bytes: &[u8]) {
    let value = object.append_section_data(section, bytes, ALIGN as u64);
    object.add_symbol(Symbol {
        name: name.as_bytes().to_vec(),
        value,
        size: bytes.len() as u64,
        kind,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    });
}
