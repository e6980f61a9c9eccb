//! The encodings byte by byte: what one release wrote, every later one reads.

use std::sync::Arc;

use bytes::Bytes;
use wheelhouse_mvcc::codec::{self, CodecError, Header};
use wheelhouse_mvcc::{Batch, Command, Event, EventKind, Fence, KeyRange, KeyValue, Op, Range, Txn};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn kv() -> KeyValue {
    KeyValue { key: Bytes::from("k"), value: Bytes::from("v1"), create_revision: 5, mod_revision: 300, version: 2, lease: -1 }
}

#[test]
fn golden_record() {
    let mut bytes = Vec::new();
    codec::encode_record(&kv(), &mut bytes);
    //                      version create mod  version lease key  value
    assert_eq!(hex(&bytes), ["01", "05", "ac02", "02", "01", "016b", "027631"].concat());
    assert_eq!(codec::decode_record(&bytes), Ok(kv()));
}

#[test]
fn golden_commands() {
    let mut read = Range::of(KeyRange::prefix("k"));
    (read.revision, read.limit, read.keys_only) = (7, 10, true);
    let mut txn = Txn::default().if_mod_revision("k", 9).put("k", "v").delete("d").else_get("k");
    txn.failure.push(Op::Range(read));
    let golden = [
        (Command::Compact { revision: 128 }, "01038001".to_owned()),
        (Command::LeaseGrant { id: 7, ttl_secs: -2 }, "01040e03".to_owned()),
        (Command::LeaseRevoke { id: 7 }, "01050e".to_owned()),
        (Command::LeaseRenew { id: 7 }, "01060e".to_owned()),
        (Command::Txn { txn: Txn::default(), fence: None }, "0101000000".to_owned()),
        (
            Command::Txn { txn, fence: Some(Fence { term: 4 }) },
            [
                "010204",
                "01",
                "016b00000209", // one compare: key k, equal, mod revision 9
                "02",
                "02016b01760000",
                "0301640000", // put k = v; delete d
                "02",
                "01016b00000000000000000000",
                "01016b01016c070a00000100000000", // two ranges
            ]
            .concat(),
        ),
    ];
    for (command, wanted) in golden {
        let mut bytes = Vec::new();
        codec::encode_command(&command, &mut bytes);
        assert_eq!(hex(&bytes), wanted, "{command:?}");
        assert_eq!(codec::decode_command(&bytes), Ok(command));
    }
}

#[test]
fn golden_batch_and_header() {
    let old = Arc::new(KeyValue { mod_revision: 6, version: 1, lease: 0, ..kv() });
    let tombstone = KeyValue { key: Bytes::from("k"), value: Bytes::new(), create_revision: 0, mod_revision: 8, version: 0, lease: 0 };
    let created = KeyValue { key: Bytes::from("n"), create_revision: 8, mod_revision: 8, version: 1, ..kv() };
    let batch = Batch {
        revision: 8,
        events: vec![
            Event { kind: EventKind::Put, kv: Arc::new(created), prev: None },
            Event { kind: EventKind::Delete, kv: Arc::new(tombstone), prev: Some(old.clone()) },
        ],
    };
    let mut bytes = Vec::new();
    codec::encode_batch(&batch, &mut bytes);
    assert_eq!(hex(&bytes), "01080200016e020506010001".to_owned() + "6b027631");
    let stored = codec::decode_batch(&bytes).expect("what was encoded");
    assert_eq!((stored.revision, stored.events[0].prev.as_ref(), stored.events[1].prev.as_ref()), (8, None, Some(&*old)));

    let header = Header { revision: 9, compacted: 3, lease_clock: 5, leases: vec![(1, 60, 2)] };
    let mut bytes = Vec::new();
    codec::encode_header(&header, &mut bytes);
    assert_eq!(hex(&bytes), "01090305010278".to_owned() + "02");
    assert_eq!(codec::decode_header(&bytes), Ok(header));
}

#[test]
fn what_cannot_be_read_says_why() {
    assert_eq!(codec::decode_command(&[]), Err(CodecError::Truncated));
    assert_eq!(codec::decode_command(&[2, 3, 1]), Err(CodecError::UnknownVersion { found: 2 }));
    assert_eq!(codec::decode_command(&[1, 99]), Err(CodecError::UnknownTag { what: "command", tag: 99 }));
    assert_eq!(codec::decode_command(&[1, 3, 1, 0]), Err(CodecError::Trailing(1)));
    assert_eq!(codec::decode_command(&[1, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), Err(CodecError::Overlong));

    let deep = (0..=codec::MAX_TXN_DEPTH).fold(Txn::default(), |txn, _| Txn { success: vec![Op::Txn(Box::new(txn))], ..Txn::default() });
    let mut bytes = Vec::new();
    codec::encode_command(&Command::Txn { txn: deep, fence: None }, &mut bytes);
    assert_eq!(codec::decode_command(&bytes), Err(CodecError::TooDeep));
}
