/* flux_abi.h - the part of Flux's C interface that flux-bcast uses
 *
 * These are our own declarations of facts that Flux's manual pages document:
 * just the types, constants and functions that this project and its tests use.  The build
 * makes its typed symbol tables from this file, so no installed Flux is needed
 * to compile, and every function is looked up at run time (src/ffi).
 *
 * t/check-abi compiles this file together with the headers of a real Flux in
 * one translation unit, so a compiler refuses any difference in a signature, a
 * constant or a layout.  FLUX_ABI_CHECK is defined there: then the types come
 * from the real headers and only prototypes and assertions remain.
 *
 * Minimum version: 0.58 (see "optional" for what may be missing).
 */
#ifndef FLUX_ABI_H
#define FLUX_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- types ------------------------------------------------------------- */

#ifndef FLUX_ABI_CHECK

typedef struct flux_handle flux_t;
typedef struct flux_msg flux_msg_t;
typedef struct flux_msg_handler flux_msg_handler_t;
typedef struct flux_future flux_future_t;
typedef struct flux_reactor flux_reactor_t;
typedef struct flux_watcher flux_watcher_t;
typedef struct flux_plugin flux_plugin_t;
typedef struct flux_plugin_arg flux_plugin_arg_t;
typedef struct flux_shell flux_shell_t;
typedef struct shell_task flux_shell_task_t;
typedef struct flux_command flux_cmd_t;
typedef uint64_t flux_jobid_t;

typedef struct {
    char text[160];
} flux_error_t;

typedef void (*flux_free_f) (void *arg);
typedef void (*flux_continuation_f) (flux_future_t *f, void *arg);
typedef void (*flux_future_init_f) (flux_future_t *f, void *arg);
typedef void (*flux_watcher_f) (flux_reactor_t *r,
                                flux_watcher_t *w,
                                int revents,
                                void *arg);
typedef void (*flux_msg_handler_f) (flux_t *h,
                                    flux_msg_handler_t *mh,
                                    const flux_msg_t *msg,
                                    void *arg);
typedef int (*flux_plugin_f) (flux_plugin_t *p,
                              const char *topic,
                              flux_plugin_arg_t *args,
                              void *data);

enum {
    FLUX_POLLIN = 1,
    FLUX_POLLOUT = 2,
    FLUX_POLLERR = 4,
};

enum {
    FLUX_RPC_NORESPONSE = 1,
    FLUX_RPC_STREAMING = 2,
};

enum {
    FLUX_REACTOR_NOWAIT = 1,
    FLUX_REACTOR_ONCE = 2,
};

enum {
    FLUX_PLUGIN_ARG_IN = 0,
    FLUX_PLUGIN_ARG_OUT = 1,
};

enum {
    FLUX_ROLE_OWNER = 1,
    FLUX_ROLE_USER = 2,
};

enum {
    FLUX_JOB_EVENT_WATCH_WAITCREATE = 1,
};

enum {
    FLUX_SHELL_FATAL = 0,
    FLUX_SHELL_ERROR = 3,
    FLUX_SHELL_WARN = 4,
    FLUX_SHELL_NOTICE = 5,
    FLUX_SHELL_DEBUG = 6,
    FLUX_SHELL_TRACE = 7,
};

#define FLUX_NODEID_ANY 0xFFFFFFFFu

#endif /* !FLUX_ABI_CHECK */

/* --- core: libflux-core, wherever we run -------------------------------- */

/* handle: flux_open(3), flux_attr_get(3) */
flux_t *flux_open (const char *uri, int flags);
void flux_close (flux_t *h);
const char *flux_attr_get (flux_t *h, const char *name);
int flux_get_rank (flux_t *h, uint32_t *rank);
int flux_get_size (flux_t *h, uint32_t *size);
flux_reactor_t *flux_get_reactor (flux_t *h);
int flux_set_reactor (flux_t *h, flux_reactor_t *r);

