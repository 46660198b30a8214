//! What the catalog holds of one table, and its bytes.
//!
//! The bytes (see `docs/format/rows.md`) begin with a format version and end with a CRC32C. They
//! are cut into *chunks*, one catalog row each, because a definition may be larger than an entry of
//! a small page.

use crate::error::{TableError, TableErrorKind};
use crate::index::{IndexDefinition, IndexSpec, IndexState, MAX_INDEXES};
use crate::page_file::PageFileDefinition;
use crate::schema::{self, Schema};
use crate::table_kind::TableKind;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{PageId, TreeId, crc32c};

/// Version of the definition's format that this code writes; it reads no other.
const FORMAT: u8 = 4;

/// What the catalog holds one of.
#[derive(Debug)]
pub(crate) enum Object {
    Table(Box<Definition>),
    PageFile(PageFileDefinition),
}

impl Object {
    pub(crate) fn tree(&self) -> TreeId {
        match self {
            Object::Table(definition) => definition.tree,
            Object::PageFile(definition) => definition.tree,
        }
    }
}

/// Kinds of objects.
const RAW: u8 = 1;
const TYPED: u8 = 2;
const PAGE_FILE: u8 = 3;

/// One table, as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its tree, whose id identifies the table for ever.
    pub tree: TreeId,
    /// Root page of its tree.
    pub root: PageId,
    /// Id and root page of the tree of its large values; `None` if the table has none.
    pub large: Option<(TreeId, PageId)>,
    pub name: String,
    /// What kind of rows it holds.
    pub kind: TableKind,
    /// How its pages are fragmented, where the store has several devices.
    pub fragmentation: Fragmentation,
    /// Its secondary indexes, in the order of their creation.
    pub indexes: Vec<IndexDefinition>,
}

/// How a page is fragmented: `written` fragments, any `needed` of which give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// From 1 to `written`.
    pub needed: u8,
    /// At least 1.
    pub written: u8,
}

/// How a table's pages are fragmented, and by which choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// `None` if as the store's.
    pub fragments: Option<Fragments>,
    /// Whose choice that is.
    pub chosen: Chosen,
}

/// The choice of how pages are fragmented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chosen {
    /// The user's.
    #[default]
    ByUser,
    /// The engine's, by the table's load.
    ByLoad {
        /// Pages that are fragmented otherwise were not all moved since.
        moving: bool,
    },
}

/// With the number of fragments needed: the engine chooses; and pages are to be moved.
const BY_LOAD: u8 = 0x80;
const MOVING: u8 = 0x40;

impl Fragmentation {
    /// The user's choice.
    #[must_use]
    pub fn by_user(fragments: Option<Fragments>) -> Fragmentation {
        Fragmentation { fragments, chosen: Chosen::ByUser }
    }

    /// Whether the engine chooses it.
    #[must_use]
    pub fn is_by_load(&self) -> bool {
        matches!(self.chosen, Chosen::ByLoad { .. })
    }

    /// Whether pages that are fragmented otherwise are to be moved.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.chosen == Chosen::ByLoad { moving: true }
    }

    fn encode(self) -> [u8; 2] {
        let (needed, written) = self.fragments.map_or((0, 0), |it| (it.needed, it.written));
        let chosen = match self.chosen {
            Chosen::ByUser => 0,
            Chosen::ByLoad { moving: false } => BY_LOAD,
            Chosen::ByLoad { moving: true } => BY_LOAD | MOVING,
        };
        assert!(needed < MOVING, "{needed} fragments are more than there are devices");
        [needed | chosen, written]
    }

    fn decode([needed, written]: [u8; 2]) -> Result<Fragmentation, Malformed> {
        let chosen = match needed & (BY_LOAD | MOVING) {
            0 => Chosen::ByUser,
            BY_LOAD => Chosen::ByLoad { moving: false },
            MOVING => return Err(Malformed { what: "pages to be moved of a table that stays as it is" }),
            _ => Chosen::ByLoad { moving: true },
        };
        let fragments = match (needed & !(BY_LOAD | MOVING), written) {
            (0, 0) => None,
            (needed, written) if needed > 0 && needed <= written => Some(Fragments { needed, written }),
            _ => return Err(Malformed { what: "a page of fewer fragments than are needed" }),
        };
        Ok(Fragmentation { fragments, chosen })
    }
}

