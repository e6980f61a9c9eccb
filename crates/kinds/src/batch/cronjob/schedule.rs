//! Whether a text is a cron schedule: five fields, or a named one, or `@every` and a duration.

use wheelhouse_meta::duration::GoDuration;
use wheelhouse_meta::gotext::quote;

const NAMED: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// One field: its bounds, and names with the number of the first.
pub struct Field {
    pub min: u32,
    pub max: u32,
    names: &'static [&'static str],
}

/// Minute, hour, day of the month, month, day of the week.
pub const FIELDS: [Field; 5] = [
    Field { min: 0, max: 59, names: &[] },
    Field { min: 0, max: 23, names: &[] },
    Field { min: 1, max: 31, names: &[] },
    Field { min: 1, max: 12, names: MONTHS },
    Field { min: 0, max: 6, names: DAYS },
];

/// The complaint about a schedule, as the parser that upstream uses makes it.
pub fn check(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("empty spec string".to_owned());
    }
    if text.starts_with('@') {
        if NAMED.contains(&text) {
            return Ok(());
        }
        return match text.strip_prefix("@every ") {
            Some(duration) => match GoDuration::parse(duration) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("failed to parse duration {text}: {error}")),
            },
            None => Err(format!("unrecognized descriptor: {text}")),
        };
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        for part in text.split(',') {
            range(part, field)?;
        }
    }
    Ok(())
}

/// `*`, `3`, `1-5`, each with `/step`: first, last and step.
pub fn range(text: &str, field: &Field) -> Result<(u32, u32, u32), String> {
    let (bounds, step) = match text.split('/').collect::<Vec<_>>()[..] {
        [bounds] => (bounds, None),
        [bounds, step] => (bounds, Some(step)),
        _ => return Err(format!("too many slashes: {text}")),
    };
    let ends: Vec<&str> = bounds.split('-').collect();
    let (start, end) = match ends[..] {
        ["*" | "?"] => (field.min, field.max),
        [one] => {
            let start = number(one, field)?;
            (start, if step.is_some() { field.max } else { start })
        }
        [start, end] => (number(start, field)?, number(end, field)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = step.map_or(Ok(1), |s| number(s, &Field { min: 0, max: u32::MAX, names: &[] }))?;
    if start < field.min {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", field.min));
    }
    if end > field.max {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", field.max));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok((start, end, step))
}

fn number(text: &str, field: &Field) -> Result<u32, String> {
    if let Some(at) = field.names.iter().position(|n| n.eq_ignore_ascii_case(text)) {
        return Ok(field.min + u32::try_from(at).unwrap_or_default());
    }
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => u32::try_from(number).map_err(|_| format!("failed to parse int from {text}")),
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax", quote(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_told_from_other_texts() {
        for good in ["*/5 * * * *", "0 0 1,15 jan-mar MON", "@daily", "@every 1h30m", "0-30/10 2 * * ?"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        assert_eq!(check("* * *"), Err("expected exactly 5 fields, found 3: [* * *]".to_owned()));
        assert_eq!(check("61 * * * *"), Err("end of range (61) above maximum (59): 61".to_owned()));
        assert_eq!(check("* * 0 * *"), Err("beginning of range (0) below minimum (1): 0".to_owned()));
        assert_eq!(check("@often"), Err("unrecognized descriptor: @often".to_owned()));
        assert_eq!(check("x * * * *"), Err("failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax".to_owned()));
    }
}
