//! The life of a shell, from connecting to unloading.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use flux_sandbox::fields;
use flux_sandbox::host::handle::Handle;
use flux_sandbox::host::reactor::Reactor;
use flux_sandbox::jobid;
use flux_sandbox::wire;
use serde_json::json;

use crate::info::Info;
use crate::shell::{self, Shell};
use crate::task::{self, Task};
use crate::{barrier, builtin, initrc, log, render};

/// Runs the shell of a job to its end.
pub(crate) fn run(id: u64) -> ! {
    let shell = connect(id);
    shell::set_current(&shell);
    register_service(&shell);
    change_directory(&shell);
    initrc::load(&shell);
    set_environment(&shell);
    create_tasks(&shell);

    if builtin::init(&shell).is_err() | shell.call(c"shell.init", None).is_err() {
        log::die(1, None, "shell_init");
    }
    barrier::enter(&shell);
    if shell.is_leader() {
        let context = fields! {
            "service": shell.service(),
            "leader-rank": shell.info.node().broker_rank,
            "size": shell.info.nodes.len(),
        };
        if shell
            .post("guest.exec.eventlog", "shell.init", context)
            .is_err()
        {
            log::die(1, None, "failed to emit event shell.init");
        }
    }
    if shell.call(c"shell.post-init", None).is_err() {
        log::die(1, None, "shell_post_init");
    }
    start_tasks(&shell);
    if shell.call(c"shell.start", None).is_err() {
        log::die(1, None, "shell.start callback(s) failed");
    }
    barrier::enter(&shell);
    if shell.is_leader() {
        let context = fields! { "taskmap": shell.info.taskmap() };
        if shell
            .post("guest.exec.eventlog", "shell.start", context)
            .is_err()
        {
            log::die(1, None, "failed to emit event shell.start");
        }
    }
    if let Err(e) = shell.reactor.run(0) {
        log::error(&format!("flux_reactor_run: {e}"));
    }
    if shell.call(c"shell.exit", None).is_err() {
        log::error("shell_exit callback(s) failed");
        shell.rc.set(1);
    }
    let worst = shell
        .tasks
        .borrow()
        .iter()
        .flatten()
        .map(|t| t.rc.get())
        .max();
    let rc = shell.rc.get().max(worst.unwrap_or(0));
    log::debug(&format!("exit {rc}"));
    finalize(&shell);
    std::process::exit(rc)
}

fn connect(id: u64) -> Rc<Shell> {
    let handle = match Handle::open(None) {
        Ok(h) => h,
        Err(e) => {
            log::plain(&format!("FATAL: flux_open: {e}"));
            std::process::exit(1);
        }
    };
    let reactor = Reactor::new();
    let _ = handle.set_reactor(Rc::clone(&reactor));
    let info = match Info::fetch(&handle, id) {
        Ok(info) => info,
        Err(e) => {
            log::plain(&format!("FATAL: failed to initialize shell info: {e}"));
            std::process::exit(1);
        }
    };
    let options = info.system("/shell/options").as_object().cloned();
    let env: BTreeMap<_, _> = info
        .system("/environment")
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), wire::name(v.as_str().unwrap_or(""))))
        .collect();
    Rc::new(Shell {
        handle,
        reactor,
        info,
        options: RefCell::new(options.unwrap_or_default()),
        env: RefCell::new(env),
        plugins: RefCell::default(),
        tasks: RefCell::new(None),
        current: RefCell::new(None),
        cursor: Cell::new(0),
        refs: RefCell::default(),
        rc: Cell::new(0),
        exception_logged: Cell::new(false),
        tasks_exited: Cell::new(0),
        finalizing: Cell::new(false),
    })
}

fn register_service(shell: &Rc<Shell>) {
    for (topic, key, value) in [
        (
            "event.subscribe",
            "topic",
            format!("shell-{}.", shell.info.id),
        ),
        ("service.add", "service", shell.service()),
    ] {
        let request = json!({ key: value });
        if let Err(e) = shell.handle.call(topic, &request) {
            log::die(1, None, &format!("shell_svc_create: {topic}: {e}"));
        }
    }
}