impl Definition {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(FORMAT);
        out.put_u32(self.tree.0);
        out.put_u64(self.root.0);
        let (large, large_root) = self.large.map_or((0, 0), |(tree, root)| (tree.0, root.0));
        out.put_u32(large);
        out.put_u64(large_root);
        out.put_blob(self.name.as_bytes());
        match &self.kind {
            TableKind::Raw => out.put_u8(RAW),
            TableKind::Typed(schema) => {
                out.put_u8(TYPED);
                schema.write(&mut out);
            }
        }
        self.fragmentation.encode().into_iter().for_each(|byte| out.put_u8(byte));
        out.put_varint(self.indexes.len() as u64);
        for index in &self.indexes {
            out.put_u32(index.tree.0);
            out.put_u64(index.root.0);
            match index.state {
                IndexState::Building { notes: (tree, root) } => {
                    out.put_u8(1);
                    out.put_u32(tree.0);
                    out.put_u64(root.0);
                }
                IndexState::Ready => out.put_u8(2),
            }
            index.spec.write(&mut out);
        }
        let checksum = crc32c(&out);
        out.put_u32(checksum);
        out
    }

    /// As [`Object::decode`], of a table.
    #[cfg(test)]
    pub(crate) fn decode(bytes: &[u8]) -> Result<Definition, TableError> {
        match Object::decode(bytes)? {
            Object::Table(definition) => Ok(*definition),
            Object::PageFile(_) => Err(TableError::damaged("a page file is no table")),
        }
    }

    /// The place of the index called `name`.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<usize> {
        self.indexes.iter().position(|index| index.spec.name == name)
    }
}

impl PageFileDefinition {
    /// As a table's, with neither large values nor indexes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(FORMAT);
        out.put_u32(self.tree.0);
        out.put_u64(self.root.0);
        out.put_u32(0);
        out.put_u64(0);
        out.put_blob(self.name.as_bytes());
        out.put_u8(PAGE_FILE);
        out.put_varint(0);
        let checksum = crc32c(&out);
        out.put_u32(checksum);
        out
    }
}

