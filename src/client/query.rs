//! Asks every target rank of a job the same question.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Running;
use super::Terms;
use super::finder::Found;
use super::finder::Search;
use super::terms::failure;
use crate::bcast::message::Plan;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;
use crate::errno::Errno;
use crate::file::Inspection;
use crate::flux::error::Context;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::future::Pending;
use crate::flux::handle::Handle;
use crate::flux::handle::Node;
use crate::transfer::ask::Had;
use crate::transfer::ask::Has;
use crate::transfer::ask::Inspect;
use crate::transfer::ask::Known;
use crate::transfer::ask::Listing;
use crate::transfer::ask::Remove;
use crate::transfer::ask::Removed;
use crate::transfer::edge;
use crate::transfer::edge::Link;

/// So many ranks are asked at once.
const AT_ONCE: usize = 64;

/// A question, and in `T` what kind of answer it has.
#[derive(Debug)]
pub struct Question<T> {
    method: &'static str,
    payload: Value,
    answer: std::marker::PhantomData<T>,
}

impl<T> Question<T> {
    fn new(method: &'static str, payload: &impl Serialize) -> Result<Self> {
        Ok(Self {
            method,
            payload: serde_json::to_value(payload).context("encode a question")?,
            answer: std::marker::PhantomData,
        })
    }
}

impl Question<Inspection> {
    /// What would copies of these names find, of which `dirs` are directories?
    ///
    /// # Errors
    /// None in practice.
    pub fn inspect(
        dest: Dest,
        policy: Policy,
        names: Vec<RawName>,
        dirs: Vec<RawName>,
    ) -> Result<Self> {
        Self::new(
            "inspect",
            &Inspect {
                version: VERSION,
                dest,
                policy,
                names,
                dirs,
            },
        )
    }
}

impl Question<Had> {
    /// Are these files there?
    ///
    /// # Errors
    /// None in practice.
    pub fn has(dest: Dest, files: Vec<Known>) -> Result<Self> {
        Self::new(
            "has",
            &Has {
                version: VERSION,
                dest,
                files,
            },
        )
    }
}

impl Question<Listing> {
    /// What has the service put there?
    ///
    /// # Errors
    /// None in practice.
    pub fn list() -> Result<Self> {
        Self::new("list", &serde_json::json!({}))
    }
}

impl Question<Removed> {
    /// Remove what the service has put there: all of it, or `paths`.
    ///
    /// # Errors
    /// None in practice.
    pub fn remove(paths: Option<Vec<RawName>>) -> Result<Self> {
        let remove = Remove {
            all: paths.is_none(),
            paths: paths.unwrap_or_default(),
        };
        Self::new("remove", &remove)
    }
}

/// What the asker hears.
#[derive(Debug)]
pub enum QueryEvent<T> {
    /// The job has not started; it is being waited for.
    Waiting,
    /// The end; nothing more comes.
    Answered(Answers<T>),
}

/// All answers.
#[derive(Debug)]
pub struct Answers<T> {
    /// By rank.
    pub ranks: BTreeMap<u32, std::result::Result<T, Failure>>,
    /// Why nobody could be asked, or not everybody.
    pub why: Option<Failure>,
    /// Host names of all ranks of the job, if known.
    pub hosts: Vec<String>,
}

/// A question that is being asked. Dropping it gives it up.
pub struct Query<T> {
    inner: Rc<RefCell<Inner<T>>>,
}

struct Inner<T> {
    handle: Handle,
    question: Question<T>,
    patience: Duration,
    listener: Rc<dyn Fn(QueryEvent<T>)>,
    search: Option<Search>,
    service: String,
    /// Rank and broker of those not yet asked, the next one last.
    todo: Vec<(u32, u32)>,
    asked: BTreeMap<u32, Pending>,
    answers: BTreeMap<u32, std::result::Result<T, Failure>>,
    hosts: Vec<String>,
    ended: bool,
    me: Weak<RefCell<Inner<T>>>,
}

impl<T: DeserializeOwned + 'static> Query<T> {
    /// Finds the job's shells and asks those of the plan. A rank that gives no
    /// answer in time has failed. `listener` is called from the reactor only,
    /// never from here.
    ///
    /// # Errors
    /// Those of the connection. All else comes as [`QueryEvent::Answered`].
    pub fn start(
        handle: Handle,
        terms: &Terms,
        question: Question<T>,
        listener: impl Fn(QueryEvent<T>) + 'static,
    ) -> Result<Self> {
        let inner = Inner::new(handle, question, terms.stall(), Rc::new(listener));
        let weak = Rc::downgrade(&inner);
        let found = move |found| {
            let Some(this) = weak.upgrade() else { return };
            match found {
                Found::Waiting => Inner::tell(&this, QueryEvent::Waiting),
                Found::Ready { plan, service } => Inner::ask_all(&this, &plan, service),
                Found::Over(failure) => Inner::end(&this, Some(failure)),
            }
        };
        let weak = Rc::downgrade(&inner);
        let expired = move |why| {
            if let Some(this) = weak.upgrade() {
                Inner::expired(&this, why);
            }
        };
        let search = Search::start(handle, terms, terms.plan.clone(), found, expired)?;
        inner.borrow_mut().search = Some(search);
        Ok(Self { inner })
    }

    /// Asks the shells of a plan that is known already.
    pub(super) fn of_plan(
        handle: Handle,
        plan: &Plan,
        service: String,
        question: Question<T>,
        patience: Duration,
        listener: impl Fn(QueryEvent<T>) + 'static,
    ) -> Self {
        let inner = Inner::new(handle, question, patience, Rc::new(listener));
        Inner::ask_all(&inner, plan, service);
        Self { inner }
    }

    /// The time is over: ranks that have not answered have failed.
    pub(super) fn expire(&self, why: Failure) {
        Inner::expired(&self.inner, why);
    }
}

