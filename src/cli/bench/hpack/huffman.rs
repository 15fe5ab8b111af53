//! The Huffman code of header strings, RFC 7541 appendix B.
//!
//! The code is canonical: the lengths give the codes, in order of length and then of symbol.

use super::Malformed;

/// Bits of the code of each byte.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];
/// No code is longer; only the end mark, which must not occur, shares this length and is last.
const LONGEST: usize = 30;

const CODE: Code = Code::new();

/// Codes of equal length are consecutive numbers from `first`; `symbols` from `start` on are
/// theirs.
struct Code {
    first: [u32; LONGEST + 1],
    count: [u32; LONGEST + 1],
    start: [u32; LONGEST + 1],
    symbols: [u8; 256],
}

impl Code {
    const fn new() -> Self {
        let mut code = Self {
            first: [0; LONGEST + 1],
            count: [0; LONGEST + 1],
            start: [0; LONGEST + 1],
            symbols: [0; 256],
        };
        let (mut length, mut next, mut placed) = (1, 0, 0);
        while length <= LONGEST {
            next <<= 1;
            code.first[length] = next;
            code.start[length] = placed as u32;
            let mut symbol = 0;
            while symbol < 256 {
                if LENGTHS[symbol] as usize == length {
                    code.symbols[placed] = symbol as u8;
                    placed += 1;
                    next += 1;
                }
                symbol += 1;
            }
            code.count[length] = placed as u32 - code.start[length];
            length += 1;
        }
        code
    }
}

/// Appends the text behind `coded` to `into`.
pub(super) fn decode(coded: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
    static TABLE: Code = CODE;
    let (mut bits, mut length) = (0_u32, 0);
    for byte in coded {
        for shift in (0..8).rev() {
            bits = bits << 1 | u32::from(byte >> shift & 1);
            length += 1;
            if length > LONGEST {
                return Err(Malformed);
            }
            let nth = bits.wrapping_sub(TABLE.first[length]);
            if nth < TABLE.count[length] {
                into.push(TABLE.symbols[(TABLE.start[length] + nth) as usize]);
                (bits, length) = (0, 0);
            }
        }
    }
    let is_padding = length < 8 && bits == (1 << length) - 1;
    if is_padding { Ok(()) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(coded: &[u8], want: Option<&[u8]>) {
        let mut text = Vec::new();
        let got = decode(coded, &mut text).ok();
        assert_eq!(got.map(|()| text.as_slice()), want);
    }

    #[test]
    fn decodes_the_examples_of_the_rfc() {
        check(
            &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff],
            Some(b"www.example.com"),
        );
        check(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], Some(b"no-cache"));
        check(&[0x64, 0x02], Some(b"302"));
        check(&[], Some(b""));
    }

    #[test]
    fn refuses_what_is_no_code() {
        check(&[0xff, 0xff, 0xff, 0xff], None); // the end mark
        check(&[0xff], None); // a whole byte of padding
        check(&[0x18], None); // `a`, padded with zeros
    }

    #[test]
    fn lengths_fill_the_code_space_but_for_the_end_mark() {
        let used: u64 =
            LENGTHS.iter().map(|&length| 1_u64 << (LONGEST - usize::from(length))).sum();
        assert_eq!(used, (1 << LONGEST) - 1);
    }
}
