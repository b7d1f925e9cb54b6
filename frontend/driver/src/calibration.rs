//! Measured speeds of this machine, which estimates of cost use.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_passes::profile::Profile;
use mithril_passes::shard::machine::{Link, Machine};
use mithril_passes::target::Target;
use serde_json::{Map, Value, json};

use crate::files::{publish, put, unwritable};
use crate::targets;

/// The fields of a profile that are measured.
const MEASURED: [&str; 4] = ["overhead", "bytes", "products", "scalars"];
/// The machine whose numbers are measured: the processes of a mesh on this one.
const PROCESSES: &str = "cpu-gloo";
/// Its fields: for a process floating-point operations of matrix products and bytes of memory
/// traffic per nanosecond, and bytes of memory; for a link bytes per nanosecond, and nanoseconds.
const OF_PROCESSES: [&str; 5] = ["products", "bytes", "memory", "link", "latency"];

/// What was measured.
#[derive(Clone, Default, Debug)]
pub struct Measurements {
    /// Profiles by target, such as `torch` and `native`.
    pub targets: BTreeMap<String, Profile>,
    /// The processes of a mesh.
    pub processes: Option<Machine>,
}

/// The file of measurements: the path in MITHRIL_PROFILE, or `~/.config/mithril/profile.json`.
/// `None` if MITHRIL_PROFILE is empty or there is no home directory.
pub fn file() -> Option<PathBuf> {
    let config = || match env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()) {
        Some(folder) => Some(PathBuf::from(folder)),
        None => env::var_os("HOME").map(|home| Path::new(&home).join(".config")),
    };
    match env::var_os("MITHRIL_PROFILE") {
        Some(path) => (!path.is_empty()).then(|| path.into()),
        None => config().map(|folder| folder.join("mithril/profile.json")),
    }
}

/// The target with its measured profile. The target is unchanged if it was not measured, or if
/// there is no file.
///
/// Errors: the file exists but cannot be read.
pub fn calibrated(target: Target) -> Result<Target> {
    let measured = saved()?;
    Ok(match measured.targets.get(target.name) {
        Some(profile) => Target { profile: *profile, ..target },
        None => target,
    })
}

/// The machine of this name, with its measured numbers if there are any.
///
/// Errors: there is no such machine; the file exists but cannot be read.
pub fn machine(name: &str) -> Result<Machine> {
    let machine = *Machine::find(name)?;
    let measured = if name == PROCESSES { saved()?.processes } else { None };
    Ok(measured.unwrap_or(machine))
}

/// The measurements in the file; none if there is no file.
fn saved() -> Result<Measurements> {
    let Some(file) = file() else {
        return Ok(Measurements::default());
    };
    let text = match fs::read_to_string(&file) {
        // HOME may belong to another user whose files this process may not see. That is not an
        // error.
        Err(_) if file.symlink_metadata().is_err() => return Ok(Measurements::default()),
        read => read.map_err(|error| unreadable(&file, &error.to_string()))?,
    };
    parse(&text).map_err(|error| unreadable(&file, &error.to_string()))
}

fn unreadable(file: &Path, why: &str) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::of(ErrorKind::File, "the measurements of this machine cannot be read")
            .got(format!("{}: {}", file.display(), why.replace('\n', "\n  ")))
            .hint(
                "write it again with `mithril bench --calibrate`, or remove it to use the \
                   defaults",
            ),
    )
}

