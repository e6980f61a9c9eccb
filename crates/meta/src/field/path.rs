//! A path to a field, built on the way down.

use std::fmt;

/// A field path such as `spec.containers[0].env[key].name`.
///
/// It is a linked list on the stack: a child borrows its parent, so walking an object allocates nothing until an error is
/// reported. `Path::new` is a root; `Path::root()` is upstream's nil path, which prints as `<nil>`.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Nil,
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A path of one name. Dots in the name are kept, so `Path::new("spec.template")` works.
    pub const fn new(name: &'a str) -> Self {
        Self { parent: None, step: Step::Name(name) }
    }

    /// The empty path; its children print without a leading dot.
    pub const fn root() -> Self {
        Self { parent: None, step: Step::Nil }
    }

    /// `parent.name`
    pub fn child<'b>(&'b self, name: &'b str) -> Path<'b>
    where
        'a: 'b,
    {
        Path { parent: Some(self), step: Step::Name(name) }
    }

    /// `parent[3]`
    pub fn index<'b>(&'b self, index: usize) -> Path<'b>
    where
        'a: 'b,
    {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// `parent[key]`
    pub fn key<'b>(&'b self, key: &'b str) -> Path<'b>
    where
        'a: 'b,
    {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> Result<bool, fmt::Error> {
        let has_prefix = match self.parent {
            Some(parent) => parent.write(f)?,
            None => false,
        };
        match self.step {
            Step::Nil => return Ok(has_prefix),
            Step::Name(name) => {
                if has_prefix {
                    f.write_str(".")?;
                }
                f.write_str(name)?;
            }
            Step::Index(index) => write!(f, "[{index}]")?,
            Step::Key(key) => write!(f, "[{key}]")?,
        }
        Ok(true)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.write(f)? {
            f.write_str("<nil>")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_their_steps() {
        let spec = Path::new("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        assert_eq!(first.child("name").to_string(), "spec.containers[0].name");
        assert_eq!(Path::new("metadata").child("annotations").key("a/b").to_string(), "metadata.annotations[a/b]");
        assert_eq!(Path::root().to_string(), "<nil>");
        assert_eq!(Path::root().child("x").to_string(), "x");
    }
}
