//! Whatever bytes come in, an answer goes out, and the next good call is served.

use bytes::{Buf, BufMut, Bytes};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use prost::Message;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use tollgate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::http::ask;
use crate::support::process::{HANG, Process};
use crate::support::wire::descriptor;

const RULES: &str = "domain: d\n\
                     descriptors:\n\
                     - key: k\n\
                     \x20 rate_limit: { requests_per_unit: 4000000000, unit: day }\n\
                     - key: ip\n\
                     \x20 value: 10.0.0.0/8\n\
                     \x20 match: cidr\n\
                     \x20 rate_limits:\n\
                     \x20 - { requests_per_unit: 3, unit: second, algorithm: gcra }\n\
                     \x20 - { requests_per_unit: 3, unit: hour, algorithm: sliding_window_log }\n\
                     - key: path\n\
                     \x20 value: /*/x*\n\
                     \x20 rate_limit: { requests_per_unit: 2, unit: minute, algorithm: token_bucket }\n";
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const GOOD_JSON: &str = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
const GOOD_CHECK: &str = r#"{"domain":"d","entries":{"k":"v"},"hits":1}"#;

/// A server for all cases of a test.
struct Rig {
    runtime: Runtime,
    channel: Channel,
    server: Process,
    _folder: TempDir,
}

impl Rig {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("rules.yaml");
        std::fs::write(&file, RULES).unwrap();
        let server = Process::serve(&["--rules", file.to_str().unwrap()]);
        let runtime = crate::support::runtime();
        let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Self { runtime, channel, server, _folder: folder }
    }

    /// The answer to these bytes as a message.
    fn send(&self, message: Vec<u8>) -> Result<Bytes, Status> {
        self.runtime.block_on(async {
            let mut client = tonic::client::Grpc::new(self.channel.clone());
            client.ready().await.unwrap();
            let path = http::uri::PathAndQuery::from_static(SHOULD_RATE_LIMIT);
            let answer = client.unary(Request::new(Bytes::from(message)), path, Raw);
            let answer = timeout(HANG, answer).await.expect("an answer in time");
            answer.map(tonic::Response::into_inner)
        })
    }

    /// The status of the answer to a body at `path`.
    fn post(&self, path: &str, body: &[u8]) -> u16 {
        let answer = ask(self.server.http, "POST", path, body);
        let answer = self.runtime.block_on(async { timeout(HANG, answer).await });
        answer.expect("an answer in time").status
    }

    /// Still served, by both ports, and nothing panicked.
    fn assert_well(&self) {
        self.send(good().encode_to_vec()).expect("a good call is served");
        assert_eq!(self.post("/json", GOOD_JSON.as_bytes()), 200);
        assert_eq!(self.post("/v1/check", GOOD_CHECK.as_bytes()), 200);
        let log = self.server.log();
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// Sends and takes messages as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

fn good() -> RateLimitRequest {
    RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor(&[("k", "v")])],
        hits_addend: 0,
    }
}

/// Numbers at the edges of what fields hold.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        select(vec![0, 1, 2, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX]),
        any::<u64>()
    ]
}

/// Requests that are well formed and odd.
fn request() -> impl Strategy<Value = RateLimitRequest> {
    let entry = (select(vec!["k", "ip", "path", ""]), "[k/x*10.:]{0,12}");
    let limit = (any::<u32>(), -1..9, proptest::option::of(any::<u32>()));
    let parts = (vec(entry, 0..4), proptest::option::of(limit), proptest::option::of(number()));
    (select(vec!["d", "e", ""]), vec(parts, 0..4), any::<u32>()).prop_map(
        |(domain, descriptors, hits_addend)| {
            let descriptors = descriptors.into_iter().map(|(entries, limit, hits)| {
                let entries: Vec<_> =
                    entries.iter().map(|(key, value)| (*key, value.as_str())).collect();
                let mut descriptor = descriptor(&entries);
                descriptor.hits_addend = hits;
                descriptor.limit = limit.map(|(requests_per_unit, unit, unit_multiplier)| {
                    RateLimitOverride { requests_per_unit, unit, unit_multiplier }
                });
                descriptor
            });
            RateLimitRequest {
                domain: domain.to_owned(),
                descriptors: descriptors.collect(),
                hits_addend,
            }
        },
    )
}

/// What happens to a message on its way.
#[derive(Debug, Clone)]
enum Damage {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Cut(Index),
    Repeat(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<Index>(), vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        any::<Index>().prop_map(Damage::Cut),
        any::<Index>().prop_map(Damage::Repeat),
    ]
}

fn apply(damages: &[Damage], mut bytes: Vec<u8>) -> Vec<u8> {
    for damage in damages {
        let length = bytes.len();
        match damage {
            Damage::Set(at, byte) if length > 0 => bytes[at.index(length)] = *byte,
            Damage::Set(..) => {}
            Damage::Insert(at, more) => {
                let at = at.index(length + 1);
                bytes.splice(at..at, more.iter().copied());
            }
            Damage::Cut(at) => bytes.truncate(at.index(length + 1)),
            Damage::Repeat(at) => bytes.extend_from_within(at.index(length + 1)..),
        }
    }
    bytes
}

/// JSON values, some of them of the shapes that are asked for.
fn json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "[a-z\\\\\"\u{0}é😀]{0,5}".prop_map(Value::from),
        select(vec!["d", "k", "v", "MINUTE", "18446744073709551615", "-1"]).prop_map(Value::from),
    ];
    let key = select(vec![
        "domain",
        "descriptors",
        "entries",
        "key",
        "value",
        "hits",
        "hits_addend",
        "hitsAddend",
        "limit",
        "unit",
        "requests_per_unit",
        "k",
        "x",
    ]);
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((key.clone(), inner.clone()), 0..5).prop_map(|fields| {
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
            (inner.clone(), inner.clone(), inner).prop_map(|(descriptors, entries, hits)| json!({
                "domain": "d", "descriptors": [descriptors], "entries": entries, "hits": hits
            })),
        ]
    })
}

/// What a client can be told about its own request.
fn is_answer(answer: &Result<Bytes, Status>) -> bool {
    answer.as_ref().err().is_none_or(|status| {
        let code = status.code();
        matches!(
            code,
            // The last two are the reference's for an empty domain and a message that is none.
            Code::InvalidArgument | Code::ResourceExhausted | Code::Unknown | Code::Internal
        )
    })
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

#[test]
fn any_bytes_as_a_message_are_answered() {
    let rig = Rig::start();
    proptest!(config(), |(bytes in vec(any::<u8>(), 0..200))| {
        let answer = rig.send(bytes);
        prop_assert!(is_answer(&answer), "{answer:?}");
        rig.assert_well();
    });
}

#[test]
fn odd_and_damaged_requests_are_answered() {
    let rig = Rig::start();
    proptest!(config(), |(request in request(), damages in vec(damage(), 0..4))| {
        let answer = rig.send(apply(&damages, request.encode_to_vec()));
        prop_assert!(is_answer(&answer), "{answer:?}");
        rig.assert_well();
    });
}

#[test]
fn any_json_is_answered() {
    let rig = Rig::start();
    proptest!(config(), |(value in json(), damages in vec(damage(), 0..3))| {
        let whole = value.to_string().into_bytes();
        for body in [apply(&damages, whole.clone()), whole] {
            for path in ["/json", "/v1/check"] {
                let status = rig.post(path, &body);
                prop_assert!(matches!(status, 200 | 400 | 429), "{path}: {status}");
            }
        }
        rig.assert_well();
    });
}
