//! Tells when rules may have changed on disk.
//!
//! Events of the operating system are hints to look; what decides is a fingerprint of the files'
//! metadata and of the symlinks on the way to them, which is also compared every two seconds for
//! file systems without events. After each change the watches are built anew, since a folder that
//! was replaced or a symlink that was swapped leaves the old ones on what is no longer there.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, Metadata};
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::settings::RulesSource;

/// Events within this time count as one change.
const QUIET: Duration = Duration::from_millis(50);
/// Stretches of [`QUIET`] after which a change is told although events keep coming.
const MOST_STRETCHES: u32 = 10;
/// How often to look without an event.
const POLL: Duration = Duration::from_secs(2);

/// Watches until it is dropped; then `on_change` is not called any more.
#[derive(Debug)]
pub struct Watcher {
    messages: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Message {
    /// Something happened to these paths.
    Touched(Vec<PathBuf>),
    /// Events were lost.
    Unsure,
    Stop,
}

/// Calls `on_change`, from a thread of its own, after every change of the sources. Start it before
/// the first load, so that no change falls between the two.
///
/// A call may come without a change, never the other way round.
///
/// # Errors
///
/// The operating system gives no watches, or no thread.
pub fn watch(
    sources: &[RulesSource],
    on_change: impl Fn() + Send + 'static,
) -> notify::Result<Watcher> {
    let (messages, received) = mpsc::channel();
    let mut state = State {
        sources: sources.iter().map(absolute).collect(),
        messages: messages.clone(),
        watches: None,
        fingerprint: 0,
    };
    state.watches = Some(state.arm()?);
    state.fingerprint = state.look();
    let thread = std::thread::Builder::new()
        .name("rules-watch".to_owned())
        .spawn(move || state.run(&received, on_change))
        .map_err(notify::Error::io)?;
    Ok(Watcher { messages, thread: Some(thread) })
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.messages.send(Message::Stop).is_err() {
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches the rules has panicked");
        }
    }
}

/// Events carry absolute paths.
fn absolute(source: &RulesSource) -> RulesSource {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    RulesSource {
        path: absolute(&source.path),
        ignore_dotfiles: source.ignore_dotfiles,
        swapped_link: source.swapped_link.as_deref().map(absolute),
    }
}

struct State {
    sources: Vec<RulesSource>,
    messages: Sender<Message>,
    /// Held for its drop only.
    watches: Option<RecommendedWatcher>,
    fingerprint: u64,
}

impl State {
    fn run(mut self, received: &Receiver<Message>, on_change: impl Fn()) {
        loop {
            let touched = match received.recv_timeout(POLL) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(first) => match self.settle(first, received) {
                    Some(touched) => touched,
                    None => return,
                },
                Err(RecvTimeoutError::Timeout) => false,
            };
            if !touched && self.look() == self.fingerprint {
                continue;
            }
            // New watches before the look: what changes after it makes an event.
            match self.arm() {
                Ok(watches) => self.watches = Some(watches),
                Err(error) => tracing::warn!(%error, "rules are polled, as they cannot be watched"),
            }
            self.fingerprint = self.look();
            on_change();
        }
    }

    /// Waits until events pause. Whether one was about the sources; `None` to stop.
    fn settle(&self, first: Message, received: &Receiver<Message>) -> Option<bool> {
        let mut touched = self.concerns(first)?;
        for _ in 0..MOST_STRETCHES {
            std::thread::sleep(QUIET);
            let mut quiet = true;
            while let Ok(message) = received.try_recv() {
                quiet = false;
                touched |= self.concerns(message)?;
            }
            if quiet {
                break;
            }
        }
        Some(touched)
    }

    fn concerns(&self, message: Message) -> Option<bool> {
        match message {
            Message::Stop => None,
            Message::Unsure => Some(true),
            Message::Touched(paths) => Some(paths.iter().any(|path| {
                self.sources.iter().any(|source| {
                    path.starts_with(&source.path)
                        || source.swapped_link.as_ref() == Some(path)
                        || fs::canonicalize(&source.path).is_ok_and(|real| path.starts_with(real))
                })
            })),
        }
    }

    /// Watches everything that a change could come through.
    fn arm(&self) -> notify::Result<RecommendedWatcher> {
        let messages = self.messages.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let message = match event {
                Ok(event) if event.need_rescan() => Message::Unsure,
                Ok(Event { kind: EventKind::Access(access), .. }) if is_read(access) => return,
                Ok(event) => Message::Touched(event.paths),
                Err(_) => Message::Unsure,
            };
            // Nobody listens any more while the watcher shuts down.
            drop(messages.send(message));
        })?;
        let mut places = BTreeMap::new();
        for source in &self.sources {
            for path in std::iter::once(&source.path).chain(&source.swapped_link) {
                add_ways_to(path, &mut places);
            }
            add_contents(source, &mut places);
        }
        for (place, mode) in places {
            if let Err(error) = watcher.watch(&place, mode)
                && place.exists()
            {
                tracing::warn!(place = %place.display(), %error, "rules are polled here");
            }
        }
        Ok(watcher)
    }

    fn look(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for source in &self.sources {
            for path in std::iter::once(&source.path).chain(&source.swapped_link) {
                for ancestor in path.ancestors() {
                    fs::read_link(ancestor).ok().hash(&mut hasher);
                }
            }
            if let Some(link) = &source.swapped_link {
                hash_metadata(fs::metadata(link).ok().as_ref(), &mut hasher);
            }
            hash_tree(&source.path, source.ignore_dotfiles, &mut HashSet::new(), &mut hasher);
        }
        hasher.finish()
    }
}

