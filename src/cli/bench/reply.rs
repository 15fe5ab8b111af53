//! The decision in a reply, read without decoding the rest of it.

/// `overall_code` of a reply that the generator takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Ok,
    OverLimit,
}

/// Field number of `overall_code`.
const OVERALL_CODE: u64 = 1;

/// The overall code of an encoded `RateLimitResponse`; `None` if it has none or is malformed.
pub(super) fn overall_code(mut message: &[u8]) -> Option<Code> {
    let mut code = 0;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let skip = match tag & 7 {
            0 => {
                let value = varint(&mut message)?;
                if tag >> 3 == OVERALL_CODE {
                    code = value;
                }
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        message = message.get(skip..)?;
    }
    match code {
        1 => Some(Code::Ok),
        2 => Some(Code::OverLimit),
        _ => None,
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus;

    #[test]
    fn finds_the_code_among_other_fields() {
        for (code, want) in
            [(0, None), (1, Some(Code::Ok)), (2, Some(Code::OverLimit)), (3, None), (-1, None)]
        {
            let response = RateLimitResponse {
                overall_code: code,
                statuses: vec![
                    DescriptorStatus {
                        code: 2,
                        limit_remaining: 300,
                        ..Default::default()
                    };
                    3
                ],
                raw_body: vec![8, 1, 8, 1].into(),
                ..Default::default()
            };
            assert_eq!(overall_code(&response.encode_to_vec()), want, "{code}");
        }
    }

    #[test]
    fn refuses_what_is_no_message() {
        let bad: [&[u8]; 6] =
            [&[], &[8], &[8, 0xff], &[8, 1, 0x12, 5, 1], &[8, 1, 0x0b], &[0xff; 11]];
        for message in bad {
            assert_eq!(overall_code(message), None, "{message:?}");
        }
    }
}