fn change_directory(shell: &Rc<Shell>) {
    let Some(cwd) = shell.info.system("/cwd").as_str() else {
        return;
    };
    if let Err(e) = std::env::set_current_dir(cwd) {
        let e = flux_sandbox::errno::Errno::from(e);
        log::error(&format!(
            "host {}: Could not change dir to {cwd}: {e}. Going to /tmp instead",
            shell.info.hostname
        ));
        if std::env::set_current_dir("/tmp").is_err() {
            log::die(1, None, "shell_initrc");
        }
    }
}

fn set_environment(shell: &Rc<Shell>) {
    shell.unsetenv("FLUX_PROXY_REMOTE");
    let from_us = |name: &str| std::env::var(name).unwrap_or_default();
    let path = shell.handle.attr_string("jobid-path").unwrap_or_default();
    let path = if path == "/" { "" } else { &path };
    let id = jobid::f58(shell.info.id);
    shell.setenv("FLUX_URI", &from_us("FLUX_URI"));
    shell.setenv("FLUX_KVS_NAMESPACE", &from_us("FLUX_KVS_NAMESPACE"));
    shell.setenv("FLUX_JOB_ID_PATH", &format!("{path}/{id}"));
    shell.setenv("FLUX_JOB_SIZE", &shell.info.ntasks.to_string());
    shell.setenv("FLUX_JOB_NNODES", &shell.info.nodes.len().to_string());
    shell.setenv("FLUX_JOB_ID", &id);
    if let Ok(enclosing) = shell.handle.attr_string("jobid") {
        shell.setenv("FLUX_ENCLOSING_ID", &enclosing);
    }
    if shell.getenv("HOSTNAME").is_some() {
        shell.setenv("HOSTNAME", &shell.info.hostname);
    }
}

fn create_tasks(shell: &Rc<Shell>) {
    let node = shell.info.node();
    let tasks = (0..node.ntasks).map(|index| {
        let env = shell.env.borrow().clone();
        let rank = node.first_task + index;
        let task = Task::new(index, rank, &shell.info.command(), env);
        task.cmd.setenv("FLUX_TASK_LOCAL_ID", &index.to_string());
        task.cmd.setenv("FLUX_TASK_RANK", &rank.to_string());
        task
    });
    let tasks = tasks.collect();
    *shell.tasks.borrow_mut() = Some(tasks);
}

fn start_tasks(shell: &Rc<Shell>) {
    let tasks: Vec<_> = shell.tasks.borrow().iter().flatten().cloned().collect();
    for task in tasks {
        *shell.current.borrow_mut() = Some(Rc::clone(&task));
        let failed =
            builtin::task_init(shell, &task).is_err() | shell.call(c"task.init", None).is_err();
        if failed {
            log::die(
                1,
                None,
                &format!("failed to initialize taskid={}", task.rank),
            );
        }
        task.cmd.render_argv(|arg| render::render_text(shell, arg));
        if let Err(e) = task::start(shell, &task) {
            let code = match e.0 {
                libc::EPERM | libc::EACCES => 126,
                libc::ENOENT => 127,
                _ => 1,
            };
            let text = format!(
                "task {} (host {}): start failed: {}: {e}",
                task.rank,
                shell.info.hostname,
                task.cmd.program()
            );
            log::die(code, None, &text);
        }
        shell.add_ref(&format!("task{}", task.rank));
        if shell.call(c"task.fork", None).is_err() {
            log::die(1, None, "shell_task_forked");
        }
    }
    *shell.current.borrow_mut() = None;
}

/// Takes everything down in Flux's order: tasks, plugins (handlers, what they
/// attached, their code), the service, the connection.
fn finalize(shell: &Rc<Shell>) {
    *shell.tasks.borrow_mut() = None;
    let plugins = shell.plugins.take();
    shell.finalizing.set(true);
    for p in &plugins {
        p.destroy();
    }
    let _ = shell
        .handle
        .call("service.remove", &json!({ "service": shell.service() }));
    shell.handle.decref();
}