impl Object {
    /// Reads the bytes back, checking all of them.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Object, TableError> {
        let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(Malformed { what: "a table's definition ends early" }.into());
        };
        if crc32c(body) != u32::from_le_bytes(*checksum) {
            return Err(TableError::damaged("the checksum of a table's definition does not match its bytes"));
        }
        let mut reader = Reader::new(body);
        let format = reader.u8()?;
        if format != FORMAT {
            return Err(TableError::new(
                TableErrorKind::TooNew,
                format!("a table's definition has format {format}; this version knows format {FORMAT}"),
            ));
        }
        let object = Object::decode_body(&mut reader)?;
        if !reader.is_empty() {
            return Err(Malformed { what: "a table's definition has bytes past its end" }.into());
        }
        Ok(object)
    }

    fn decode_body(reader: &mut Reader<'_>) -> Result<Object, TableError> {
        let tree = TreeId(reader.u32()?);
        let root = PageId(reader.u64()?);
        let large = (reader.u32()?, reader.u64()?);
        let large = (large != (0, 0)).then_some((TreeId(large.0), PageId(large.1)));
        let name = schema::read_name(reader)?;
        let kind = match reader.u8()? {
            RAW => TableKind::Raw,
            TYPED => TableKind::Typed(Schema::read(reader)?),
            PAGE_FILE => {
                if large.is_some() || reader.varint()? != 0 {
                    return Err(Malformed { what: "a page file with large values or indexes" }.into());
                }
                return Ok(Object::PageFile(PageFileDefinition { tree, root, name }));
            }
            _ => return Err(Malformed { what: "unknown kind of table" }.into()),
        };
        let fragmentation = Fragmentation::decode([reader.u8()?, reader.u8()?])?;
        let count = reader.varint_max(MAX_INDEXES)?;
        let mut indexes = Vec::with_capacity(count);
        for _ in 0..count {
            let tree = TreeId(reader.u32()?);
            let root = PageId(reader.u64()?);
            let state = match reader.u8()? {
                1 => IndexState::Building { notes: (TreeId(reader.u32()?), PageId(reader.u64()?)) },
                2 => IndexState::Ready,
                _ => return Err(Malformed { what: "unknown state of an index" }.into()),
            };
            let spec = IndexSpec::read(reader)?;
            spec.check(&kind).map_err(|error| TableError::damaged(error.message))?;
            indexes.push(IndexDefinition { spec, tree, root, state });
        }
        Ok(Object::Table(Box::new(Definition { tree, root, large, name, kind, fragmentation, indexes })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::IndexPart;
    use crate::schema::{Column, KeyColumn};
    use crate::table_kind::TableKind;
    use crate::value::ColumnType;
    use firndb_base::rng::Rng;

    fn samples() -> [Definition; 2] {
        let schema = Schema::with_key(
            vec![Column::new("id", ColumnType::I64), Column::new("name", ColumnType::Text).nullable()],
            &["id"],
        )
        .unwrap();
        let index =
            |spec| IndexDefinition { spec, tree: TreeId(8), root: PageId(80), state: IndexState::Ready };
        let raw = Definition {
            tree: TreeId(7),
            root: PageId(70),
            large: Some((TreeId(9), PageId(90))),
            name: "raw".into(),
            kind: TableKind::Raw,
            fragmentation: Fragmentation::by_user(Some(Fragments { needed: 3, written: 4 })),
            indexes: vec![index(IndexSpec::ranges("r", true, vec![IndexPart::Value(0..2)]))],
        };
        let by_name = index(IndexSpec::columns("by_name", false, vec![KeyColumn::ascending(1)]));
        [
            raw.clone(),
            Definition {
                name: "typed".into(),
                kind: TableKind::Typed(schema),
                fragmentation: Fragmentation { fragments: None, chosen: Chosen::ByLoad { moving: true } },
                indexes: vec![by_name],
                ..raw
            },
        ]
    }

    #[test]
    fn definitions_round_trip_and_every_damaged_byte_is_seen() {
        let mut rng = Rng::new(5);
        for definition in samples() {
            let bytes = definition.encode();
            assert_eq!(Definition::decode(&bytes).as_ref(), Ok(&definition));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= rng.between(1, 255) as u8;
                assert!(Definition::decode(&damaged).is_err());
                assert!(Definition::decode(&bytes[..at]).is_err());
            }
        }
    }

    #[test]
    fn bytes_with_a_good_checksum_are_still_checked() {
        let mut rng = Rng::new(6);
        for definition in samples() {
            let whole = definition.encode();
            for _ in 0..3000 {
                let mut body = whole[..whole.len() - 4].to_vec();
                for _ in 0..rng.between(1, 3) {
                    let at = rng.below(body.len() as u64) as usize;
                    body[at] = rng.next_u64() as u8;
                }
                let checksum = crc32c(&body);
                body.put_u32(checksum);
                let _ = Definition::decode(&body);
            }
        }
    }

    #[test]
    fn a_newer_format_is_named_as_such() {
        let mut body = samples()[0].encode();
        body.truncate(body.len() - 4);
        body[0] = FORMAT + 1;
        let checksum = crc32c(&body);
        body.put_u32(checksum);
        assert_eq!(Definition::decode(&body).unwrap_err().kind, TableErrorKind::TooNew);
    }

    #[test]
    fn a_page_file_is_pinned_and_every_damaged_byte_is_seen() {
        let file = PageFileDefinition { tree: TreeId(7), root: PageId(70), name: "f".into() };
        let bytes = file.encode();
        let expected: &[u8] = &[
            4, // format
            7, 0, 0, 0, 70, 0, 0, 0, 0, 0, 0, 0, // tree and root
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // no large values
            1, b'f', 3, 0, // name, kind, no indexes
        ];
        assert_eq!(&bytes[..bytes.len() - 4], expected);
        assert!(matches!(Object::decode(&bytes), Ok(Object::PageFile(found)) if found == file));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Object::decode(&damaged).is_err());
            assert!(Object::decode(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn a_fragmentation_is_two_bytes() {
        let fragments = Some(Fragments { needed: 1, written: 4 });
        let all = [
            (Fragmentation::default(), [0, 0]),
            (Fragmentation::by_user(fragments), [1, 4]),
            (Fragmentation { fragments: None, chosen: Chosen::ByLoad { moving: false } }, [0x80, 0]),
            (Fragmentation { fragments, chosen: Chosen::ByLoad { moving: false } }, [0x81, 4]),
            (Fragmentation { fragments, chosen: Chosen::ByLoad { moving: true } }, [0xC1, 4]),
        ];
        for (fragmentation, bytes) in all {
            assert_eq!(fragmentation.encode(), bytes);
            assert_eq!(Fragmentation::decode(bytes).ok(), Some(fragmentation));
        }
        for senseless in [[0x41, 4], [0x40, 0], [0, 4], [0x80, 1], [5, 4], [0xC5, 4]] {
            assert!(Fragmentation::decode(senseless).is_err(), "{senseless:?}");
        }
    }

    #[test]
    fn the_format_is_pinned() {
        let bytes = samples()[0].encode();
        let expected: &[u8] = &[
            4, // format
            7, 0, 0, 0, 70, 0, 0, 0, 0, 0, 0, 0, // tree and root
            9, 0, 0, 0, 90, 0, 0, 0, 0, 0, 0, 0, // tree and root of large values
            3, b'r', b'a', b'w', 1, // name, kind
            3, 4, // fragments needed, and written
            1, // indexes
            8, 0, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 2, // tree, root, ready
            1, b'r', 1, 2, 1, 1, 0, 2, // name, unique, ranges, one: of the value, 0..2
        ];
        assert_eq!(&bytes[..bytes.len() - 4], expected);
        assert_eq!(bytes[bytes.len() - 4..], crc32c(expected).to_le_bytes());
        let mut building = samples()[0].clone();
        building.indexes[0].state = IndexState::Building { notes: (TreeId(10), PageId(100)) };
        let with_notes = building.encode();
        let state = [1, 10, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(with_notes[..with_notes.len() - 4], [&expected[..45], &state, &expected[46..]].concat());
        assert_eq!(Definition::decode(&with_notes).as_ref(), Ok(&building));
    }
}