/// Parses `{"torch": {"overhead": 900.0, "bytes": 9.0, "products": 100.0, "scalars": 4.0}, …}`, in
/// the units of [`Profile`], and of the processes of a mesh.
///
/// Errors: another structure, an unknown target, or a number that is not above 0.
pub fn parse(text: &str) -> Result<Measurements> {
    let form = |got: &str, fields: &[&str]| {
        let error = Diagnostic::new("the measurements are malformed").got(got);
        error.expected(format!("by target, {} as numbers above 0", fields.join(", ")))
    };
    let read: Value = serde_json::from_str(text)
        .map_err(|error| Box::new(form(&error.to_string(), &MEASURED)))?;
    let Value::Object(by_name) = read else {
        return form(&read.to_string(), &MEASURED).err();
    };
    let mut found = Measurements::default();
    for (name, measured) in by_name {
        let number = |key: &str, fields: &[&str]| -> Result<f64> {
            let number = measured.get(key).and_then(Value::as_f64);
            let above_zero = number.filter(|number| number.is_finite() && *number > 0.0);
            let wrong = || Box::new(form(&format!("`{key}` of `{name}`: {measured}"), fields));
            above_zero.ok_or_else(wrong)
        };
        if name == PROCESSES {
            let number = |key| number(key, &OF_PROCESSES);
            let rate = number("products")? * 1e9;
            let link = Link { bytes: number("link")? * 1e9, latency: number("latency")? * 1e-9 };
            found.processes = Some(Machine {
                half: rate,
                single: rate,
                bandwidth: number("bytes")? * 1e9,
                memory: number("memory")?,
                inside: link,
                across: link,
                ..*Machine::find(PROCESSES)?
            });
            continue;
        }
        let Ok(target) = targets::find(&name) else {
            return form(&format!("an unknown target `{name}`"), &MEASURED).err();
        };
        let number = |key| number(key, &MEASURED);
        let profile = Profile {
            overhead: number("overhead")?,
            bytes: number("bytes")?,
            products: number("products")?,
            scalars: number("scalars")?,
            ..target.passes.profile
        };
        found.targets.insert(name, profile);
    }
    Ok(found)
}

/// Saves measurements for later compiles and returns the file. Other measurements in the file are
/// kept.
///
/// Errors: MITHRIL_PROFILE is empty, or the file cannot be written.
pub fn save(measured: &Measurements) -> Result<PathBuf> {
    let Some(file) = file() else {
        return Diagnostic::new("there is no file for the measurements")
            .got("an empty MITHRIL_PROFILE, or no home directory")
            .hint("set MITHRIL_PROFILE to a file")
            .err();
    };
    let before = fs::read_to_string(&file).ok().and_then(|text| parse(&text).ok());
    let mut all = before.unwrap_or_default();
    all.targets.extend(measured.targets.iter().map(|(name, profile)| (name.clone(), *profile)));
    all.processes = measured.processes.or(all.processes);
    let text = format!("{:#}\n", Value::Object(written(&all)));
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
    }
    publish(&file, |temporary| put(temporary, text.as_bytes()))?;
    Ok(file)
}

fn written(measured: &Measurements) -> Map<String, Value> {
    let of = |fields: &[&str], numbers: &[f64]| {
        let numbers = fields.iter().zip(numbers).map(|(key, n)| (key.to_string(), json!(n)));
        Value::Object(numbers.collect())
    };
    let targets = measured.targets.iter().map(|(name, p)| {
        (name.clone(), of(&MEASURED, &[p.overhead, p.bytes, p.products, p.scalars]))
    });
    let processes = measured.processes.iter().map(|own| {
        let (link, latency) = (own.inside.bytes / 1e9, own.inside.latency * 1e9);
        let numbers = [own.single / 1e9, own.bandwidth / 1e9, own.memory, link, latency];
        (PROCESSES.to_string(), of(&OF_PROCESSES, &numbers))
    });
    targets.chain(processes).collect()
}

/// Formats measurements as tables, one row for each target and one for the processes of a mesh.
pub fn table(measured: &Measurements) -> String {
    let mut text = String::new();
    if !measured.targets.is_empty() {
        text += &format!(
            "{:<8} {:>16} {:>12} {:>16} {:>14}\n",
            "backend", "operation", "memory", "products", "elementwise"
        );
    }
    for (target, p) in &measured.targets {
        text += &format!(
            "{target:<8} {:>13.0} ns {:>7.1} GB/s {:>9.1} Gflop/s {:>7.1} Gflop/s\n",
            p.overhead, p.bytes, p.products, p.scalars
        );
    }
    if let Some(own) = &measured.processes {
        let latency = own.inside.latency * 1e6;
        let [memory, products, link] =
            [own.bandwidth, own.single, own.inside.bytes].map(|number| number / 1e9);
        text += &format!(
            "{:<8} {:>16} {:>12} {:>16} {:>14}\n\
             {PROCESSES:<8} {latency:>13.0} µs {memory:>7.1} GB/s {products:>9.1} Gflop/s \
             {link:>9.1} GB/s\n",
            "mesh", "latency", "memory", "products", "link"
        );
    }
    text
}
