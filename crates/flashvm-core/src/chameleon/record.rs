//! Recorded runs of small pages: the events and actions of an engine, for the replay of live runs.
//!
//! An engine is deterministic except for the answers of its [`Host`] and its clusters.
//! [`RecordingHost`] records each call with its answer; [`replay`] gives the same answers to a
//! fresh engine and reports the first difference. A recording is JSON lines: the configuration,
//! then one step a line.

use super::{
    Action, BackPointer, Config, Engine, Event, Failure, FrameId, Host, Refused, Request, Shape,
    Svmp, Task,
};
use crate::record::{ClusterAnswer, RecordingClusters, ReplayClusters};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// A call of the engine to its host; the answer is the last field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// [`Host::map`]; false: refused.
    Map(Svmp, u32, FrameId, bool),
    /// [`Host::unmap`]; false: refused.
    Unmap(Svmp, u32, bool),
    /// [`Host::fill_zeros`].
    FillZeros(FrameId, Shape),
    /// [`Host::is_zero`].
    IsZero(FrameId, Shape, bool),
    /// [`Host::checksum`].
    Checksum(FrameId, Shape, u64),
    /// [`Host::drop_frame`].
    DropFrame(FrameId),
    /// [`Host::block_pointers`].
    BlockPointers(Option<Vec<BackPointer>>),
    /// [`Host::block_checksum`].
    BlockChecksum(BackPointer, u64),
    /// [`Host::keep`].
    Keep(BackPointer, u32),
    /// [`Host::gather`].
    Gather(FrameId, Shape, u32, u64),
    /// [`Host::write_header`].
    WriteHeader(Vec<BackPointer>),
    /// [`Host::frames_target`].
    FramesTarget(u32),
    /// [`Host::borrow_frames`].
    BorrowFrames(u32, u32),
    /// [`Host::return_frames`].
    ReturnFrames(u32),
    /// [`Host::commit`].
    Commit(u64, bool),
    /// [`Host::uncommit`].
    Uncommit(u64),
    /// [`Host::store_blocks`].
    StoreBlocks((u32, u32)),
    /// [`Host::call_writer`].
    CallWriter,
    /// [`Host::tell_lost`].
    TellLost(Svmp, Shape),
}

/// One event, and its consequences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The task.
    pub task: u64,
    /// The request, if the task begins with this step.
    pub request: Option<Request>,
    /// The event.
    pub event: Event,
    /// The engine's calls to its host, with their answers.
    pub calls: Vec<Call>,
    /// The answers of the cluster source.
    pub clusters: Vec<ClusterAnswer>,
    /// The engine's decision.
    pub action: Action,
}

/// A run from its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The configuration of the engine.
    pub config: Config,
    /// All steps, in order.
    pub steps: Vec<Step>,
}

/// A host that records its calls and answers.
#[derive(Debug)]
pub struct RecordingHost<'a, H> {
    /// The host that answers.
    pub inner: &'a mut H,
    /// The recorded calls.
    pub calls: Vec<Call>,
}

