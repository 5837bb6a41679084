//! From a job's id to its shells, and the leader's plan of who takes part.
//!
//! Everything a client does begins like this. The eventlog goes on being
//! watched afterwards, because a request to a shell that leaves in the wrong
//! moment is answered by nobody.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;

use super::Terms;
use super::job::IfPending;
use super::job::JobNews;
use super::job::JobWatcher;
use super::job::Shells;
use super::terms::failure;
use crate::bcast::message::Plan;
use crate::bcast::message::PlanRequest;
use crate::bcast::message::VERSION;
use crate::bcast::report::Failure;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::future::Pending;
use crate::flux::handle::Handle;
use crate::flux::handle::Node;
use crate::flux::reactor::TimerWatcher;
use crate::transfer::edge;

/// What a finder finds.
#[derive(Debug)]
pub(super) enum Found {
    /// The job has not started; it is being waited for.
    Waiting,
    /// The shells, and who takes part.
    Ready {
        /// The plan of the newest request.
        plan: Plan,
        /// The shells' service.
        service: String,
    },
    /// The job is over or does not take part; also after `Ready`.
    Over(Failure),
}

/// See the module's documentation. Dropping it ends the watch.
pub(super) struct Finder {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    handle: Handle,
    job_name: String,
    request: PlanRequest,
    stall: Duration,
    watcher: Option<JobWatcher>,
    /// The job has not started.
    pending: bool,
    shells: Option<Shells>,
    planning: Option<Pending>,
    tell: Rc<dyn Fn(Found)>,
    me: Weak<RefCell<Inner>>,
}

impl Finder {
    /// Starts to look; `tell` is called from the reactor. A leader that is silent
    /// for as long as the terms allow counts as lost.
    ///
    /// # Errors
    /// Those of the connection.
    pub(super) fn start(
        handle: Handle,
        terms: &Terms,
        request: PlanRequest,
        tell: impl Fn(Found) + 'static,
    ) -> Result<Self> {
        let target = &terms.target;
        let inner = Rc::new_cyclic(|me| {
            RefCell::new(Inner {
                handle,
                job_name: target.name.clone(),
                request,
                stall: terms.stall(),
                watcher: None,
                pending: false,
                shells: None,
                planning: None,
                tell: Rc::new(tell),
                me: Weak::clone(me),
            })
        });
        let weak = Rc::downgrade(&inner);
        let if_pending = if target.no_wait {
            IfPending::GiveUp
        } else {
            IfPending::Wait
        };
        let watcher = JobWatcher::start(
            handle,
            target.job,
            target.name.clone(),
            if_pending,
            move |news| Inner::job_says(&weak, news),
        )?;
        inner.borrow_mut().watcher = Some(watcher);
        Ok(Self { inner })
    }

    /// Asks for another plan; [`Found::Ready`] comes again.
    ///
    /// # Errors
    /// Those of the connection.
    pub(super) fn ask_again(&self, request: PlanRequest) -> Result<()> {
        let mut inner = self.inner.borrow_mut();
        inner.request = request;
        inner.ask()
    }
}

/// A finder and the time limit of what begins with it. Dropping it ends both.
pub(super) struct Search {
    _finder: Finder,
    _limit: Option<TimerWatcher>,
}

impl Search {
    /// Starts to look, as [`Finder::start`]; `expired` hears when the time that the
    /// terms allow is over.
    ///
    /// # Errors
    /// Those of the connection.
    pub(super) fn start(
        handle: Handle,
        terms: &Terms,
        request: PlanRequest,
        found: impl Fn(Found) + 'static,
        expired: impl Fn(Failure) + 'static,
    ) -> Result<Self> {
        let finder = Finder::start(handle, terms, request, found)?;
        let weak = Rc::downgrade(&finder.inner);
        let limit = terms.limit(handle.reactor()?, move |why| {
            if let Some(inner) = weak.upgrade() {
                let why = inner.borrow().explain(why);
                expired(why);
            }
        })?;
        Ok(Self {
            _finder: finder,
            _limit: limit,
        })
    }
}

/// Why something took too long: says so, if it was the start of the job.
pub(super) fn explain(finder: &Option<Finder>, why: Failure) -> Failure {
    match finder {
        Some(finder) => finder.inner.borrow().explain(why),
        None => why,
    }
}

impl Inner {
    fn explain(&self, why: Failure) -> Failure {
        if !self.pending {
            return why;
        }
        Failure {
            text: format!("{}; the job has not started", why.text),
            ..why
        }
    }

    fn tell(this: &Rc<RefCell<Self>>, found: Found) {
        let tell = Rc::clone(&this.borrow().tell);
        tell(found);
    }

    fn job_says(weak: &Weak<RefCell<Self>>, news: JobNews) {
        let Some(this) = weak.upgrade() else { return };
        match news {
            JobNews::Pending => {
                this.borrow_mut().pending = true;
                Self::tell(&this, Found::Waiting);
            }
            JobNews::Ready(shells) => {
                let asked = {
                    let mut inner = this.borrow_mut();
                    inner.pending = false;
                    inner.shells = Some(shells);
                    inner.ask()
                };
                if let Err(error) = asked {
                    Self::tell(&this, Found::Over(failure(&error)));
                }
            }
            JobNews::Over(failure) => Self::tell(&this, Found::Over(failure)),
        }
    }

    fn ask(&mut self) -> Result<()> {
        let Some(shells) = &self.shells else {
            return Ok(());
        };
        let weak = self.me.clone();
        let topic = format!("{}.bcast.plan", shells.service);
        let node = Node::Rank(shells.leader_broker);
        let future = self.handle.rpc_json(&topic, &self.request, node)?;
        self.planning = Some(future.then(Some(self.stall), move |future| {
            let Some(this) = weak.upgrade() else { return };
            match future.get_json::<Plan>() {
                Ok(plan) => Self::planned(&this, plan),
                Err(error) => Self::plan_failed(&this, &error),
            }
        })?);
        Ok(())
    }

    fn planned(this: &Rc<RefCell<Self>>, plan: Plan) {
        let service = match &this.borrow().shells {
            Some(shells) => shells.service.clone(),
            None => return,
        };
        let checked = if plan.version == VERSION {
            this.borrow().request.check(&plan)
        } else {
            Err(format!("the job's plugin speaks protocol {}", plan.version))
        };
        let found = match checked {
            Ok(()) => Found::Ready { plan, service },
            Err(text) => Found::Over(Failure::client(libc::EPROTO, text)),
        };
        Self::tell(this, found);
    }

    fn plan_failed(this: &Rc<RefCell<Self>>, error: &Error) {
        let (errno, text) = edge::explain(error);
        let name = this.borrow().job_name.clone();
        let text = match errno {
            Errno::ENOSYS => format!(
                "job {name} does not have the flux-bcast plugin in its shells; submit it with \
                 -o userrc=FILE where FILE loads it, or have it installed for all jobs"
            ),
            Errno::ESHUTDOWN => {
                // The job is ending; its eventlog says how, and is watched.
                let patient = match &this.borrow().watcher {
                    Some(watcher) => watcher.expect_end(),
                    None => false,
                };
                if patient {
                    return;
                }
                format!("job {name} has no running shells")
            }
            Errno::ETIMEDOUT => format!("the leader shell of job {name} gives no answer"),
            _ => text,
        };
        Self::tell(this, Found::Over(Failure::client(errno.raw(), text)));
    }
}

impl fmt::Debug for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finder").finish_non_exhaustive()
    }
}