/* messages: flux_msg_encode(3), flux_request_decode(3), flux_respond(3) */
const flux_msg_t *flux_msg_incref (const flux_msg_t *msg);
void flux_msg_decref (const flux_msg_t *msg);
int flux_msg_get_topic (const flux_msg_t *msg, const char **topic);
int flux_msg_get_userid (const flux_msg_t *msg, uint32_t *userid);
int flux_msg_get_rolemask (const flux_msg_t *msg, uint32_t *rolemask);
bool flux_msg_is_streaming (const flux_msg_t *msg);
bool flux_msg_is_noresponse (const flux_msg_t *msg);
const char *flux_msg_route_first (const flux_msg_t *msg);
int flux_request_decode (const flux_msg_t *msg,
                         const char **topic,
                         const char **s);
int flux_request_decode_raw (const flux_msg_t *msg,
                             const char **topic,
                             const void **data,
                             size_t *len);
int flux_respond (flux_t *h, const flux_msg_t *request, const char *s);
int flux_respond_raw (flux_t *h,
                      const flux_msg_t *request,
                      const void *data,
                      int len);
int flux_respond_error (flux_t *h,
                        const flux_msg_t *request,
                        int errnum,
                        const char *errmsg);

/* remote procedure calls: flux_rpc(3) */
flux_future_t *flux_rpc (flux_t *h,
                         const char *topic,
                         const char *s,
                         uint32_t nodeid,
                         int flags);
flux_future_t *flux_rpc_raw (flux_t *h,
                             const char *topic,
                             const void *data,
                             size_t len,
                             uint32_t nodeid,
                             int flags);
int flux_rpc_get (flux_future_t *f, const char **s);
int flux_rpc_get_raw (flux_future_t *f, const void **data, size_t *len);

/* futures: flux_future_get(3), flux_future_create(3) */
flux_future_t *flux_future_create (flux_future_init_f cb, void *arg);
void flux_future_destroy (flux_future_t *f);
int flux_future_then (flux_future_t *f,
                      double timeout,
                      flux_continuation_f cb,
                      void *arg);
int flux_future_wait_for (flux_future_t *f, double timeout);
bool flux_future_is_ready (flux_future_t *f);
void flux_future_reset (flux_future_t *f);
int flux_future_get (flux_future_t *f, const void **result);
void flux_future_fulfill (flux_future_t *f, void *result, flux_free_f free_fn);
void flux_future_fulfill_error (flux_future_t *f,
                                int errnum,
                                const char *errstr);
void flux_future_fatal_error (flux_future_t *f,
                              int errnum,
                              const char *errstr);
bool flux_future_has_error (flux_future_t *f);
const char *flux_future_error_string (flux_future_t *f);
void *flux_future_aux_get (flux_future_t *f, const char *name);
int flux_future_aux_set (flux_future_t *f,
                         const char *name,
                         void *aux,
                         flux_free_f destroy);
void flux_future_set_flux (flux_future_t *f, flux_t *h);
flux_t *flux_future_get_flux (flux_future_t *f);
flux_reactor_t *flux_future_get_reactor (flux_future_t *f);

/* reactor and watchers: flux_reactor_create(3), flux_fd_watcher_create(3)... */
int flux_reactor_run (flux_reactor_t *r, int flags);
void flux_reactor_stop (flux_reactor_t *r);
void flux_reactor_stop_error (flux_reactor_t *r);
double flux_reactor_now (flux_reactor_t *r);
void flux_reactor_now_update (flux_reactor_t *r);
void flux_watcher_start (flux_watcher_t *w);
void flux_watcher_stop (flux_watcher_t *w);
void flux_watcher_destroy (flux_watcher_t *w);
flux_watcher_t *flux_fd_watcher_create (flux_reactor_t *r,
                                        int fd,
                                        int events,
                                        flux_watcher_f cb,
                                        void *arg);
flux_watcher_t *flux_timer_watcher_create (flux_reactor_t *r,
                                           double after,
                                           double repeat,
                                           flux_watcher_f cb,
                                           void *arg);
void flux_timer_watcher_reset (flux_watcher_t *w, double after, double repeat);
flux_watcher_t *flux_signal_watcher_create (flux_reactor_t *r,
                                            int signum,
                                            flux_watcher_f cb,
                                            void *arg);
int flux_signal_watcher_get_signum (flux_watcher_t *w);

/* plugins: flux_plugin_register(3) is avoided (it takes a table by value);
 * handlers are added one by one */
