//! The whole service, made from settings.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::reload::Reloader;
use super::{Addresses, BindError, Health, LimiterFactory, Parts, RunError, Server, Stop};
use crate::clock::Clock;
use crate::key::KeyCodec;
use crate::limiter::{Context, Limiter};
use crate::rules::{self, RulesError, RulesHandle};
use crate::settings::{RedisUrl, Settings, StoreSettings, StoreUrl};
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::{Combine, DenyCache, Leased, Leases, StoreError, StoreStack};
use crate::telemetry::Metrics;

/// How often expired counters leave the embedded store, and gauges are set.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(250);

/// How long the end may take to give leases back.
const LAST_LEASES: Duration = Duration::from_secs(1);

/// A service whose rules are loaded and whose listeners are bound.
pub struct App {
    server: Server,
    stores: Stores,
    metrics: Arc<Metrics>,
    /// Reloads the rules as long as it is held.
    watcher: rules::Watcher,
}

/// Why a service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the rules have faults\n{}", .0.render())]
    Rules(RulesError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("redis cannot be used")]
    Store(#[source] StoreError),
    #[error("rules files cannot be watched")]
    Watch(#[source] notify::Error),
    #[error("no event queue or signal handler")]
    System(#[from] io::Error),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Serves until SIGTERM, SIGINT or SIGHUP.
///
/// # Errors
///
/// The service does not start.
pub fn run(settings: &Settings) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = Stop::on_signals()?;
        App::start(settings)?.run(stop).await?;
        Ok(())
    })
}

impl App {
    /// Validates everything, then binds.
    ///
    /// # Errors
    ///
    /// The rules have faults and starting without rules is not allowed, an address is taken, or
    /// that of Redis makes no sense. An absent Redis is no error: calls fail until it is there.
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::default());
        let rules = Arc::new(RulesHandle::default());
        let health = Health::default();
        let clock = Clock::System;
        let reloader = Arc::new(Reloader::new(
            settings,
            Arc::clone(&rules),
            Arc::clone(&metrics),
            health.clone(),
            clock.clone(),
        ));
        let reload = {
            let reloader = Arc::clone(&reloader);
            move || {
                // What is wrong with the rules has been told.
                reloader.reload().ok();
            }
        };
        let watcher = rules::watch(&settings.rules.sources, reload).map_err(StartError::Watch)?;
        if settings.rules.start_without_rules {
            reloader.reload().ok();
        } else {
            reloader.load().map_err(StartError::Rules)?;
        }
        let context = Arc::new(Context::new(
            Arc::clone(&rules),
            KeyCodec::new(&settings.store.key_prefix),
            settings.mode.clone(),
            &settings.response,
            Arc::clone(&metrics),
            clock.clone(),
        ));
        let stores = Stores::try_new(settings, &clock).map_err(StartError::Store)?;
        let parts = Parts {
            limiter: limiters(settings, context, stores.clone()),
            metrics: Arc::clone(&metrics),
            rules: Arc::new(move || rules_text(&rules)),
            health,
        };
        let server = Server::bind(settings, parts)?;
        Ok(Self { server, stores, metrics, watcher })
    }

    pub fn addresses(&self) -> Addresses {
        self.server.addresses()
    }

    /// Answers calls until `stop` asks to end.
    ///
    /// # Errors
    ///
    /// The server did not start.
    pub async fn run(self, stop: Stop) -> Result<(), RunError> {
        let (stores, metrics) = (self.stores, self.metrics);
        if let Stores::Memory(_) = stores {
            tracing::info!("counters are kept in this process, other replicas have their own");
        }
        let (end, ended) = oneshot::channel();
        let upkeep = tokio::spawn(stores.keep_up(metrics, ended));
        let served = self.server.run(stop).await;
        drop(self.watcher);
        drop(end);
        if let Err(error) = upkeep.await {
            tracing::warn!(%error, "leases are not given back");
        }
        served
    }
}

/// The embedded store is one for all workers, and so are leases; of Redis, each has connections of
/// its own.
#[derive(Debug, Clone)]
enum Stores {
    Memory(Arc<MemoryStore>),
    Redis(Arc<RedisParts>),
}

