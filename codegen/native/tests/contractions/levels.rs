//! The levels of processors that code is made for.

use mithril_instant::Machine;
use mithril_kernels::host::{self, Host};
use mithril_kernels::isa::Isa;
use mithril_native::Options;

pub struct Level {
    pub name: &'static str,
    pub isa: Isa,
    pub options: Options,
    /// Cranelift for this machine, where it knows what the level's code needs.
    pub instant: Option<Machine>,
    /// Whether LLVM's code for it runs on this machine.
    pub here: bool,
}

fn level(name: &'static str, here: impl Fn(&Host) -> bool) -> Level {
    let [level, machine] = [Host::parse(name), Host::parse("native")]
        .map(|host| host.unwrap_or_else(|e| panic!("{e}")));
    let here = here(&machine);
    let isa = level.isa;
    // Only LLVM supports pairs and tiles. Lanes are cut into what every machine has, but no other
    // instruction multiplies and adds at once.
    let known = !isa.extensions.pairs && !isa.extensions.amx && (here || machine.isa.fma);
    let own = if here { &level } else { &machine };
    let instant = known.then(|| Machine::of(own).expect("a machine that Cranelift knows"));
    let options = Options {
        cpu: level.level.cpu.into(),
        features: level.features.clone(),
        ..Options::default()
    };
    Level { name, isa, options, instant, here }
}

fn is_here(name: &str) -> bool {
    host::levels().iter().any(|level| level.name() == name)
}

pub fn v2() -> Level {
    level("x86-64-v2", |_| is_here("x86-64-v2"))
}

pub fn v3() -> Level {
    level("x86-64-v3", |_| is_here("x86-64-v3"))
}

pub fn v4() -> Level {
    level("x86-64-v4", |_| is_here("x86-64-v4"))
}

pub fn pairs() -> Level {
    level("x86-64-v4+avx512bf16", |machine| machine.has("avx512bf16"))
}

/// Tiles, which are done by traps where the machine has none.
pub fn tiles() -> Level {
    let here = is_here("x86-64-v4");
    if here {
        crate::amx::processor();
    }
    level("x86-64-v4+amx-bf16", |_| here)
}

pub fn all() -> [Level; 5] {
    [v2(), v3(), v4(), pairs(), tiles()]
}
