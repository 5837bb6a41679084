/* plugin.c - a shell plugin that shows what its host does
 *
 * It needs nothing but flux_abi.h, so the same file loads in Flux itself: what
 * it makes visible must be the same there (see run.sh).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "flux_abi.h"

static flux_shell_t *shell;
static int rank = -1;
static int size;
static char service[128];
static int ring_asked;
static int ring_answered;
static flux_future_t *ring;
static const flux_msg_t *held[8];
static int nheld;

/* The number after "key": in a JSON text; -1 without. */
static int number (const char *json, const char *key)
{
    char quoted[64];
    const char *p;

    snprintf (quoted, sizeof (quoted), "\"%s\":", key);
    if (!json || !(p = strstr (json, quoted)))
        return -1;
    return strtol (p + strlen (quoted), NULL, 10);
}

static void say (const char *fmt, const char *text)
{
    if (rank == 0)
        flux_shell_log ("scenario", FLUX_SHELL_NOTICE, __FILE__, 0, fmt, text);
}

/* A sub-option of -o scenario.NAME=NUMBER. */
static int option (const char *name)
{
    char *json = NULL;
    int n = -1;

    if (flux_shell_getopt (shell, "scenario", &json) == 1)
        n = number (json, name);
    free (json);
    return n;
}

static void echo_cb (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    const void *data;
    size_t len;

    ring_asked++;
    if (flux_request_decode_raw (msg, NULL, &data, &len) < 0
        || flux_respond_raw (h, msg, data, len) < 0)
        say ("echo: %s", strerror (errno));
}

static void stream_cb (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    if (!flux_msg_is_streaming (msg)) {
        flux_respond_error (h, msg, EPROTO, "not a streaming request");
        return;
    }
    flux_respond (h, msg, "{\"n\":1}");
    flux_respond (h, msg, "{\"n\":2}");
    flux_respond_raw (h, msg, "three", 5);
    flux_respond_error (h, msg, ENODATA, NULL);
}

static void fail_cb (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    flux_respond_error (h, msg, ENOSPC, "no space left on the moon");
}

static void cred_cb (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    uint32_t userid;
    uint32_t rolemask;
    char text[128];

    flux_msg_get_userid (msg, &userid);
    flux_msg_get_rolemask (msg, &rolemask);
    snprintf (text,
              sizeof (text),
              "{\"own\":%d,\"owner\":%d}",
              userid == getuid (),
              (rolemask & FLUX_ROLE_OWNER) != 0);
    flux_respond (h, msg, text);
}

/* Never answers until the job ends. */
static void hold_cb (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    if (nheld < 8)
        held[nheld++] = flux_msg_incref (msg);
    say ("hold: %s", "one more");
}

static void disconnect_cb (flux_t *h,
                           flux_msg_handler_t *mh,
                           const flux_msg_t *msg,
                           void *arg)
{
    int i;

    for (i = 0; i < nheld; i++) {
        if (strcmp (flux_msg_route_first (held[i]), flux_msg_route_first (msg)) == 0) {
            say ("disconnect of a client whose request is %s", "held");
            flux_msg_decref (held[i]);
            held[i] = held[--nheld];
            return;
        }
    }
    say ("disconnect of a client whose request is %s",
         flux_msg_is_noresponse (msg) ? "answered" : "strange");
}

static void die_cb (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    kill (getpid (), 9);
}

static void fatal_cb (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    flux_shell_fatal ("scenario", __FILE__, __LINE__, ENOSPC, 42, "asked %s", "to");
}

static void raise_cb (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    flux_shell_raise ("scenario", 0, "asked %s", "to raise");
    flux_respond (h, msg, NULL);
}

static int init (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *data)
{
    struct {
        const char *method;
        flux_msg_handler_f cb;
    } tab[] = {
        { "sc.echo", echo_cb },
        { "sc.stream", stream_cb },
        { "sc.fail", fail_cb },
        { "sc.cred", cred_cb },
        { "sc.hold", hold_cb },
        { "sc.disconnect", disconnect_cb },
        { "sc.die", die_cb },
        { "sc.fatal", fatal_cb },
        { "sc.raise", raise_cb },
    };
    char *json = NULL;
    char *s;
    size_t i;

    shell = flux_plugin_get_shell (p);
    if (flux_shell_get_info (shell, &json) < 0)
        return -1;
    rank = number (json, "rank");
    size = number (json, "size");
    if ((s = strstr (json, "\"service\":\"")))
        sscanf (s + 11, "%127[^\"]", service);
    free (json);
    for (i = 0; i < sizeof (tab) / sizeof (tab[0]); i++) {
        if (flux_shell_service_register (shell, tab[i].method, tab[i].cb, NULL) < 0)
            return -1;
    }
    say ("%s", topic);
    flux_shell_setenvf (shell, 1, "SC_SIZE", "%d", size);
    flux_shell_setenvf (shell, 0, "SC_SIZE", "%s", "not this");
    say ("getenv: %s", flux_shell_getenv (shell, "SC_SIZE"));
    flux_shell_setopt (shell, "sc-set", "{\"a\":[1,\"x\"]}");
    json = NULL;
    flux_shell_getopt (shell, "sc-set", &json);
    say ("getopt: %s", json);
    free (json);
    if (flux_shell_getopt (shell, "sc-none", NULL) == 0)
        say ("%s", "getopt of an option that was not given is 0");
    s = flux_shell_mustache_render (shell,
                                    "{{size}} {{nnodes}} {{node.id}} {{node.ntasks}} "
                                    "{{name}} {{nosuch}}");
    say ("render: %s", s);
    free (s);
    if (option ("init-fails") == rank)
        return -1;
    return 0;
}