/// Whether an access leaves the content alone; the end of a write does not.
fn is_read(access: notify::event::AccessKind) -> bool {
    use notify::event::{AccessKind, AccessMode};
    !matches!(access, AccessKind::Close(AccessMode::Write))
}

/// The folders in which a step on the way to `path` could be replaced: that of the last step, or
/// of the first one that is missing, and those of all symlinks, down to their targets.
fn add_ways_to(path: &Path, places: &mut BTreeMap<PathBuf, RecursiveMode>) {
    // As many symlinks in a row as Linux follows.
    const MOST_LINKS: usize = 40;
    let mut next = Some(path.to_owned());
    for _ in 0..MOST_LINKS {
        let Some(path) = next.take() else { return };
        let mut is_last = true;
        for step in path.ancestors() {
            let Some(folder) = step.parent() else { break };
            let link = fs::read_link(step).ok();
            if is_last && folder.is_dir() {
                places.entry(folder.to_owned()).or_insert(RecursiveMode::NonRecursive);
                is_last = false;
            } else if link.is_some() {
                places.entry(folder.to_owned()).or_insert(RecursiveMode::NonRecursive);
            }
            if let (Some(link), None) = (link, &next) {
                let rest = path.strip_prefix(step).unwrap_or(Path::new(""));
                next = Some(folder.join(link).join(rest));
            }
        }
    }
}

/// The folder itself with all below it, and the folders of what its symlinks lead to.
fn add_contents(source: &RulesSource, places: &mut BTreeMap<PathBuf, RecursiveMode>) {
    let Ok(real) = fs::canonicalize(&source.path) else { return };
    if !real.is_dir() {
        return;
    }
    let mut seen = HashSet::new();
    let mut folders = vec![real.clone()];
    while let Some(folder) = folders.pop() {
        if !seen.insert(folder.clone()) {
            continue;
        }
        places.entry(folder.clone()).or_insert(RecursiveMode::NonRecursive);
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if is_link {
                add_ways_to(&path, places);
            }
            match fs::canonicalize(&path) {
                Ok(target) if target.is_dir() => folders.push(target),
                _ => {}
            }
        }
    }
}

fn hash_metadata(metadata: Option<&Metadata>, hasher: &mut impl Hasher) {
    let facts = metadata.map(|of| (of.dev(), of.ino(), of.size(), of.mtime(), of.mtime_nsec()));
    facts.hash(hasher);
}

fn hash_tree(
    path: &Path,
    ignore_dotfiles: bool,
    seen: &mut HashSet<(u64, u64)>,
    hasher: &mut impl Hasher,
) {
    path.hash(hasher);
    fs::read_link(path).ok().hash(hasher);
    let metadata = fs::metadata(path).ok();
    hash_metadata(metadata.as_ref(), hasher);
    let Some(folder) = metadata.filter(Metadata::is_dir) else { return };
    // A symlink to a folder above would never end.
    if !seen.insert((folder.dev(), folder.ino())) {
        return;
    }
    let mut names: Vec<_> =
        fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    for name in names {
        if !(ignore_dotfiles && name.as_encoded_bytes().starts_with(b".")) {
            hash_tree(&path.join(name), ignore_dotfiles, seen, hasher);
        }
    }
}

#[cfg(test)]
mod tests;