int flux_plugin_set_name (flux_plugin_t *p, const char *name);
int flux_plugin_add_handler (flux_plugin_t *p,
                             const char *topic,
                             flux_plugin_f cb,
                             void *arg);
int flux_plugin_aux_set (flux_plugin_t *p,
                         const char *key,
                         void *val,
                         flux_free_f free_fn);
void *flux_plugin_aux_get (flux_plugin_t *p, const char *key);
int flux_plugin_arg_get (flux_plugin_arg_t *args, int flags, char **json_str);
int flux_plugin_arg_set (flux_plugin_arg_t *args,
                         int flags,
                         const char *json_str);

/* jobs: flux_job_id_parse(3), flux_job_event_watch (RFC 18, RFC 21) */
int flux_job_id_parse (const char *s, flux_jobid_t *id);
int flux_job_id_encode (flux_jobid_t id,
                        const char *type,
                        char *buf,
                        size_t bufsz);
flux_future_t *flux_job_event_watch (flux_t *h,
                                     flux_jobid_t id,
                                     const char *path,
                                     int flags);
int flux_job_event_watch_get (flux_future_t *f, const char **event);
int flux_job_event_watch_cancel (flux_future_t *f);

/* --- shell: only inside the flux-shell executable ----------------------- */

flux_shell_t *flux_plugin_get_shell (flux_plugin_t *p);
flux_t *flux_shell_get_flux (flux_shell_t *shell);

/* options, environment, info: flux_shell_getopt(3), flux_shell_getenv(3),
 * flux_shell_get_info(3); every returned JSON string is malloc'd */
int flux_shell_getopt (flux_shell_t *shell, const char *name, char **json_str);
int flux_shell_setopt (flux_shell_t *shell,
                       const char *name,
                       const char *json_str);
const char *flux_shell_getenv (flux_shell_t *shell, const char *name);
int flux_shell_setenvf (flux_shell_t *shell,
                        int overwrite,
                        const char *name,
                        const char *fmt,
                        ...);
int flux_shell_unsetenv (flux_shell_t *shell, const char *name);
int flux_shell_get_info (flux_shell_t *shell, char **json_str);
int flux_shell_get_rank_info (flux_shell_t *shell,
                              int shell_rank,
                              char **json_str);
char *flux_shell_mustache_render (flux_shell_t *shell, const char *fmt);

/* services, events, tasks: flux_shell_service_register(3),
 * flux_shell_add_completion_ref(3), flux_shell_task_cmd(3) */
int flux_shell_service_register (flux_shell_t *shell,
                                 const char *method,
                                 flux_msg_handler_f cb,
                                 void *arg);
int flux_shell_add_completion_ref (flux_shell_t *shell, const char *fmt, ...);
int flux_shell_remove_completion_ref (flux_shell_t *shell,
                                      const char *fmt,
                                      ...);
flux_shell_task_t *flux_shell_current_task (flux_shell_t *shell);
flux_shell_task_t *flux_shell_task_first (flux_shell_t *shell);
flux_shell_task_t *flux_shell_task_next (flux_shell_t *shell);
int flux_shell_task_get_info (flux_shell_task_t *task, char **json_str);
flux_cmd_t *flux_shell_task_cmd (flux_shell_task_t *task);

/* log and failure: flux_shell_log(3); always called with a literal format */
void flux_shell_log (const char *component,
                     int level,
                     const char *file,
                     int line,
                     const char *fmt,
                     ...);
void flux_shell_fatal (const char *component,
                       const char *file,
                       int line,
                       int errnum,
                       int exit_code,
                       const char *fmt,
                       ...);
void flux_shell_raise (const char *type, int severity, const char *fmt, ...);

/* These two live in libflux-core but are needed only with tasks at hand. */
int flux_cmd_setenvf (flux_cmd_t *cmd,
                      int overwrite,
                      const char *name,
                      const char *fmt,
                      ...);
void flux_cmd_unsetenv (flux_cmd_t *cmd, const char *name);

/* --- optional: may be missing, then one feature is less precise ---------- */

/* since 0.7x: keeps the exit code of the program that failed the job */
void flux_shell_raise_exit_status (int wait_status, const char *fmt, ...);

#ifdef __cplusplus
}
#endif

#endif /* !FLUX_ABI_H */