static void ring_cb (flux_future_t *f, void *arg)
{
    const void *data;
    size_t len;

    ring_answered = flux_rpc_get_raw (f, &data, &len) == 0 && len == 5
                    && memcmp (data, "round", 5) == 0;
    flux_future_destroy (f); // inside its own continuation
    ring = NULL;
}

/* The host has a watcher of its own for this signal; both must run. */
static void term_cb (flux_reactor_t *r, flux_watcher_t *w, int revents, void *arg)
{
    exit (flux_signal_watcher_get_signum (w) == SIGTERM ? 1 : 2);
}

static int post_init (flux_plugin_t *p,
                      const char *topic,
                      flux_plugin_arg_t *args,
                      void *data)
{
    flux_t *h = flux_shell_get_flux (shell);
    flux_watcher_t *term;
    char name[160];
    char *json = NULL;

    say ("%s", topic);
    term = flux_signal_watcher_create (flux_get_reactor (h), SIGTERM, term_cb, NULL);
    flux_watcher_start (term);
    if (option ("post-init-fails") == rank)
        return -1;
    if (option ("post-init-dies") == rank) {
        /* Not before the other one has said what it has to say. */
        while (ring_asked == 0) {
            if (flux_reactor_run (flux_get_reactor (h), FLUX_REACTOR_ONCE) < 0)
                return -1;
        }
        flux_shell_fatal ("scenario", __FILE__, __LINE__, 0, 42, "cannot %s", "go on");
    }
    if (flux_shell_get_rank_info (shell, (rank + 1) % size, &json) < 0)
        return -1;
    snprintf (name, sizeof (name), "%s.sc.echo", service);
    ring = flux_rpc_raw (h, name, "round", 5, number (json, "broker_rank"), 0);
    free (json);
    if (!ring || flux_future_then (ring, 60., ring_cb, NULL) < 0)
        return -1;
    while (ring || ring_asked == 0) {
        if (flux_reactor_run (flux_get_reactor (h), FLUX_REACTOR_ONCE) < 0)
            return -1;
    }
    flux_watcher_destroy (term);
    say ("nested reactor: the ring is %s", ring_answered ? "closed" : "broken");
    return 0;
}

static int task_topic (flux_plugin_t *p,
                       const char *topic,
                       flux_plugin_arg_t *args,
                       void *data)
{
    flux_shell_task_t *task = flux_shell_current_task (shell);
    char text[64];
    char *json = NULL;

    flux_shell_task_get_info (task, &json);
    snprintf (text,
              sizeof (text),
              "%s: localid %d rank %d exitcode %d",
              topic,
              number (json, "localid"),
              number (json, "rank"),
              number (json, "exitcode"));
    say ("%s", text);
    free (json);
    if (strcmp (topic, "task.init") == 0) {
        flux_cmd_setenvf (flux_shell_task_cmd (task), 1, "SC_TASK", "%d", 7);
        flux_cmd_setenvf (flux_shell_task_cmd (task), 1, "SC_GONE", "%d", 7);
        flux_cmd_unsetenv (flux_shell_task_cmd (task), "SC_GONE");
    }
    return 0;
}

static int plain_topic (flux_plugin_t *p,
                        const char *topic,
                        flux_plugin_arg_t *args,
                        void *data)
{
    char *json = NULL;
    int i;

    say ("%s", topic);
    if (strcmp (topic, "shell.lost") == 0
        && flux_plugin_arg_get (args, FLUX_PLUGIN_ARG_IN, &json) == 0) {
        char text[64];

        snprintf (text,
                  sizeof (text),
                  "rank %d severity %d",
                  number (json, "shell_rank"),
                  number (json, "severity"));
        say ("lost: %s", text);
        free (json);
    }
    if (strcmp (topic, "shell.exit") == 0) {
        for (i = 0; i < nheld; i++)
            flux_respond_error (flux_shell_get_flux (shell), held[i], ESHUTDOWN, "over");
    }
    return 0;
}

static void destroy (void *arg)
{
    fprintf (stderr, "the plugin of rank %d is destroyed\n", rank);
}

int flux_plugin_init (flux_plugin_t *p)
{
    flux_plugin_set_name (p, "scenario");
    flux_plugin_aux_set (p, "scenario", p, destroy);
    if (flux_plugin_add_handler (p, "shell.init", init, NULL) < 0
        || flux_plugin_add_handler (p, "shell.post-init", post_init, NULL) < 0
        || flux_plugin_add_handler (p, "task.init", task_topic, NULL) < 0
        || flux_plugin_add_handler (p, "task.fork", task_topic, NULL) < 0
        || flux_plugin_add_handler (p, "task.exit", task_topic, NULL) < 0
        || flux_plugin_add_handler (p, "shell.*", plain_topic, NULL) < 0)
        return -1;
    return 0;
}
