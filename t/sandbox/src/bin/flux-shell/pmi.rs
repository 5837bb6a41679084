//! The built-in process management interface over `PMI_FD`.

use std::rc::Rc;

use crate::shell::Shell;
use crate::task::Task;

/// Prepares it, unless the options say otherwise.
#[expect(clippy::unnecessary_wraps, reason = "as the other parts of shell.init")]
pub(crate) fn init(_shell: &Rc<Shell>) -> Result<(), ()> {
    Ok(())
}

/// Gives a task its end.
#[expect(clippy::unnecessary_wraps, reason = "as the other parts of task.init")]
pub(crate) fn task_init(_shell: &Rc<Shell>, _task: &Rc<Task>) -> Result<(), ()> {
    Ok(())
}
