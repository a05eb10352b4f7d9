//! `cfq`: each process in turn has the device for a time slice. Within it the device is left idle for
//! a moment when the process has no request. Requests that no thread waits for have a turn of their
//! own.

use super::{Merges, Next, Queued, Scheduler, merge, take_upward};
use flashvm_core::Nanos;
use std::collections::VecDeque;

/// Linux's time slices: 100 ms for a process, 40 ms for all requests that no thread waits for.
const SYNC_SLICE: Nanos = Nanos(100_000_000);
const ASYNC_SLICE: Nanos = Nanos(40_000_000);

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Process(u32),
    Nobody,
}

struct Turn {
    owner: Owner,
    until: Nanos,
    /// Without a request of the owner, the device is left idle until then.
    idle_until: Option<Nanos>,
}

#[derive(Default)]
pub(super) struct Cfq {
    /// Idle time within a slice.
    idle: Nanos,
    /// Requests by owner, in the order of turns.
    waiting: VecDeque<(Owner, VecDeque<Queued>)>,
    turn: Option<Turn>,
    head: u32,
}

impl Cfq {
    pub(super) fn new(idle: Nanos) -> Self {
        Self {
            idle,
            ..Self::default()
        }
    }

    fn queue(&mut self, owner: Owner) -> Option<&mut VecDeque<Queued>> {
        let found = self.waiting.iter_mut().find(|(of, _)| *of == owner);
        found
            .map(|(_, queue)| queue)
            .filter(|queue| !queue.is_empty())
    }

    /// Gives the turn to the next owner with requests; returns whether there is one.
    fn pass_on(&mut self, now: Nanos) -> bool {
        self.waiting.retain(|(_, queue)| !queue.is_empty());
        let Some((owner, queue)) = self.waiting.pop_front() else {
            self.turn = None;
            return false;
        };
        self.waiting.push_back((owner, queue));
        let slice = match owner {
            Owner::Process(_) => SYNC_SLICE,
            Owner::Nobody => ASYNC_SLICE,
        };
        self.turn = Some(Turn {
            owner,
            until: now.plus(slice),
            idle_until: None,
        });
        true
    }
}

impl Scheduler for Cfq {
    fn add(&mut self, request: Queued) {
        let owner = if request.demanded {
            Owner::Process(request.process)
        } else {
            Owner::Nobody
        };
        let at = self.waiting.iter().position(|(of, _)| *of == owner);
        let at = at.unwrap_or_else(|| {
            self.waiting.push_back((owner, VecDeque::new()));
            self.waiting.len() - 1
        });
        let queue = &mut self.waiting[at].1;
        if !merge(queue.iter_mut(), &request, Merges::Both) {
            queue.push_back(request);
        }
    }

    fn next(&mut self, now: Nanos) -> Next {
        if self.waiting.iter().all(|(_, queue)| queue.is_empty()) {
            return Next::Empty;
        }
        if let Some(turn) = &self.turn {
            let (owner, until) = (turn.owner, turn.until);
            let idle_until = turn
                .idle_until
                .filter(|_| matches!(owner, Owner::Process(_)));
            let has_some = self.queue(owner).is_some();
            if now >= until || !has_some {
                if let Some(idle) = idle_until
                    && now < until
                    && now < idle
                {
                    return Next::Wait(idle.min(until));
                }
                self.pass_on(now);
            }
        } else {
            self.pass_on(now);
        }
        let owner = self.turn.as_ref().expect("somebody has something").owner;
        let head = self.head;
        let queue = self.queue(owner).expect("it has something");
        let next = take_upward(queue, head).expect("it has something");
        self.head = next.request.first() + next.request.pages();
        Next::Dispatch(next)
    }

    fn completed(&mut self, now: Nanos, process: u32, demanded: bool) {
        if let Some(turn) = &mut self.turn
            && demanded
            && turn.owner == Owner::Process(process)
        {
            turn.idle_until = Some(now.plus(self.idle));
        }
    }
}
