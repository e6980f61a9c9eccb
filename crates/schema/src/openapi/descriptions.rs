//! The descriptions of types and fields: 0.9 MB of text, packed into a fifth. They are unpacked while a document is made and
//! dropped after it.

use std::collections::HashMap;

/// Length of the text (four bytes, little endian) and one lz4 block, written by tools/schema/generate.py.
pub(super) const PACKED: &[u8] = include_bytes!("../../data/descriptions.lz4");

/// The text: one block per definition, parted by NUL; in a block `name TAB description` and a line `field TAB
/// description` each, where U+000B stands for a line's end.
pub(super) struct Descriptions {
    text: String,
}

/// The descriptions of one definition.
pub(super) struct Block<'a> {
    own: &'a str,
    fields: HashMap<&'a str, &'a str>,
}

impl Descriptions {
    pub(super) fn unpack() -> Descriptions {
        let (length, packed) = PACKED.split_first_chunk::<4>().expect("the file begins with a length: a test reads it");
        let length = u32::from_le_bytes(*length) as usize;
        let bytes = lz4_flex::block::decompress(packed, length).expect("the file is part of the build: a test reads it");
        Descriptions { text: String::from_utf8(bytes).expect("the generator writes UTF-8: a test reads it") }
    }

    pub(super) fn by_definition(&self) -> HashMap<&str, Block<'_>> {
        self.text.split('\0').filter_map(block).collect()
    }
}

fn block(text: &str) -> Option<(&str, Block<'_>)> {
    let mut lines = text.split('\n').filter_map(|line| line.split_once('\t'));
    let (name, own) = lines.next()?;
    Some((name, Block { own, fields: lines.collect() }))
}

impl Block<'_> {
    pub(super) fn own(&self) -> Option<String> {
        (!self.own.is_empty()).then(|| self.own.replace('\u{b}', "\n"))
    }

    pub(super) fn field(&self, name: &str) -> Option<String> {
        self.fields.get(name).map(|text| text.replace('\u{b}', "\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_types_are_described() {
        let all = Descriptions::unpack();
        let all = all.by_definition();
        let event = &all["io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"];
        assert!(event.field("object").unwrap().starts_with("Object is:\n * If Type is Added"), "lines are kept");
        let pod = &all["io.k8s.api.core.v1.PodSpec"];
        assert_eq!(pod.own().unwrap(), "PodSpec is a description of a pod.");
        assert!(pod.field("containers").unwrap().starts_with("List of containers belonging to the pod."));
    }
}