/// [`QueryEvent::Answered`] comes at once when it is given up.
impl<T: DeserializeOwned + 'static> Running for Query<T> {
    fn call_off(&self, why: Failure) {
        Inner::end(&self.inner, Some(why));
    }
}

impl<T: DeserializeOwned + 'static> Inner<T> {
    fn new(
        handle: Handle,
        question: Question<T>,
        patience: Duration,
        listener: Rc<dyn Fn(QueryEvent<T>)>,
    ) -> Rc<RefCell<Self>> {
        Rc::new_cyclic(|me| {
            RefCell::new(Self {
                handle,
                question,
                patience,
                listener,
                search: None,
                service: String::new(),
                todo: Vec::new(),
                asked: BTreeMap::new(),
                answers: BTreeMap::new(),
                hosts: Vec::new(),
                ended: false,
                me: Weak::clone(me),
            })
        })
    }

    fn tell(this: &Rc<RefCell<Self>>, event: QueryEvent<T>) {
        let listener = Rc::clone(&this.borrow().listener);
        listener(event);
    }

    fn end(this: &Rc<RefCell<Self>>, why: Option<Failure>) {
        let answers = {
            let mut inner = this.borrow_mut();
            if inner.ended {
                return;
            }
            inner.ended = true;
            inner.search = None;
            inner.asked.clear();
            Answers {
                ranks: std::mem::take(&mut inner.answers),
                why,
                hosts: std::mem::take(&mut inner.hosts),
            }
        };
        Self::tell(this, QueryEvent::Answered(answers));
    }

    /// The time is over: ranks that have not answered have failed; if none was
    /// asked yet, all has.
    fn expired(this: &Rc<RefCell<Self>>, why: Failure) {
        let nobody = {
            let mut inner = this.borrow_mut();
            let todo = std::mem::take(&mut inner.todo);
            let silent = todo.iter().map(|(rank, _)| *rank);
            let silent: Vec<u32> = silent.chain(inner.asked.keys().copied()).collect();
            let error = Error::new(Errno::ETIMEDOUT);
            for rank in &silent {
                inner.answers.insert(*rank, Err(refusal(*rank, &error)));
            }
            silent.is_empty()
        };
        Self::end(this, nobody.then_some(why));
    }

    fn ask_all(this: &Rc<RefCell<Self>>, plan: &Plan, service: String) {
        let signed = this.borrow().payload(plan, &service);
        let payload = match signed {
            Ok(payload) => payload,
            Err(error) => {
                return Self::end(this, Some(failure(&error)));
            }
        };
        {
            let mut inner = this.borrow_mut();
            inner.question.payload = payload;
            inner.service = service;
            inner.hosts.clone_from(&plan.hosts);
            let mut ranks = plan.tree.ranks().to_vec();
            ranks.sort_unstable_by(|a, b| b.cmp(a));
            for rank in ranks {
                match plan.brokers.get(rank as usize) {
                    Some(broker) => inner.todo.push((rank, *broker)),
                    None => {
                        let text = "its broker is not known";
                        let failure = Failure::on(rank, libc::EHOSTUNREACH, text);
                        inner.answers.insert(rank, Err(failure));
                    }
                }
            }
        }
        Self::go_on(this);
    }

    /// What is sent to all of them.
    fn payload(&self, plan: &Plan, service: &str) -> Result<Value> {
        let link = Link {
            handle: self.handle,
            service: service.to_owned(),
            broker: plan.root_broker,
        };
        let ranks = plan.tree.ranks().iter().copied().collect();
        link.payload(self.question.method, ranks, &self.question.payload)
    }

    fn go_on(this: &Rc<RefCell<Self>>) {
        let over = {
            let mut inner = this.borrow_mut();
            if inner.ended {
                return;
            }
            while inner.asked.len() < AT_ONCE
                && let Some((rank, broker)) = inner.todo.pop()
            {
                match inner.ask(rank, broker) {
                    Ok(pending) => {
                        inner.asked.insert(rank, pending);
                    }
                    Err(error) => {
                        let failure = refusal(rank, &error);
                        inner.answers.insert(rank, Err(failure));
                    }
                }
            }
            inner.asked.is_empty()
        };
        if over {
            Self::end(this, None);
        }
    }

    fn ask(&self, rank: u32, broker: u32) -> Result<Pending> {
        let topic = format!("{}.bcast.{}", self.service, self.question.method);
        let me = Weak::clone(&self.me);
        self.handle
            .rpc_json(&topic, &self.question.payload, Node::Rank(broker))?
            .then(Some(self.patience), move |future| {
                let Some(this) = me.upgrade() else { return };
                let answer = future
                    .get_json::<T>()
                    .map_err(|error| refusal(rank, &error));
                {
                    let mut inner = this.borrow_mut();
                    inner.answers.insert(rank, answer);
                    let done = inner.asked.remove(&rank);
                    drop(inner);
                    drop(done);
                }
                Self::go_on(&this);
            })
    }
}

fn refusal(rank: u32, error: &Error) -> Failure {
    let (errno, text) = edge::explain(error);
    let text = match errno.raw() {
        libc::ETIMEDOUT => "gave no answer in time".into(),
        _ => text,
    };
    Failure::on(rank, errno.raw(), text)
}

impl<T> fmt::Debug for Query<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("method", &self.inner.borrow().question.method)
            .finish_non_exhaustive()
    }
}