impl<H: Host> Host for RecordingHost<'_, H> {
    fn map(&mut self, first: Svmp, count: u32, frame: FrameId) -> Result<(), Refused> {
        let answer = self.inner.map(first, count, frame);
        let call = Call::Map(first, count, frame, answer.is_ok());
        self.calls.push(call);
        answer
    }

    fn unmap(&mut self, first: Svmp, count: u32) -> Result<(), Refused> {
        let answer = self.inner.unmap(first, count);
        self.calls.push(Call::Unmap(first, count, answer.is_ok()));
        answer
    }

    fn fill_zeros(&mut self, frame: FrameId, shape: Shape) {
        self.inner.fill_zeros(frame, shape);
        self.calls.push(Call::FillZeros(frame, shape));
    }

    fn is_zero(&mut self, frame: FrameId, shape: Shape) -> bool {
        let answer = self.inner.is_zero(frame, shape);
        self.calls.push(Call::IsZero(frame, shape, answer));
        answer
    }

    fn checksum(&mut self, frame: FrameId, shape: Shape) -> u64 {
        let answer = self.inner.checksum(frame, shape);
        self.calls.push(Call::Checksum(frame, shape, answer));
        answer
    }

    fn drop_frame(&mut self, frame: FrameId) {
        self.inner.drop_frame(frame);
        self.calls.push(Call::DropFrame(frame));
    }

    fn block_pointers(&mut self) -> Option<Vec<BackPointer>> {
        let answer = self.inner.block_pointers();
        self.calls.push(Call::BlockPointers(answer.clone()));
        answer
    }

    fn block_checksum(&mut self, page: &BackPointer) -> u64 {
        let answer = self.inner.block_checksum(page);
        self.calls.push(Call::BlockChecksum(*page, answer));
        answer
    }

    fn keep(&mut self, page: &BackPointer, sector: u32) {
        self.inner.keep(page, sector);
        self.calls.push(Call::Keep(*page, sector));
    }

    fn gather(&mut self, frame: FrameId, shape: Shape, to: u32) -> u64 {
        let answer = self.inner.gather(frame, shape, to);
        self.calls.push(Call::Gather(frame, shape, to, answer));
        answer
    }

    fn write_header(&mut self, pointers: &[BackPointer]) {
        self.inner.write_header(pointers);
        self.calls.push(Call::WriteHeader(pointers.to_vec()));
    }

    fn frames_target(&mut self) -> u32 {
        let answer = self.inner.frames_target();
        self.calls.push(Call::FramesTarget(answer));
        answer
    }

    fn borrow_frames(&mut self, more: u32) -> u32 {
        let answer = self.inner.borrow_frames(more);
        self.calls.push(Call::BorrowFrames(more, answer));
        answer
    }

    fn return_frames(&mut self, frames: u32) {
        self.inner.return_frames(frames);
        self.calls.push(Call::ReturnFrames(frames));
    }

    fn commit(&mut self, pages: u64) -> bool {
        let answer = self.inner.commit(pages);
        self.calls.push(Call::Commit(pages, answer));
        answer
    }

    fn uncommit(&mut self, pages: u64) {
        self.inner.uncommit(pages);
        self.calls.push(Call::Uncommit(pages));
    }

    fn store_blocks(&mut self) -> (u32, u32) {
        let answer = self.inner.store_blocks();
        self.calls.push(Call::StoreBlocks(answer));
        answer
    }

    fn call_writer(&mut self) {
        self.inner.call_writer();
        self.calls.push(Call::CallWriter);
    }

    fn tell_lost(&mut self, page: Svmp, shape: Shape) {
        self.inner.tell_lost(page, shape);
        self.calls.push(Call::TellLost(page, shape));
    }

    fn fail(&self, why: Failure) -> ! {
        self.inner.fail(why)
    }
}

/// A host that gives the recorded answers. It does not check the calls: [`replay`] compares them.
#[derive(Debug, Default)]
struct Answers(VecDeque<Call>);

impl Host for Answers {
    fn map(&mut self, _: Svmp, _: u32, _: FrameId) -> Result<(), Refused> {
        let done = matches!(self.0.pop_front(), Some(Call::Map(.., true)));
        done.then_some(()).ok_or(Refused)
    }

    fn unmap(&mut self, _: Svmp, _: u32) -> Result<(), Refused> {
        let done = matches!(self.0.pop_front(), Some(Call::Unmap(.., true)));
        done.then_some(()).ok_or(Refused)
    }

    fn fill_zeros(&mut self, _: FrameId, _: Shape) {
        self.0.pop_front();
    }

    fn is_zero(&mut self, _: FrameId, _: Shape) -> bool {
        matches!(self.0.pop_front(), Some(Call::IsZero(.., true)))
    }

