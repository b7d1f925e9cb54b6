//! The version line, and migrations from older versions to the current one.

use std::borrow::Cow;

use super::cursor::Cursor;
use crate::diagnostic::{Diagnostic, Result};

/// The version of the format that is written.
pub const VERSION: u32 = 1;

/// Rewrites a text of version `from`, including its version line, to the next version.
struct Migration {
    from: u32,
    rewrite: fn(&str) -> Result<String>,
}

const MIGRATIONS: &[Migration] = &[];

/// The text in the current version, and whether it was migrated.
/// Errors: no version, a newer version, or one without a migration.
pub(super) fn current(source: &str) -> Result<(Cow<'_, str>, bool)> {
    migrate(source, VERSION, MIGRATIONS)
}

fn migrate<'s>(
    source: &'s str,
    present: u32,
    migrations: &[Migration],
) -> Result<(Cow<'s, str>, bool)> {
    let mut text = Cow::Borrowed(source);
    let mut migrated = false;
    loop {
        let found = read(&mut Cursor::new(&text))?;
        if found == present {
            return Ok((text, migrated));
        }
        let step = migrations.iter().find(|m| m.from == found && found < present);
        match step {
            Some(step) => text = Cow::Owned((step.rewrite)(&text)?),
            None => return unsupported(found, present),
        }
        migrated = true;
    }
}

fn unsupported<T>(found: u32, present: u32) -> Result<(Cow<'static, str>, T)> {
    let what = if found > present {
        format!("the text has format version {found}, which is newer than this Mithril")
    } else {
        format!("format version {found} is not supported")
    };
    let mut error = Diagnostic::new(what).expected(format!("version {present} or older"));
    if found > present {
        error.hint = Some("install a newer Mithril".to_string());
    }
    error.err()
}

/// Parses `mithril 1`.
/// Errors: the line is missing or malformed.
pub(super) fn read(cursor: &mut Cursor) -> Result<u32> {
    let start = cursor.here();
    if !cursor.eat_word("mithril") {
        return Diagnostic::new("the text does not begin with its format version")
            .hint(format!("begin the file with `mithril {VERSION}`"))
            .span(start)
            .err();
    }
    let (word, span) = cursor.scalar();
    word.parse().or_else(|_| {
        Diagnostic::new("the format version is not a number")
            .got(format!("`{word}`"))
            .hint(format!("begin the file with `mithril {VERSION}`"))
            .span(span)
            .err()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_versions_are_migrated_step_by_step() {
        let steps = [
            Migration { from: 1, rewrite: |text| Ok(text.replace("mithril 1", "mithril 2")) },
            Migration {
                from: 2,
                rewrite: |text| Ok(text.replace("mithril 2", "mithril 3").replace("old", "new")),
            },
        ];
        let (text, migrated) = migrate("mithril 1\nold", 3, &steps).unwrap();
        assert_eq!((&*text, migrated), ("mithril 3\nnew", true));
        let (text, migrated) = migrate("mithril 3\nold", 3, &steps).unwrap();
        assert_eq!((&*text, migrated), ("mithril 3\nold", false));
        let error = migrate("mithril 0", 3, &steps).unwrap_err();
        assert_eq!(error.headline(), "format version 0 is not supported");
        let error = migrate("mithril 4", 3, &steps).unwrap_err();
        assert!(error.headline().contains("newer"), "{error}");
    }
}
