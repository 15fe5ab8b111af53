//! The whole service, made from settings.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::reload::Reloader;
use super::{Addresses, BindError, Health, LimiterFactory, Parts, RunError, Server, Stop};
use crate::clock::Clock;
use crate::key::KeyCodec;
use crate::limiter::{Context, Limiter};
use crate::rules::{self, RulesError, RulesHandle};
use crate::settings::{RedisUrl, Settings, StoreSettings, StoreUrl};
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::{Combine, DenyCache, StoreError, StoreStack};
use crate::telemetry::Metrics;

/// How often expired counters leave the embedded store, and gauges are set.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(250);

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
            limiter: limiters(settings, context, stores.clone(), clock),
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
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
            loop {
                ticks.tick().await;
                stores.keep_up(&metrics);
            }
        });
        let ended = self.server.run(stop).await;
        drop(self.watcher);
        ended
    }
}

/// The embedded store is one for all workers; of Redis, each has connections of its own.
#[derive(Debug, Clone)]
enum Stores {
    Memory(Arc<MemoryStore>),
    Redis { url: RedisUrl, denied: Arc<DenyCache>, all: Arc<Mutex<Vec<Arc<RedisStore>>>> },
}

impl Stores {
    fn try_new(settings: &Settings, clock: &Clock) -> Result<Self, StoreError> {
        Ok(match &settings.store.url {
            StoreUrl::Memory => {
                Self::Memory(Arc::new(MemoryStore::new(&settings.store.memory, clock.clone())))
            }
            StoreUrl::Redis(url) => {
                RedisStore::check_url(url)?;
                let denied = Arc::new(DenyCache::new(settings.store.deny_cache_bytes));
                Self::Redis { url: url.clone(), denied, all: Arc::default() }
            }
        })
    }

    /// What a worker decides with; to be called on its runtime.
    fn stack(&self, settings: &StoreSettings, clock: Clock) -> StoreStack {
        match self {
            Self::Memory(memory) => StoreStack::Memory(Arc::clone(memory)),
            Self::Redis { url, denied, all } => {
                #[expect(clippy::expect_used, reason = "`try_new` has checked the address")]
                let redis = RedisStore::new(url, settings, clock).expect("a checked address");
                let redis = Arc::new(redis);
                all.lock().push(Arc::clone(&redis));
                StoreStack::Redis(Arc::clone(denied), Combine::new(redis, settings.timeout))
            }
        }
    }

    /// Removes what has expired, and tells how things are.
    fn keep_up(&self, metrics: &Metrics) {
        match self {
            Self::Memory(memory) => {
                memory.sweep();
                metrics.set_memory(memory.stats());
            }
            Self::Redis { denied, all, .. } => {
                metrics.set_deny_cache_hits(denied.hits());
                metrics.set_store_commands(all.lock().iter().map(|redis| redis.commands()).sum());
            }
        }
    }
}

fn limiters(
    settings: &Settings,
    context: Arc<Context>,
    stores: Stores,
    clock: Clock,
) -> LimiterFactory {
    let mut store = settings.store.clone();
    store.connections = store.connections.div_ceil(settings.grpc.workers.max(1));
    Arc::new(move |_| Limiter::new(Arc::clone(&context), stores.stack(&store, clock.clone())))
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
