/* client.c - a client that shows what it sees of a job's service
 *
 * usage: client JOBID TEST. Output is the same on any provider.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "flux_abi.h"

static flux_t *h;
static char service[128];
static unsigned int leader;

static const char *name (const char *method)
{
    static char buf[256];

    snprintf (buf, sizeof (buf), "%s.%s", service, method);
    return buf;
}

static void outcome (const char *what, int rc, flux_future_t *f)
{
    int e = errno;

    if (rc == 0)
        printf ("%s: success\n", what);
    else
        printf ("%s: %s: %s\n",
                what,
                strerror (e),
                flux_future_has_error (f) ? flux_future_error_string (f) : "-");
}

static void find_service (flux_jobid_t id)
{
    flux_future_t *f = flux_job_event_watch (h, id, "guest.exec.eventlog", 0);
    const char *event;
    const char *p;

    while (flux_job_event_watch_get (f, &event) == 0) {
        if (strstr (event, "\"shell.init\"")) {
            if ((p = strstr (event, "\"service\":\"")))
                sscanf (p + 11, "%127[^\"]", service);
            if ((p = strstr (event, "\"leader-rank\":")))
                leader = strtoul (p + 14, NULL, 10);
            flux_job_event_watch_cancel (f);
        }
        flux_future_reset (f);
    }
    printf ("watch ends with: %s\n", strerror (errno));
    flux_future_destroy (f);
}

static void call (const char *what, const char *topic, unsigned int rank)
{
    flux_future_t *f = flux_rpc (h, topic, "{}", rank, 0);
    const char *s = NULL;
    int rc = flux_rpc_get (f, &s);

    outcome (what, rc, f);
    if (rc == 0 && s)
        printf ("%s: %s\n", what, s);
    flux_future_destroy (f);
}

/* The same until there is an answer: what a shell gets before it dies is lost. */
static void call_again (const char *what, const char *topic, unsigned int rank)
{
    for (int i = 0; i < 200; i++) {
        flux_future_t *f = flux_rpc (h, topic, "{}", rank, 0);
        int ready = flux_future_wait_for (f, 0.3) == 0;

        if (ready)
            outcome (what, flux_rpc_get (f, NULL), f);
        flux_future_destroy (f);
        if (ready)
            return;
    }
    printf ("%s: no answer\n", what);
}

static int streamed;

static void stream_cb (flux_future_t *f, void *arg)
{
    const void *data;
    size_t len;

    if (flux_rpc_get_raw (f, &data, &len) < 0) {
        outcome ("stream ends", -1, f);
        flux_future_destroy (f);
        return;
    }
    printf ("stream: %.*s\n", (int)len, (const char *)data);
    streamed++;
    flux_future_reset (f);
}

static void timeout_cb (flux_future_t *f, void *arg)
{
    outcome ("then with a timeout", flux_future_get (f, NULL), f);
    flux_future_destroy (f);
}

static int freed;

static void free_cb (void *arg)
{
    freed++;
}

static void init_cb (flux_future_t *f, void *arg)
{
    printf ("init: the handle is %s\n",
            flux_future_get_flux (f) == h ? "the user's" : "a clone");
    flux_future_fulfill (f, arg, free_cb);
    flux_future_fulfill (f, arg, free_cb);
    flux_future_fulfill_error (f, EBUSY, "third");
}

static void queue_cb (flux_future_t *f, void *arg)
{
    outcome ("queued", flux_future_get (f, NULL), f);
    if (flux_future_has_error (f)) {
        flux_future_fatal_error (f, EIO, NULL);
        flux_future_reset (f);
        outcome ("fatal", flux_future_get (f, NULL), f);
        flux_future_destroy (f);
        return;
    }
    flux_future_reset (f);
}

static void futures (void)
{
    static char value[] = "value";
    flux_future_t *f = flux_future_create (init_cb, value);
    const void *result = NULL;

    flux_future_set_flux (f, h);
    outcome ("wait_for 0", flux_future_wait_for (f, 0.), f);
    flux_future_get (f, &result);
    printf ("get: %s\n", (const char *)result);
    flux_future_aux_set (f, "x", value, free_cb);
    flux_future_destroy (f);
    printf ("freed: %d\n", freed);

    f = flux_future_create (init_cb, value);
    flux_future_set_flux (f, h);
    flux_future_then (f, -1., queue_cb, NULL);
    flux_reactor_run (flux_get_reactor (h), 0);
    printf ("freed: %d\n", freed);

    f = flux_future_create (NULL, NULL);
    outcome ("nothing can fulfill it", flux_future_get (f, NULL), f);
    outcome ("then without a reactor", flux_future_then (f, 1., queue_cb, NULL), f);
    flux_future_destroy (f);
}

static void messages (void)
{
    flux_future_t *f;
    flux_future_t *g;

    call ("echo", name ("sc.echo"), leader);
    call ("error with text", name ("sc.fail"), leader);
    call ("unknown method", name ("sc.nosuch"), leader);
    call ("unknown service", "nosuch.sc.echo", leader);
    call ("no such rank", name ("sc.echo"), 4711);
    call ("any rank", name ("sc.cred"), FLUX_NODEID_ANY);
    call ("stream without the flag", name ("sc.stream"), leader);

    f = flux_rpc (h, name ("sc.echo"), NULL, leader, FLUX_RPC_NORESPONSE);
    outcome ("no response", flux_future_get (f, NULL), f);
    flux_future_destroy (f);
    f = flux_rpc (h, name ("sc.echo"), NULL, leader, 64);
    outcome ("bad flag", f ? 0 : -1, f);

    f = flux_rpc (h, name ("sc.stream"), NULL, leader, FLUX_RPC_STREAMING);
    flux_future_then (f, -1., stream_cb, NULL);
    /* Answers of others are kept while one is waited for. */
    g = flux_rpc (h, name ("sc.echo"), "{}", leader, 0);
    outcome ("meanwhile", flux_future_get (g, NULL), g);
    printf ("streamed so far: %d\n", streamed);
    flux_future_destroy (g);
    flux_reactor_run (flux_get_reactor (h), 0);

    f = flux_rpc (h, name ("sc.hold"), NULL, leader, 0);
    outcome ("wait_for", flux_future_wait_for (f, 0.05), f);
    flux_future_then (f, 0.05, timeout_cb, NULL);
    flux_reactor_run (flux_get_reactor (h), 0);
}

int main (int argc, char *argv[])
{
    const char *test = argv[2];
    flux_jobid_t id;

    setvbuf (stdout, NULL, _IOLBF, 0);
    if (argc != 3 || flux_job_id_parse (argv[1], &id) < 0 || !(h = flux_open (NULL, 0)))
        return 2;
    find_service (id);
    if (strcmp (test, "messages") == 0)
        messages ();
    else if (strcmp (test, "futures") == 0)
        futures ();
    else if (strcmp (test, "hold") == 0) {
        flux_future_t *f = flux_rpc (h, name ("sc.hold"), NULL, leader, 0);

        outcome ("hold", flux_future_get (f, NULL), f);
        flux_future_destroy (f);
    }
    else if (strcmp (test, "die") == 0) {
        flux_future_t *f = flux_rpc (h, name ("sc.die"), NULL, leader + 1, 0);

        outcome ("die", flux_future_wait_for (f, 0.5), f);
        flux_future_destroy (f);
        call_again ("afterwards", name ("sc.echo"), leader + 1);
    }
    else
        call (test, name (test), leader);
    flux_close (h);
    return 0;
}
