//! The job that encloses this process, when no JOBID is given.

use flux_bcast::flux::error::Result;
use flux_bcast::flux::handle::Connection;

use super::Failed;

/// A connection to the instance that runs a job, and the job's id.
pub(crate) struct Target {
    pub(crate) connection: Connection,
    pub(crate) job: String,
}

/// Finds the job whose nodes are the ones of the instance we are in, and
/// connects to the instance that runs it.
///
/// The broker knows that job (attribute `jobid`) and where its instance is
/// (`parent-uri`). A task of a job of the instance sees the same two, so a
/// broadcast from there would go to all nodes of the instance, from every task:
/// hardly what was meant, so it is refused.
pub(crate) fn find() -> std::result::Result<Target, Failed> {
    let inner = Connection::open(None)?;
    let jobid = attribute(&inner, "jobid")?;
    let parent = attribute(&inner, "parent-uri")?;
    if let Ok(own) = std::env::var("FLUX_JOB_ID")
        && std::env::var_os("FLUX_TASK_RANK").is_some()
        && jobid.as_deref() != Some(own.as_str())
    {
        let outer = match &jobid {
            Some(job) => format!(
                "'flux --parent bcast {job} …' (all nodes of the enclosing job, from one task)"
            ),
            None => "'flux bcast JOBID …' with the job that is meant".into(),
        };
        return Err(Failed::Usage(format!(
            "this is a task of job {own}, where a JOBID is needed: every task would broadcast. \
             Use 'flux bcast {own} …' (the nodes of this job) or {outer}"
        )));
    }
    match (jobid, parent) {
        (Some(job), Some(uri)) => Ok(Target {
            connection: Connection::open(Some(&uri))?,
            job,
        }),
        _ => Err(Failed::Usage(
            "no JOBID is given, and this Flux instance is not itself a job: give one as the \
             first word, or by --jobid"
                .into(),
        )),
    }
}

fn attribute(connection: &Connection, name: &str) -> Result<Option<String>> {
    connection.handle().attr_get(name)
}
