//! Configuration errors, all reported at once.

use std::fmt::{self, Display};

/// What is wrong with a configuration so far.
#[derive(Debug, Default)]
pub struct Problems(Vec<String>);

impl Problems {
    pub fn add(&mut self, subject: &str, problem: impl Display) {
        self.0.push(format!("{subject}: {problem}"));
    }

    /// The value, or `None` and one more problem.
    pub fn check<T, E: Display>(&mut self, subject: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.add(subject, error)).ok()
    }

    /// `Err` with everything that was wrong.
    pub fn finish(self) -> Result<(), InvalidConfiguration> {
        if self.0.is_empty() { Ok(()) } else { Err(InvalidConfiguration(self.0)) }
    }
}

#[derive(Debug, thiserror::Error)]
pub struct InvalidConfiguration(Vec<String>);

impl Display for InvalidConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration has {} problem{}", self.0.len(), if self.0.len() == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_told() {
        let mut problems = Problems::default();
        assert_eq!(problems.check("--a", "1".parse::<u8>()), Some(1));
        assert_eq!(problems.check("--b", "x".parse::<u8>()), None);
        problems.add("--c", "is missing");
        let text = problems.finish().unwrap_err().to_string();
        assert_eq!(text, "the configuration has 2 problems\n  --b: invalid digit found in string\n  --c: is missing");
    }
}
