//! Recorded runs: the events and actions of an engine, for the replay of live runs.
//!
//! An engine is deterministic except for one thing that it asks of its executor: clusters.
//! [`RecordingClusters`] records those answers, a [`Recording`] keeps them with the events and
//! actions, and [`replay`] feeds them to a fresh engine and reports the first difference; a [`Follower`] does so
//! step by step. A recording is JSON lines: the configuration, then one step a line.

use crate::clusters::ClusterSource;
use crate::engine::Engine;
use crate::event::{Action, Event};
use crate::ids::{ClusterId, IoId, Nanos, PageId};
use crate::settings::EngineConfig;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::VecDeque;

/// A call to a cluster source, with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterAnswer {
    /// The source leased this cluster, or had none.
    Leased(Option<ClusterId>),
    /// The source took this cluster back.
    Released(ClusterId),
    /// Whether this cluster is shared.
    Shared(ClusterId, bool),
}

/// One event, and its consequences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When the event was handled.
    pub now: Nanos,
    /// The thread that reported it, by the kernel's number; 0: unknown.
    #[serde(default)]
    pub thread: u32,
    /// The event.
    pub event: Event,
    /// The answers of the cluster source.
    pub clusters: Vec<ClusterAnswer>,
    /// The engine's actions.
    pub actions: Vec<Action>,
}

/// A run from its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The configuration of the engine.
    pub config: EngineConfig,
    /// All steps, in order.
    pub steps: Vec<Step>,
}

/// A cluster source that records its calls and answers.
#[derive(Clone, Debug)]
pub struct RecordingClusters<C> {
    inner: C,
    log: RefCell<Vec<ClusterAnswer>>,
}

impl<C> RecordingClusters<C> {
    /// Wraps a source.
    pub fn new(inner: C) -> Self {
        Self {
            inner,
            log: RefCell::new(Vec::new()),
        }
    }

    /// Takes the answers since the last call.
    pub fn take_log(&mut self) -> Vec<ClusterAnswer> {
        std::mem::take(self.log.get_mut())
    }

    /// The wrapped source.
    pub fn inner_mut(&mut self) -> &mut C {
        &mut self.inner
    }
}

impl<C: ClusterSource> ClusterSource for RecordingClusters<C> {
    fn lease(&mut self) -> Option<ClusterId> {
        let cluster = self.inner.lease();
        self.log.get_mut().push(ClusterAnswer::Leased(cluster));
        cluster
    }

    fn release(&mut self, cluster: ClusterId) {
        self.log.get_mut().push(ClusterAnswer::Released(cluster));
        self.inner.release(cluster);
    }

    fn shared(&self, cluster: ClusterId) -> bool {
        let shared = self.inner.shared(cluster);
        let answer = ClusterAnswer::Shared(cluster, shared);
        self.log.borrow_mut().push(answer);
        shared
    }
}

/// A cluster source that gives the recorded answers, and notes whether the calls agree.
#[derive(Debug, Default)]
pub struct ReplayClusters {
    expected: RefCell<VecDeque<ClusterAnswer>>,
    differs: RefCell<bool>,
}

impl ReplayClusters {
    pub(crate) fn load(&mut self, answers: &[ClusterAnswer]) {
        self.expected.get_mut().extend(answers);
    }

    /// Whether all calls agreed with the recording.
    fn agrees(&self) -> bool {
        self.expected.borrow().is_empty() && !*self.differs.borrow()
    }

    fn next(&self) -> Option<ClusterAnswer> {
        let next = self.expected.borrow_mut().pop_front();
        *self.differs.borrow_mut() |= next.is_none();
        next
    }

    fn differ(&self) {
        *self.differs.borrow_mut() = true;
    }
}

impl ClusterSource for ReplayClusters {
    fn lease(&mut self) -> Option<ClusterId> {
        if let Some(ClusterAnswer::Leased(cluster)) = self.next() {
            return cluster;
        }
        self.differ();
        None
    }

    fn release(&mut self, cluster: ClusterId) {
        if self.next() != Some(ClusterAnswer::Released(cluster)) {
            self.differ();
        }
    }

    fn shared(&self, cluster: ClusterId) -> bool {
        if let Some(ClusterAnswer::Shared(expected, shared)) = self.next()
            && expected == cluster
        {
            return shared;
        }
        self.differ();
        true
    }
}

/// The first difference between a replay and its recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// The recorded configuration is invalid.
    #[error("the recorded configuration is not valid: {0}")]
    Config(#[from] crate::settings::ConfigError),
    /// The engine's actions differ.
    #[error("step {step}: {event:?} gave {got:?} instead of {expected:?}")]
    Actions {
        /// Index of the step.
        step: usize,
        /// Its event.
        event: Box<Event>,
        /// What was recorded.
        expected: Vec<Action>,
        /// What the fresh engine answered.
        got: Vec<Action>,
    },
    /// The engine's calls to its cluster source differ.
    #[error("step {step}: {event:?} used clusters otherwise than recorded")]
    Clusters {
        /// Index of the step.
        step: usize,
        /// Its event.
        event: Box<Event>,
    },
}

/// Gives the recorded events to a fresh engine.
///
/// # Errors
/// The first difference.
pub fn replay(recording: &Recording) -> Result<(), Difference> {
    let mut follower = Follower::new(recording.config.clone())?;
    recording
        .steps
        .iter()
        .try_for_each(|step| follower.step(step))
}

/// An engine that follows a recording step by step: it knows what the recorded one knew.
pub struct Follower {
    engine: Engine<ReplayClusters>,
    got: Vec<Action>,
    steps: usize,
}

impl Follower {
    /// An engine before the first step.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: EngineConfig) -> Result<Self, Difference> {
        Ok(Self {
            engine: Engine::new(config, ReplayClusters::default())?,
            got: Vec::new(),
            steps: 0,
        })
    }

    /// Takes the next step.
    ///
    /// # Errors
    /// If the engine decides otherwise than was recorded.
    pub fn step(&mut self, recorded: &Step) -> Result<(), Difference> {
        self.got.clear();
        self.engine.clusters_mut().load(&recorded.clusters);
        self.engine
            .handle(recorded.now, &recorded.event, &mut self.got);
        let step = self.steps;
        self.steps += 1;
        let event = || Box::new(recorded.event.clone());
        if self.got != recorded.actions {
            return Err(Difference::Actions {
                step,
                event: event(),
                expected: recorded.actions.clone(),
                got: std::mem::take(&mut self.got),
            });
        }
        match self.engine.clusters_mut().agrees() {
            true => Ok(()),
            false => Err(Difference::Clusters {
                step,
                event: event(),
            }),
        }
    }

    /// The pages of a request that has not ended.
    #[must_use]
    pub fn io_pages(&self, io: IoId) -> &[PageId] {
        self.engine.io_pages(io)
    }
}
