//! Reads header blocks of replies: RFC 7541, the decoding half.
//!
//! Keeps what the generator judges a reply by and the sizes of everything else, so a block made
//! of indexes, which is what a server sends from its second reply on, costs no allocation.
//!
//! Invariant: the table here evicts exactly when the peer's does, or later indexes would lie.

mod huffman;

use std::collections::VecDeque;

/// What both sides start with; the generator never asks for another size.
const TABLE_BYTES: usize = 4096;
/// What an entry counts for beyond its name and value, RFC 7541 section 4.1.
const ENTRY_OVERHEAD: usize = 32;
const STATIC_ENTRIES: usize = 61;
/// Lengths of the names in the static table, RFC 7541 appendix A.
const STATIC_NAME_LENGTHS: [u8; STATIC_ENTRIES] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14,
    16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10,
    25, 17, 10, 4, 3, 16,
];
/// The `:status` entries of the static table, from index 8 on.
const STATIC_STATUS: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
const FIRST_STATUS: usize = 8;

/// The block does not follow RFC 7541.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The fields of a block that a reply is judged by.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Headers {
    /// HTTP status.
    pub(super) status: Option<u16>,
    pub(super) grpc_status: Option<u16>,
    /// Still percent-encoded.
    pub(super) grpc_message: String,
}

impl Headers {
    pub(super) fn clear(&mut self) {
        (self.status, self.grpc_status) = (None, None);
        self.grpc_message.clear();
    }

    fn take(&mut self, field: &Field) {
        match field {
            Field::Status(status) => self.status = Some(*status),
            Field::GrpcStatus(status) => self.grpc_status = Some(*status),
            Field::GrpcMessage(message) => self.grpc_message.clone_from(message),
            Field::Other => {}
        }
    }
}

/// The decoding side of one connection.
#[derive(Debug)]
pub(super) struct Decoder {
    /// Newest first.
    table: VecDeque<Entry>,
    bytes: usize,
    max_bytes: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    field: Field,
    name_len: usize,
    value_len: usize,
}

#[derive(Debug)]
enum Field {
    Status(u16),
    GrpcStatus(u16),
    GrpcMessage(String),
    Other,
}

#[derive(Debug, Clone, Copy)]
enum Name {
    Status,
    GrpcStatus,
    GrpcMessage,
    Other,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: VecDeque::new(),
            bytes: 0,
            max_bytes: TABLE_BYTES,
            name: Vec::new(),
            value: Vec::new(),
        }
    }
}

impl Decoder {
    /// Adds the fields of `block` to `headers`.
    ///
    /// # Errors
    ///
    /// After one, the connection cannot be read any further.
    pub(super) fn decode(
        &mut self,
        mut block: &[u8],
        headers: &mut Headers,
    ) -> Result<(), Malformed> {
        while let Some(&first) = block.first() {
            match first {
                0x80.. => {
                    let index = integer(&mut block, 7)?;
                    self.indexed(index, headers)?;
                }
                0x40..0x80 => self.literal(&mut block, 6, headers)?,
                0x20..0x40 => self.resize(integer(&mut block, 5)?)?,
                _ => self.literal(&mut block, 4, headers)?,
            }
        }
        Ok(())
    }

    fn indexed(&self, index: usize, headers: &mut Headers) -> Result<(), Malformed> {
        match index {
            0 => Err(Malformed),
            1..=STATIC_ENTRIES => {
                let status = index.checked_sub(FIRST_STATUS).and_then(|i| STATIC_STATUS.get(i));
                headers.status = status.copied().or(headers.status);
                Ok(())
            }
            _ => {
                let entry = self.table.get(index - STATIC_ENTRIES - 1).ok_or(Malformed)?;
                headers.take(&entry.field);
                Ok(())
            }
        }
    }

    /// A literal whose first byte keeps `prefix` bits of the name's index; 6 enter the table.
    fn literal(
        &mut self,
        block: &mut &[u8],
        prefix: u32,
        headers: &mut Headers,
    ) -> Result<(), Malformed> {
        let (name, name_len) = match integer(block, prefix)? {
            0 => {
                string(block, &mut self.name)?;
                (Name::of(&self.name), self.name.len())
            }
            index => self.name_at(index)?,
        };
        string(block, &mut self.value)?;
        let field = Field::new(name, &self.value)?;
        headers.take(&field);
        if prefix == 6 {
            self.insert(Entry { field, name_len, value_len: self.value.len() });
        }
        Ok(())
    }

    fn name_at(&self, index: usize) -> Result<(Name, usize), Malformed> {
        if let Some(&length) = STATIC_NAME_LENGTHS.get(index - 1) {
            let is_status = (FIRST_STATUS..FIRST_STATUS + STATIC_STATUS.len()).contains(&index);
            return Ok((if is_status { Name::Status } else { Name::Other }, length.into()));
        }
        let entry = self.table.get(index - STATIC_ENTRIES - 1).ok_or(Malformed)?;
        Ok((entry.field.name(), entry.name_len))
    }

    fn insert(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.table.push_front(entry);
        self.evict();
    }

    fn resize(&mut self, max_bytes: usize) -> Result<(), Malformed> {
        if max_bytes > TABLE_BYTES {
            return Err(Malformed);
        }
        self.max_bytes = max_bytes;
        self.evict();
        Ok(())
    }

    fn evict(&mut self) {
        while self.bytes > self.max_bytes {
            let Some(oldest) = self.table.pop_back() else { return };
            self.bytes -= oldest.bytes();
        }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        self.name_len + self.value_len + ENTRY_OVERHEAD
    }
}

impl Field {
    fn new(name: Name, value: &[u8]) -> Result<Self, Malformed> {
        Ok(match name {
            Name::Status => Self::Status(number(value).ok_or(Malformed)?),
            Name::GrpcStatus => Self::GrpcStatus(number(value).ok_or(Malformed)?),
            Name::GrpcMessage => Self::GrpcMessage(String::from_utf8_lossy(value).into_owned()),
            Name::Other => Self::Other,
        })
    }

    fn name(&self) -> Name {
        match self {
            Self::Status(_) => Name::Status,
            Self::GrpcStatus(_) => Name::GrpcStatus,
            Self::GrpcMessage(_) => Name::GrpcMessage,
            Self::Other => Name::Other,
        }
    }
}

impl Name {
    fn of(name: &[u8]) -> Self {
        match name {
            b":status" => Self::Status,
            b"grpc-status" => Self::GrpcStatus,
            b"grpc-message" => Self::GrpcMessage,
            _ => Self::Other,
        }
    }
}

fn number(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// An integer whose first byte keeps `prefix` bits of it, RFC 7541 section 5.1.
fn integer(block: &mut &[u8], prefix: u32) -> Result<usize, Malformed> {
    let full = (1 << prefix) - 1;
    let mut value = usize::from(next(block)?) & full;
    if value < full {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = usize::from(next(block)?);
        value += (byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// A string, plain or Huffman-coded, RFC 7541 section 5.2.
fn string(block: &mut &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
    let coded = *block.first().ok_or(Malformed)? >= 0x80;
    let length = integer(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(Malformed)?;
    *block = rest;
    into.clear();
    if coded {
        return huffman::decode(text, into);
    }
    into.extend_from_slice(text);
    Ok(())
}

fn next(block: &mut &[u8]) -> Result<u8, Malformed> {
    let (&first, rest) = block.split_first().ok_or(Malformed)?;
    *block = rest;
    Ok(first)
}

#[cfg(test)]
mod tests;
