//! Blocks from RFC 7541 appendix C and from servers.

use super::*;

/// Decodes `blocks` in turn on one connection and returns what each says.
fn decode(blocks: &[&[u8]]) -> Vec<Result<Headers, Malformed>> {
    let mut decoder = Decoder::default();
    let one = |block: &&[u8]| {
        let mut headers = Headers::default();
        decoder.decode(block, &mut headers).map(|()| headers)
    };
    blocks.iter().map(one).collect()
}

#[track_caller]
fn check(blocks: &[&[u8]], want: &[(Option<u16>, Option<u16>, &str)]) {
    let got: Vec<_> = decode(blocks).into_iter().map(Result::unwrap).collect();
    let got: Vec<_> =
        got.iter().map(|h| (h.status, h.grpc_status, h.grpc_message.as_str())).collect();
    assert_eq!(got, want);
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0x40, name.len() as u8];
    block.extend_from_slice(name.as_bytes());
    block.push(value.len() as u8);
    block.extend_from_slice(value.as_bytes());
    block
}

#[test]
fn reads_statuses_from_both_tables() {
    check(
        &[&[0x88], &[0x8d], &[0x8e]],
        &[(Some(200), None, ""), (Some(404), None, ""), (Some(500), None, "")],
    );
    // `:status` by name with the value 503, then by its index in the table.
    check(
        &[&[0x48, 3, b'5', b'0', b'3'], &[0xbe]],
        &[(Some(503), None, ""), (Some(503), None, "")],
    );
}

#[test]
fn reads_trailers_again_by_index() {
    let first = [literal("grpc-status", "14"), literal("grpc-message", "no%20store")].concat();
    let want = (None, Some(14), "no%20store");
    check(&[&first, &[0xbf, 0xbe]], &[want, want]);
    // The name by index, another value: `grpc-status` is the older of the two.
    check(&[&first, &[0x0f, 0x30, 1, b'0']], &[want, (None, Some(0), "")]);
}

#[test]
fn decodes_the_replies_of_the_rfc() {
    // C.5 and C.6, without and with Huffman codes; the table holds 256 bytes, so entries leave.
    let plain: [&[u8]; 3] = [
        b"\x3f\xe1\x01\x48\x03302\x58\x07private\x61\x1dMon, 21 Oct 2013 20:13:21 GMT\
          \x6e\x17https://www.example.com",
        b"\x48\x03307\xc1\xc0\xbf",
        b"\x88\xc1\x61\x1dMon, 21 Oct 2013 20:13:22 GMT\xc0\x5a\x04gzip\
          \x77\x38foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ];
    let want = [(Some(302), None, ""), (Some(307), None, ""), (Some(200), None, "")];
    check(&plain, &want);
    let huffman: [&[u8]; 2] = [
        b"\x3f\xe1\x01\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b\x61\x96\xd0\x7a\xbe\x94\x10\x54\
          \xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff\x6e\x91\x9d\x29\xad\x17\
          \x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3",
        b"\x48\x83\x64\x0e\xff\xc1\xc0\xbf",
    ];
    check(&huffman, &want[..2]);
}

#[test]
fn forgets_the_oldest_when_the_table_is_full() {
    let status = literal("grpc-status", "7");
    let filler = literal("x-filler", &"y".repeat(100)); // 140 bytes each
    let mut blocks: Vec<&[u8]> = vec![&status];
    blocks.extend([filler.as_slice(); 28]);
    let at = |index: u8| [0x80 | index];
    let (kept, gone) = (at(62 + 28), at(62 + 29));
    blocks.push(&kept);
    assert_eq!(decode(&blocks).pop().unwrap().unwrap().grpc_status, Some(7));
    blocks.pop();
    blocks.push(&filler);
    blocks.push(&gone);
    assert_eq!(decode(&blocks).pop().unwrap(), Err(Malformed), "4,096 bytes hold 29 fillers");
}

#[test]
fn refuses_what_is_no_block() {
    let bad: [&[u8]; 7] = [
        &[0x80],                               // index 0
        &[0xbe],                               // nothing in the table yet
        &[0x48],                               // no value
        &[0x48, 3, b'2', b'0'],                // cut off
        &[0x48, 2, b'o', b'k'],                // no number
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0x01], // too large an index
        &[0x3f, 0xe2, 0x1f],                   // a table larger than agreed
    ];
    for block in bad {
        assert_eq!(decode(&[block]), [Err(Malformed)], "{block:x?}");
    }
}
