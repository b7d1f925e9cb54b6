//! Measured speeds of operations on this machine, which the cost model uses.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_passes::profile::Profile;
use mithril_passes::target::Target;
use serde_json::{Value, json};

use crate::files::{publish, put, unwritable};
use crate::targets;

/// The fields of a profile that are measured.
const MEASURED: [&str; 4] = ["overhead", "bytes", "products", "scalars"];

/// Profiles by target, such as `torch` and `native`.
pub type Profiles = BTreeMap<String, Profile>;

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
    let Some(file) = file() else {
        return Ok(target);
    };
    let text = match fs::read_to_string(&file) {
        // HOME may belong to another user whose files this process may not see. That is not an
        // error.
        Err(_) if file.symlink_metadata().is_err() => return Ok(target),
        read => read.map_err(|error| unreadable(&file, &error.to_string()))?,
    };
    let profiles = parse(&text).map_err(|error| unreadable(&file, &error.to_string()))?;
    Ok(match profiles.get(target.name) {
        Some(profile) => Target { profile: *profile, ..target },
        None => target,
    })
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
/// the units of [`Profile`].
///
/// Errors: another structure, an unknown target, or a number that is not above 0.
pub fn parse(text: &str) -> Result<Profiles> {
    let form = |got: &str| {
        let error = Diagnostic::new("the measurements are malformed").got(got);
        error.expected(format!("by target, {} as numbers above 0", MEASURED.join(", ")))
    };
    let read: Value =
        serde_json::from_str(text).map_err(|error| Box::new(form(&error.to_string())))?;
    let Value::Object(by_name) = read else {
        return form(&read.to_string()).err();
    };
    let mut profiles = Profiles::new();
    for (name, measured) in by_name {
        let Ok(target) = targets::find(&name) else {
            return form(&format!("an unknown target `{name}`")).err();
        };
        let mut profile = target.passes.profile;
        let places = [
            &mut profile.overhead,
            &mut profile.bytes,
            &mut profile.products,
            &mut profile.scalars,
        ];
        for (key, place) in MEASURED.into_iter().zip(places) {
            match measured.get(key).and_then(Value::as_f64).filter(|n| n.is_finite() && *n > 0.0) {
                Some(number) => *place = number,
                None => return form(&format!("`{key}` of `{name}`: {measured}")).err(),
            }
        }
        profiles.insert(name, profile);
    }
    Ok(profiles)
}

/// Saves measurements for later compiles and returns the file. Measurements of other targets in the
/// file are kept.
///
/// Errors: MITHRIL_PROFILE is empty, or the file cannot be written.
pub fn save(profiles: &Profiles) -> Result<PathBuf> {
    let Some(file) = file() else {
        return Diagnostic::new("there is no file for the measurements")
            .got("an empty MITHRIL_PROFILE, or no home directory")
            .hint("set MITHRIL_PROFILE to a file")
            .err();
    };
    let before = fs::read_to_string(&file).ok().and_then(|text| parse(&text).ok());
    let mut all = before.unwrap_or_default();
    all.extend(profiles.iter().map(|(name, profile)| (name.clone(), *profile)));
    let one = |(name, p): (&String, &Profile)| {
        let numbers = [p.overhead, p.bytes, p.products, p.scalars];
        let numbers = MEASURED.iter().zip(numbers).map(|(key, n)| (key.to_string(), json!(n)));
        (name.clone(), Value::Object(numbers.collect()))
    };
    let text = format!("{:#}\n", Value::Object(all.iter().map(one).collect()));
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
    }
    publish(&file, |temporary| put(temporary, text.as_bytes()))?;
    Ok(file)
}

/// Formats measurements as a table, one row for each target.
pub fn table(profiles: &Profiles) -> String {
    let mut text = format!(
        "{:<8} {:>16} {:>12} {:>16} {:>14}\n",
        "backend", "operation", "memory", "products", "elementwise"
    );
    for (target, p) in profiles {
        text += &format!(
            "{target:<8} {:>13.0} ns {:>7.1} GB/s {:>9.1} Gflop/s {:>7.1} Gflop/s\n",
            p.overhead, p.bytes, p.products, p.scalars
        );
    }
    text
}
