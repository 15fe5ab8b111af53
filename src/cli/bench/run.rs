//! One run: connect, warm up, measure, end, whatever the server does.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use super::BenchError;
use super::calls::Tally;
use super::connection::Connection;
use super::driver::{Driver, Job, Signals};
use super::keys::Sampler;
use super::load::{Length, Load, share};
use super::outcome::{Ending, Outcome};
use super::pace::{Pace, Schedule};
use super::probes::Probes;
use super::request::Writer;
use super::watch::{Answered, Ended, Watch};

/// How long answers are waited for when all is sent.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Header blocks by index need the table that every peer starts with.
const HEADER_TABLE_BYTES: u32 = 4096;
const SEED: u64 = 0x746f_6c6c;

/// Runs `load` once. `label` names the run in the progress on a terminal.
///
/// # Errors
///
/// The run could not begin. What happens afterwards is part of the outcome.
pub(super) fn run(
    load: &Load,
    probes: &mut Probes,
    interrupted: &AtomicBool,
    label: &str,
) -> Result<Outcome, BenchError> {
    let mut jobs = Vec::new();
    for index in 0..load.connections {
        jobs.push(prepare(load, index)?);
    }
    let answered: Vec<Answered> = jobs.iter().map(|_| Answered::default()).collect();
    let mut total = Tally::try_new()?;
    let before = if load.warmup.is_zero() { Some(probes.first()?) } else { None };
    let signals = Signals::start();
    if before.is_some() {
        signals.measure_all();
    }
    let (sender, events) = mpsc::channel();
    thread::scope(|scope| {
        let threads: Vec<_> = jobs
            .into_iter()
            .zip(&answered)
            .map(|((connection, job), answered)| {
                let driver = Driver::new(connection, job, &signals, &answered.0);
                let sender = sender.clone();
                scope.spawn(move || drive(driver, &sender))
            })
            .collect();
        let mut watch = Watch::new(events, interrupted, &answered, signals.began, label);

        let give_up = |error| {
            signals.stop();
            signals.abandon();
            Err(error)
        };
        let early = if before.is_some() { None } else { watch.wait(load.warmup) };
        if let Some(Ending::Lost(reason)) = early {
            return give_up(BenchError::LostInWarmup(reason));
        }
        let before = match before {
            Some(before) => before,
            None => {
                signals.measure();
                match probes.first() {
                    Ok(before) => before,
                    Err(error) => return give_up(error),
                }
            }
        };
        let ending =
            early.or_else(|| watch.wait(load.length.longest())).unwrap_or(match load.length {
                Length::Time(_) => Ending::Complete,
                Length::Calls(..) => Ending::OutOfTime,
            });
        signals.stop();
        let costs = probes.since(&before);
        watch.wait_for_all(LAST_ANSWERS);
        signals.abandon();
        for thread in threads {
            total.add(&thread.join().map_err(|_| BenchError::Thread)?);
        }
        Ok(Outcome {
            tally: total,
            elapsed: signals.measured(),
            ending,
            processes: costs.processes,
            redis: costs.redis,
            client_cpu: costs.client.cpu,
            progress: watch.finish(),
        })
    })
}

/// Opens connection `index` and lays out what it will do.
fn prepare(load: &Load, index: usize) -> Result<(Connection, Job), BenchError> {
    let target = &load.targets[index % load.targets.len()];
    let connection = Connection::open(target.addr)?;
    let (index, connections) = (index as u64, load.connections as u64);
    let body_bytes = load.question.body_bytes();
    let wanted = share(load.in_flight as u64, index, connections).max(1) as usize;
    let job = Job {
        writer: Writer::new(
            &load.question,
            &target.authority,
            connection.peer.header_table_bytes >= HEADER_TABLE_BYTES,
        ),
        sampler: Sampler::new(load.keys.clone(), SEED, load.first_key, index, connections),
        schedule: Schedule::new(load.pace, SEED, index, connections),
        pace: load.pace,
        tally: Tally::try_new()?,
        body_bytes,
        in_flight: connection.allow(wanted, load.pace == Pace::OnAnswer, body_bytes)?,
        quota: load.length.quota(index, connections),
    };
    Ok((connection, job))
}

/// Runs `driver` to its end and tells how it ended.
fn drive(driver: Driver<'_>, ended: &Sender<Ended>) -> Tally {
    let (tally, lost) = driver.run();
    // Nobody listens any more once the run was given up.
    let _told = ended.send(Ended { lost: lost.map(|lost| lost.to_string()) });
    tally
}