    fn checksum(&mut self, _: FrameId, _: Shape) -> u64 {
        match self.0.pop_front() {
            Some(Call::Checksum(.., answer)) => answer,
            _ => 0,
        }
    }

    fn drop_frame(&mut self, _: FrameId) {
        self.0.pop_front();
    }

    fn block_pointers(&mut self) -> Option<Vec<BackPointer>> {
        match self.0.pop_front() {
            Some(Call::BlockPointers(answer)) => answer,
            _ => None,
        }
    }

    fn block_checksum(&mut self, _: &BackPointer) -> u64 {
        match self.0.pop_front() {
            Some(Call::BlockChecksum(.., answer)) => answer,
            _ => 0,
        }
    }

    fn keep(&mut self, _: &BackPointer, _: u32) {
        self.0.pop_front();
    }

    fn gather(&mut self, _: FrameId, _: Shape, _: u32) -> u64 {
        match self.0.pop_front() {
            Some(Call::Gather(.., answer)) => answer,
            _ => 0,
        }
    }

    fn write_header(&mut self, _: &[BackPointer]) {
        self.0.pop_front();
    }

    fn frames_target(&mut self) -> u32 {
        match self.0.pop_front() {
            Some(Call::FramesTarget(answer)) => answer,
            _ => u32::MAX,
        }
    }

    fn borrow_frames(&mut self, _: u32) -> u32 {
        match self.0.pop_front() {
            Some(Call::BorrowFrames(_, answer)) => answer,
            _ => 0,
        }
    }

    fn return_frames(&mut self, _: u32) {
        self.0.pop_front();
    }

    fn commit(&mut self, _: u64) -> bool {
        matches!(self.0.pop_front(), Some(Call::Commit(_, true)))
    }

    fn uncommit(&mut self, _: u64) {
        self.0.pop_front();
    }

    fn store_blocks(&mut self) -> (u32, u32) {
        match self.0.pop_front() {
            Some(Call::StoreBlocks(answer)) => answer,
            _ => (0, 0),
        }
    }

    fn call_writer(&mut self) {
        self.0.pop_front();
    }

    fn tell_lost(&mut self, _: Svmp, _: Shape) {
        self.0.pop_front();
    }

    fn fail(&self, why: Failure) -> ! {
        panic!("the replay ends the process: {why}")
    }
}

/// The first difference between a replay and its recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {at}: {expected:?} became {got:?}")]
pub struct Difference {
    /// Index of the step.
    pub at: usize,
    /// What was recorded.
    pub expected: Box<Step>,
    /// What the fresh engine did.
    pub got: Box<Step>,
}

/// Gives the recorded events to a fresh engine.
///
/// # Errors
/// The first difference.
///
/// # Panics
/// If a step belongs to a task that has not begun.
pub fn replay(recording: &Recording) -> Result<(), Difference> {
    let clusters = RecordingClusters::new(ReplayClusters::default());
    let mut engine = Engine::new(recording.config, clusters);
    let mut tasks: HashMap<u64, Task> = HashMap::new();
    for (at, expected) in recording.steps.iter().enumerate() {
        if let Some(request) = &expected.request {
            tasks.insert(expected.task, Task::new(request));
        }
        let task = tasks
            .get_mut(&expected.task)
            .expect("a task that has begun");
        let mut answers = Answers(expected.calls.iter().cloned().collect());
        let mut host = RecordingHost {
            inner: &mut answers,
            calls: Vec::new(),
        };
        let clusters = engine.clusters_mut();
        clusters.inner_mut().load(&expected.clusters);
        let action = engine.handle(&mut host, task, expected.event);
        let got = Step {
            calls: host.calls,
            clusters: engine.clusters_mut().take_log(),
            action,
            ..expected.clone()
        };
        if got != *expected {
            return Err(Difference {
                at,
                expected: Box::new(expected.clone()),
                got: Box::new(got),
            });
        }
        if matches!(action, Action::Done(_)) {
            tasks.remove(&expected.task);
        }
    }
    Ok(())
}