#[derive(Debug)]
struct RedisParts {
    url: RedisUrl,
    settings: StoreSettings,
    clock: Clock,
    leases: Arc<Leases>,
    denied: Arc<DenyCache>,
    /// One per worker, and one that gives leases back.
    stores: Mutex<Vec<Arc<RedisStore>>>,
}

impl RedisParts {
    /// A store with `connections`, which live on the current runtime.
    fn open(&self, connections: usize) -> Arc<RedisStore> {
        let settings = StoreSettings { connections, ..self.settings.clone() };
        let store = RedisStore::new(&self.url, &settings, self.clock.clone());
        #[expect(clippy::expect_used, reason = "`Stores::try_new` has checked the address")]
        let store = Arc::new(store.expect("a checked address"));
        self.stores.lock().push(Arc::clone(&store));
        store
    }

    fn commands(&self) -> u64 {
        self.stores.lock().iter().map(|store| store.commands()).sum()
    }
}

impl Stores {
    fn try_new(settings: &Settings, clock: &Clock) -> Result<Self, StoreError> {
        Ok(match &settings.store.url {
            StoreUrl::Memory => {
                Self::Memory(Arc::new(MemoryStore::new(&settings.store.memory, clock.clone())))
            }
            StoreUrl::Redis(url) => {
                RedisStore::check_url(url)?;
                Self::Redis(Arc::new(RedisParts {
                    url: url.clone(),
                    settings: settings.store.clone(),
                    clock: clock.clone(),
                    leases: Arc::new(Leases::new(clock.clone())),
                    denied: Arc::new(DenyCache::new(settings.store.deny_cache_bytes)),
                    stores: Mutex::default(),
                }))
            }
        })
    }

    /// What a worker decides with, over its share of the connections; to be called on its runtime.
    fn stack(&self, connections: usize) -> StoreStack {
        match self {
            Self::Memory(memory) => StoreStack::Memory(Arc::clone(memory)),
            Self::Redis(parts) => {
                let redis = parts.open(connections);
                let limit = parts.settings.timeout;
                let below = Combine::new(Arc::clone(&redis), limit);
                StoreStack::Redis {
                    denied: Arc::clone(&parts.denied),
                    store: Leased::new(Arc::clone(&parts.leases), redis, below, limit),
                }
            }
        }
    }

    /// Removes what has expired or is not used, and tells how things are, until `end`; then gives
    /// back what is left.
    async fn keep_up(self, metrics: Arc<Metrics>, mut end: oneshot::Receiver<()>) {
        let redis = match &self {
            Self::Memory(_) => None,
            Self::Redis(parts) => Some((parts, parts.open(1))),
        };
        let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
        loop {
            tokio::select! {
                _ = &mut end => break,
                _ = ticks.tick() => {}
            }
            if let Self::Memory(memory) = &self {
                memory.sweep();
                metrics.set_memory(memory.stats());
            }
            if let Some((parts, store)) = &redis {
                parts.leases.keep_up(&**store).await;
                metrics.set_store_commands(parts.commands());
                metrics.set_leases(parts.leases.stats());
                metrics.set_deny_cache_hits(parts.denied.hits());
            }
        }
        if let Some((parts, store)) = &redis {
            // What is not given back by then stays counted until its window ends.
            _ = timeout(LAST_LEASES, parts.leases.close(&**store)).await;
        }
    }
}

fn limiters(settings: &Settings, context: Arc<Context>, stores: Stores) -> LimiterFactory {
    let connections = settings.store.connections.div_ceil(settings.grpc.workers.max(1));
    Arc::new(move |_| Limiter::new(Arc::clone(&context), stores.stack(connections)))
}

/// What `/rlconfig` shows: why the newest rules are refused, if they are, and those in force.
fn rules_text(rules: &RulesHandle) -> String {
    let rejected = rules.status().last_error.map_or_else(String::new, |error| {
        format!(
            "# the newest rules are refused, these stay in force:\n# {}\n",
            error.replace('\n', "\n# ")
        )
    });
    rejected + &rules.load().dump()
}
