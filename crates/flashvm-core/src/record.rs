//! Recorded runs: what an engine was told and what it answered, so that a live run can be replayed.
//!
//! An engine is deterministic but for one thing that it asks of its surroundings: clusters. A
//! [`RecordingClusters`] notes those answers, a [`Recording`] keeps them with the events and
//! actions, and [`replay`] gives the same to a fresh engine and reports the first difference.
//! As JSON lines, a recording is its configuration and then one step a line.

use crate::clusters::ClusterSource;
use crate::engine::Engine;
use crate::event::{Action, Event};
use crate::ids::{ClusterId, Nanos};
use crate::settings::EngineConfig;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::VecDeque;

/// What a cluster source was asked, and what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterAnswer {
    /// It was asked for a cluster and gave this one.
    Leased(Option<ClusterId>),
    /// It was given a cluster back.
    Released(ClusterId),
    /// It was asked whether a cluster is shared.
    Shared(ClusterId, bool),
}

/// One event, and all that came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When it was handled.
    pub now: Nanos,
    /// What had happened.
    pub event: Event,
    /// What the cluster source said meanwhile.
    pub clusters: Vec<ClusterAnswer>,
    /// What the engine answered.
    pub actions: Vec<Action>,
}

/// A run from its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// What the engine was made from.
    pub config: EngineConfig,
    /// All that followed, in order.
    pub steps: Vec<Step>,
}

/// A cluster source that notes what it is asked and says.
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

    /// Takes the answers since the last call: those of one step.
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

/// A cluster source that says what was recorded, and notes whether it is asked the same.
#[derive(Debug, Default)]
pub struct ReplayClusters {
    expected: RefCell<VecDeque<ClusterAnswer>>,
    differs: RefCell<bool>,
}

impl ReplayClusters {
    pub(crate) fn load(&mut self, answers: &[ClusterAnswer]) {
        self.expected.get_mut().extend(answers);
    }

    /// Whether exactly what was recorded has been asked for.
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

/// Why a replay differs from its recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// The recorded configuration makes no engine.
    #[error("the recorded configuration is not valid: {0}")]
    Config(#[from] crate::settings::ConfigError),
    /// The engine answered otherwise.
    #[error("step {step}: {event:?} gave {got:?} instead of {expected:?}")]
    Actions {
        /// Index of the step.
        step: usize,
        /// Its event.
        event: Event,
        /// What was recorded.
        expected: Vec<Action>,
        /// What the fresh engine answered.
        got: Vec<Action>,
    },
    /// The engine asked its cluster source for something else.
    #[error("step {step}: {event:?} used clusters otherwise than recorded")]
    Clusters {
        /// Index of the step.
        step: usize,
        /// Its event.
        event: Event,
    },
}

/// Gives a fresh engine the recorded events.
///
/// # Errors
/// The first difference.
pub fn replay(recording: &Recording) -> Result<(), Difference> {
    let mut engine = Engine::new(recording.config.clone(), ReplayClusters::default())?;
    let mut got = Vec::new();
    for (step, recorded) in recording.steps.iter().enumerate() {
        engine.clusters_mut().load(&recorded.clusters);
        engine.handle(recorded.now, &recorded.event, &mut got);
        if got != recorded.actions {
            return Err(Difference::Actions {
                step,
                event: recorded.event.clone(),
                expected: recorded.actions.clone(),
                got,
            });
        }
        if !engine.clusters_mut().agrees() {
            return Err(Difference::Clusters {
                step,
                event: recorded.event.clone(),
            });
        }
        got.clear();
    }
    Ok(())
}
