//! What everything that a client does has in common: which job, who takes part,
//! how fast and how long; and that it can be called off.

use std::time::Duration;

use crate::bcast::id::TransferId;
use crate::bcast::message::PlanRequest;
use crate::bcast::message::Tuning;
use crate::bcast::report::Failure;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::job::JobId;
use crate::flux::reactor::Reactor;
use crate::flux::reactor::TimerWatcher;

/// The job that a client turns to.
#[derive(Clone, Debug)]
pub struct Target {
    /// The job.
    pub job: JobId,
    /// How the user calls it, for messages.
    pub name: String,
    /// A job that has not started is not waited for: EAGAIN.
    pub no_wait: bool,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The job.
    pub target: Target,
    /// Which ranks take part.
    pub plan: PlanRequest,
    /// How data flows, and how long a peer may be silent.
    pub tuning: Tuning,
    /// Time limit for everything.
    pub timeout: Option<Duration>,
}

impl Terms {
    /// How long a peer may be silent.
    pub(super) fn stall(&self) -> Duration {
        Duration::from_secs_f64(self.tuning.stall)
    }

    /// Lets `expired` hear when the time limit is over, if there is one.
    ///
    /// # Errors
    /// Those of the reactor.
    pub(super) fn limit(
        &self,
        reactor: Reactor,
        expired: impl Fn(Failure) + 'static,
    ) -> Result<Option<TimerWatcher>> {
        let timer = |timeout: Duration| {
            TimerWatcher::new(reactor, timeout, None, move || {
                let text = format!("the time limit of {} s has expired", timeout.as_secs_f64());
                expired(Failure::client(libc::ETIMEDOUT, text));
            })
        };
        self.timeout.map(timer).transpose()
    }
}

/// Something that goes on for a caller. Dropping it calls it off without a word.
pub trait Running {
    /// Calls it off. The end follows, which says why: soon, if ranks have to
    /// answer first, else at once.
    fn call_off(&self, why: Failure);

    /// How many ranks are done, verified.
    fn verified(&self) -> u32 {
        0
    }

    /// The transfer's id, if it is a transfer.
    fn transfer_id(&self) -> Option<TransferId> {
        None
    }

    /// As [`Running::call_off`], with ECANCELED.
    fn cancel(&self, text: &str) {
        self.call_off(Failure::client(libc::ECANCELED, text));
    }
}

/// An error of this side.
pub(super) fn failure(error: &Error) -> Failure {
    Failure::client(error.errno().raw(), error.to_string())
}
