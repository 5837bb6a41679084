/* capi-check.c - what the C functions promise, one check at a time
 *
 *	capi-check CHECK [JOBID [ARG]]
 *
 * Each check ends with status 0, or says which line of this file was not as it
 * should be and ends with 1.
 */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "capi-check.h"

/* --- what most checks need ------------------------------------------------- */

/* A transfer of the file that is the argument.
 */
static flux_future_t *start_file (int flags)
{
    flux_bcast_opts_t *o = make (flags);

    OK (flux_bcast_opts_add_path (o, arg, NULL) == 0);
    return start (o);
}

/* --- options ---------------------------------------------------------------- */

static void options (void)
{
    flux_bcast_opts_t *o = make (0);

    OK (!strcmp (flux_bcast_version_string (), FLUX_BCAST_VERSION_STRING));
    flux_bcast_opts_destroy (NULL);
    INT_FAILS (EINVAL, flux_bcast_opts_set_flags (NULL, 0));
    INT_FAILS (EINVAL, flux_bcast_opts_add_path (NULL, "x", NULL));
    INT_FAILS (EINVAL, flux_bcast_opts_add_path (o, NULL, NULL));
    INT_FAILS (EINVAL, flux_bcast_opts_add_path (o, "", NULL));
    INT_FAILS (EINVAL, flux_bcast_opts_add_path (o, "x", "a/b"));
    INT_FAILS (EBADF, flux_bcast_opts_add_fd (o, -1, "x"));
    INT_FAILS (EBADF, flux_bcast_opts_add_fd (o, 1000, "x"));
    INT_FAILS (EINVAL, flux_bcast_opts_add_fd (o, 0, NULL));
    INT_FAILS (EINVAL, flux_bcast_opts_add_memory (o, NULL, 1, "x"));
    INT_FAILS (EINVAL, flux_bcast_opts_add_memory (o, "y", 1, ".."));
    INT_FAILS (EBADF, flux_bcast_opts_add_stream (o, -7, "x"));
    INT_FAILS (EINVAL, flux_bcast_opts_set_dest (o, ""));
    INT_FAILS (EINVAL, flux_bcast_opts_set_ranks (o, "0-x"));
    INT_FAILS (EINVAL, flux_bcast_opts_set_hosts (o, "a[0"));
    INT_FAILS (EINVAL, flux_bcast_opts_set_exclude_ranks (o, ""));
    INT_FAILS (EINVAL, flux_bcast_opts_set_exclude_hosts (o, ""));
    INT_FAILS (EINVAL,
               flux_bcast_opts_set_flags (o, FLUX_BCAST_TRUNC | FLUX_BCAST_EXCL));
    INT_FAILS (EINVAL,
               flux_bcast_opts_set_flags (o, FLUX_BCAST_TRUNC | FLUX_BCAST_APPEND));
    INT_FAILS (EINVAL, flux_bcast_opts_set_flags (o, FLUX_BCAST_IN_PLACE));
    INT_FAILS (EINVAL, flux_bcast_opts_set_flags (o, 1 << 20));
    INT_FAILS (EINVAL, flux_bcast_opts_set_mode (o, 01000));
    INT_FAILS (EINVAL, flux_bcast_opts_set_chunk (o, 0));
    INT_FAILS (EINVAL, flux_bcast_opts_set_batch (o, 100));
    INT_FAILS (EINVAL, flux_bcast_opts_set_window (o, 0));
    INT_FAILS (EINVAL, flux_bcast_opts_set_pace (NULL, 1));
    INT_FAILS (EINVAL, flux_bcast_opts_set_pace (o, UINT64_MAX));
    OK (strstr (flux_bcast_opts_get_error_text (o), "pace 1844674407370955161") != NULL);
    OK (flux_bcast_opts_set_pace (o, (uint64_t)1 << 40) == 0);
    OK (flux_bcast_opts_set_pace (o, 0) == 0);
    INT_FAILS (EINVAL, flux_bcast_opts_set_timeout (o, -1.));
    INT_FAILS (EINVAL, flux_bcast_opts_set_timeout (o, NAN));
    OK (flux_bcast_opts_set_fanout (o, 2) == 0);
    NULL_FAILS (EINVAL, flux_bcast_start (NULL, 1, o));
    NULL_FAILS (EINVAL, flux_bcast_start (h, 1, NULL));
    NULL_FAILS (EINVAL, flux_bcast_start (h, 1, o)); /* no sources */
    flux_bcast_opts_destroy (o);
}

/* --- sources and targets ---------------------------------------------------- */

/* A file by path and by descriptor, memory, and a stream, in one transfer.  The
 * caller lets go of everything before the work begins.
 */
static void sources (void)
{
    flux_bcast_opts_t *o = make (FLUX_BCAST_MKDIR);
    char memory[] = "from memory\n";
    int fd = open (arg, O_RDONLY);
    int pipes[2];
    uint64_t total = 0;

    OK (fd >= 0 && lseek (fd, 7, SEEK_SET) == 7 && pipe (pipes) == 0);
    OK (flux_bcast_opts_add_path (o, arg, "by-path") == 0);
    OK (flux_bcast_opts_add_fd (o, fd, "by-fd") == 0);
    OK (flux_bcast_opts_add_memory (o, memory, strlen (memory), "by-memory") == 0);
    OK (flux_bcast_opts_add_stream (o, pipes[0], "by-stream") == 0);
    OK (flux_bcast_opts_set_dest (o, "sources/") == 0);
    OK (flux_bcast_opts_set_mode (o, 0640) == 0);
    flux_future_t *f = start (o);
    memset (memory, 'x', sizeof (memory));
    OK (close (fd) == 0 && close (pipes[0]) == 0);
    OK (write (pipes[1], "from a stream\n", 14) == 14 && close (pipes[1]) == 0);
    OK (result (f) == 0);
    OK (flux_bcast_get_progress (f, NULL, &total) == 0);
    OK (total != FLUX_BCAST_SIZE_UNKNOWN);
    OK (flux_bcast_get_rank_path_count (f, 0) == 4);
    print_copies (f);
    flux_future_destroy (f);
}

static void targets (void)
{
    flux_bcast_opts_t *o = make (0);

    OK (flux_bcast_opts_add_memory (o, "x", 1, "targets") == 0);
    OK (flux_bcast_opts_set_ranks (o, "1-3") == 0);
    OK (flux_bcast_opts_set_exclude_ranks (o, "2") == 0);
    OK (flux_bcast_opts_set_fanout (o, 1) == 0);
    flux_future_t *f = start (o);
    OK (result (f) == 0);
    OK (flux_bcast_get_rank_count (f) == 2);
    OK (flux_bcast_get_rank (f, 0) == 1 && flux_bcast_get_rank (f, 1) == 3);
    flux_future_destroy (f);
}

static void unique (void)
{
    flux_bcast_opts_t *o = make (FLUX_BCAST_UNIQUE);
    const char *names[2];

    INT_FAILS (EINVAL, flux_bcast_opts_set_dest (o, "somewhere/"));
    OK (flux_bcast_opts_add_path (o, arg, "u") == 0);
    flux_future_t *f = start (o);
    OK (result (f) == 0);
    /* .../DIRECTORY/u, where DIRECTORY is the same on all ranks */
    for (int i = 0; i < 2; i++) {
        const char *path = flux_bcast_get_rank_path (f, i, 0);
        const char *slash = strrchr (path, '/');

        OK (path[0] == '/' && !strcmp (slash, "/u"));
        while (*--slash != '/')
            ;
        names[i] = slash;
    }
    OK (!strcmp (names[0], names[1]));
    print_copies (f);
    flux_future_destroy (f);
}

/* Sends a line to one name again and again; the argument says which flags.
 * Prints the errno of the result and what is there of each rank.
 */
static void flags (void)
{
    flux_bcast_opts_t *o = make (atoi (arg));

    OK (flux_bcast_opts_add_memory (o, "line\n", 5, "f") == 0);
    OK (flux_bcast_opts_set_dest (o, "flags/f") == 0);
    flux_future_t *f = start (o);
    printf ("%d", result (f));
    for (int i = 0; i < flux_bcast_get_rank_count (f); i++)
        printf (" %d", flux_bcast_get_rank_state (f, i));
    printf ("\n");
    flux_future_destroy (f);
}

/* A directory in small pieces; and the same host by its name.
 */
static void directory (void)
{
    flux_bcast_opts_t *o = make (FLUX_BCAST_TIMES | FLUX_BCAST_SYNC);

    OK (flux_bcast_opts_add_path (o, arg, "copy") == 0);
    OK (flux_bcast_opts_set_chunk (o, 512) == 0);
    OK (flux_bcast_opts_set_batch (o, 1000) == 0);
    OK (flux_bcast_opts_set_window (o, 5000) == 0);
    flux_future_t *f = start (o);
    OK (result (f) == 0);
    OK (flux_bcast_get_rank_path_count (f, 0) == 1);
    /* the same to the host that the first rank is on */
    o = make (FLUX_BCAST_TRUNC);
    OK (flux_bcast_opts_add_memory (o, "x", 1, "by-host") == 0);
    OK (flux_bcast_opts_set_hosts (o, flux_bcast_get_rank_host (f, 0)) == 0);
    flux_future_t *f2 = start (o);
    OK (result (f2) == 0);
    OK (flux_bcast_get_rank (f2, 0) == 0);
    flux_future_destroy (f2);
    /* a host that the job does not have */
    o = make (FLUX_BCAST_TRUNC);
    OK (flux_bcast_opts_add_memory (o, "x", 1, "by-host") == 0);
    OK (flux_bcast_opts_set_exclude_hosts (o, "nowhere[1-3]") == 0);
    f2 = start (o);
    OK (result (f2) == EINVAL);
    OK (strstr (flux_bcast_get_error_text (f2), "nowhere1") != NULL);
    flux_future_destroy (f2);
    flux_future_destroy (f);
}

/* --- progress and result ----------------------------------------------------- */

static void progress (void)
{
    flux_future_t *f = start_file (FLUX_BCAST_TRUNC);
    uint64_t done = 0, last = 0, total = 0, bytes = 0;
    double seconds = 0.;
    int news = 0;

    OK (flux_bcast_get_state (f) == FLUX_BCAST_STARTING);
    OK (flux_bcast_get_progress (f, &done, &total) == 0);
    OK (done == 0 && total == FLUX_BCAST_SIZE_UNKNOWN);
    while (flux_future_get (f, NULL) == 0 && !flux_bcast_is_final (f)) {
        OK (flux_bcast_get_progress (f, &done, &total) == 0);
        OK (done >= last && done <= total);
        last = done;
        news++;
        flux_future_reset (f);
    }
    OK (flux_bcast_is_final (f) && flux_bcast_get_errnum (f) == 0);
    OK (flux_bcast_get_state (f) == FLUX_BCAST_ENDED);
    OK (flux_bcast_get_progress (f, &done, &total) == 0 && done == total);
    OK (flux_bcast_get_stats (f, &bytes, &seconds) == 0);
    OK (bytes == total && seconds > 0.);
    OK (news >= 1);
    OK (strlen (flux_bcast_get_transfer_id (f)) == 32);
    OK (!strcmp (flux_bcast_get_error_text (f), ""));
    flux_future_destroy (f);
}

static void accessors (void)
{
    flux_future_t *f = start_file (FLUX_BCAST_TRUNC);
    flux_future_t *other = flux_future_create (NULL, NULL);

    INT_FAILS (EINVAL, flux_bcast_get_state (NULL));
    INT_FAILS (EINVAL, flux_bcast_get_state (other));
    NULL_FAILS (EINVAL, flux_bcast_get_error_text (other));
    INT_FAILS (EINVAL, flux_bcast_cancel (other, NULL));
    OK (!flux_bcast_is_final (other) && !flux_bcast_is_final (NULL));
    flux_future_destroy (other);
    OK (!flux_bcast_is_final (f));
    OK (flux_bcast_cancel (f, NULL) == 0); /* nothing has begun */
    INT_FAILS (EAGAIN, flux_bcast_get_errnum (f));
    INT_FAILS (EAGAIN, flux_bcast_get_rank_count (f));
    INT_FAILS (EAGAIN, flux_bcast_get_stats (f, NULL, NULL));
    NULL_FAILS (EAGAIN, flux_bcast_get_transfer_id (f));
    NULL_FAILS (EAGAIN, flux_bcast_get_rank_path (f, 0, 0));
    OK (result (f) == 0);
    int count = flux_bcast_get_rank_count (f);
    const char *path = flux_bcast_get_rank_path (f, count - 1, 0);
    INT_FAILS (EINVAL, flux_bcast_get_rank_state (f, count));
    INT_FAILS (EINVAL, flux_bcast_get_rank (f, -1));
    NULL_FAILS (EINVAL, flux_bcast_get_rank_host (f, count));
    NULL_FAILS (EINVAL, flux_bcast_get_rank_path (f, 0, 1));
    OK (flux_bcast_get_rank_state (f, 0) == FLUX_BCAST_RANK_DONE);
    OK (flux_bcast_get_rank_errnum (f, 0) == 0);
    OK (!strcmp (flux_bcast_get_rank_error_text (f, 0), ""));
    OK (flux_bcast_cancel (f, "too late") == 0);
    /* strings live as long as the future; ENODATA comes after the result */
    flux_future_reset (f);
    INT_FAILS (ENODATA, flux_future_get (f, NULL));
    OK (path == flux_bcast_get_rank_path (f, count - 1, 0) && path[0] == '/');
    OK (flux_bcast_get_errnum (f) == 0);
    flux_future_destroy (f);
}

/* It takes at least as long as its bytes at that pace, less one message; and a wait of
 * years ends with the future.
 */
static void paced (void)
{
    flux_bcast_opts_t *o = make (FLUX_BCAST_TRUNC);
    static char data[300000];
    double seconds = 0.;

    memset (data, 'x', sizeof (data));
    OK (flux_bcast_opts_add_memory (o, data, sizeof (data), "paced") == 0);
    OK (flux_bcast_opts_set_pace (o, 200000) == 0);
    flux_future_t *f = start (o);
    OK (result (f) == 0);
    OK (flux_bcast_get_stats (f, NULL, &seconds) == 0 && seconds >= 1.4);
    flux_future_destroy (f);
    o = make (FLUX_BCAST_TRUNC);
    OK (flux_bcast_opts_add_memory (o, data, sizeof (data), "paced") == 0);
    OK (flux_bcast_opts_set_pace (o, 1) == 0);
    f = start (o);
    while (flux_bcast_get_state (f) != FLUX_BCAST_SENDING) {
        OK (flux_future_get (f, NULL) == 0 && !flux_bcast_is_final (f));
        flux_future_reset (f);
    }
    flux_future_destroy (f);
}

/* The first rank has such a file: prints what became of each rank.
 */
static void exists (void)
{
    flux_future_t *f = start_file (FLUX_BCAST_EXCL);

    OK (result (f) == EEXIST);
    for (int i = 0; i < flux_bcast_get_rank_count (f); i++)
        printf ("%" PRId64 " %d %d %s\n",
                flux_bcast_get_rank (f, i),
                flux_bcast_get_rank_state (f, i),
                flux_bcast_get_rank_errnum (f, i),
                flux_bcast_get_rank_error_text (f, i));
    printf ("%s\n", flux_bcast_get_error_text (f));
    flux_future_destroy (f);
}

/* Prints the error of a transfer to the destination that is the argument.
 */
static void error (void)
{
    flux_bcast_opts_t *o = make (0);
    static char data[300000];

    OK (flux_bcast_opts_add_memory (o, data, sizeof (data), "data") == 0);
    OK (flux_bcast_opts_set_dest (o, arg) == 0);
    OK (flux_bcast_opts_set_timeout (o, 30.) == 0);
    flux_future_t *f = start (o);
    int e = result (f);
    printf ("%d %s\n", e, flux_bcast_get_error_text (f));
    OK (flux_future_get (f, NULL) < 0 && errno == e);
    OK (strlen (flux_future_error_string (f)) > 0);
    flux_future_destroy (f);
}

static void nowait (void)
{
    flux_future_t *f = start_file (FLUX_BCAST_NOWAIT);

    OK (result (f) == EAGAIN);
    OK (flux_bcast_get_rank_count (f) == 0);
    flux_future_destroy (f);
}

static void pending (void)
{
    flux_bcast_opts_t *o = make (0);
    bool waited = false;

    OK (flux_bcast_opts_add_path (o, arg, NULL) == 0);
    OK (flux_bcast_opts_set_timeout (o, 5.) == 0);
    flux_future_t *f = start (o);
    while (flux_future_get (f, NULL) == 0) {
        waited = waited || flux_bcast_get_state (f) == FLUX_BCAST_WAITING;
        flux_future_reset (f);
    }
    OK (errno == ETIMEDOUT && waited);
    flux_future_destroy (f);
}

/* --- reactive ------------------------------------------------------------------ */

struct watch {
    int news;
    int finals;
    int errnum;
    int ticks;
    flux_future_t *f;
    flux_watcher_t *timer;
};

static void on_news (flux_future_t *f, void *v)
{
    struct watch *w = v;

    w->errnum = flux_future_get (f, NULL) == 0 ? 0 : errno;
    if (flux_bcast_is_final (f)) {
        w->finals++;
        flux_watcher_stop (w->timer);
        return;
    }
    OK (w->errnum == 0);
    w->news++;
    flux_future_reset (f);
}

static void on_tick (flux_reactor_t *reactor, flux_watcher_t *tw, int revents, void *v)
{
    struct watch *w = v;

    (void)reactor;
    (void)tw;
    (void)revents;
    w->ticks++;
}

/* The handle is closed first: the reactor goes on, and ends with the transfer.
 */
static void closed_first (void)
{
    struct watch w = { .f = start_file (FLUX_BCAST_TRUNC) };

    w.timer = flux_timer_watcher_create (r, 0.001, 0.001, on_tick, &w);
    flux_watcher_start (w.timer);
    OK (flux_future_then (w.f, -1., on_news, &w) == 0);
    flux_close (h);
    h = NULL;
    OK (flux_reactor_run (r, 0) == 0);
    OK (w.finals == 1 && w.errnum == 0 && w.news > 0 && w.ticks > 0);
    flux_watcher_destroy (w.timer);
    flux_future_destroy (w.f);
}

static void closed_first_blocking (void)
{
    flux_future_t *f = start_file (FLUX_BCAST_TRUNC);

    flux_close (h);
    h = NULL;
    OK (result (f) == 0);
    flux_future_destroy (f);
}

/* Nobody resets the first news until the transfer has ended: the next one is
 * the result.  (libflux calls a continuation again for what is not reset.)
 */
static void on_slow_news (flux_future_t *f, void *v)
{
    struct watch *w = v;

    if (flux_bcast_is_final (f)) {
        w->finals = 1;
        flux_watcher_stop (w->timer);
    }
}

static void on_slow_tick (flux_reactor_t *reactor,
                          flux_watcher_t *tw,
                          int revents,
                          void *v)
{
    struct watch *w = v;

    (void)reactor;
    (void)tw;
    (void)revents;
    if (flux_bcast_get_state (w->f) == FLUX_BCAST_ENDED && w->finals == 0) {
        OK (w->ticks == 0 && !flux_bcast_is_final (w->f));
        w->ticks++;
        flux_future_reset (w->f);
    }
}

static void unread (void)
{
    struct watch w = { .f = start_file (FLUX_BCAST_TRUNC) };

    w.timer = flux_timer_watcher_create (r, 0.01, 0.01, on_slow_tick, &w);
    flux_watcher_start (w.timer);
    OK (flux_future_then (w.f, -1., on_slow_news, &w) == 0);
    OK (flux_reactor_run (r, 0) == 0);
    OK (w.finals == 1 && w.ticks == 1);
    flux_watcher_destroy (w.timer);
    flux_future_destroy (w.f);
}

/* The first news of data destroys the future from inside.
 */
static void on_news_destroy (flux_future_t *f, void *v)
{
    struct watch *w = v;

    if (flux_bcast_get_state (f) == FLUX_BCAST_SENDING) {
        w->f = NULL;
        flux_future_destroy (f);
        return;
    }
    flux_future_reset (f);
}

static void destroyed (void)
{
    struct watch w = { .f = start_file (FLUX_BCAST_TRUNC) };

    OK (flux_future_then (w.f, -1., on_news_destroy, &w) == 0);
    OK (flux_reactor_run (r, 0) == 0); /* nothing is left to watch */
    OK (w.f == NULL);
}

static void never_waited (void)
{
    flux_future_destroy (start_file (0));
    /* given up while it waits for the first time */
    flux_future_t *f = start_file (0);
    int rc = flux_future_wait_for (f, 0.0001);
    OK (rc == 0 || errno == ETIMEDOUT);
    flux_future_destroy (f);
}

/* One way of waiting for one future.
 */
static void mixed (void)
{
    struct watch w = { .f = start_file (FLUX_BCAST_TRUNC) };

    w.timer = flux_timer_watcher_create (r, 10., 10., on_tick, &w);
    OK (flux_future_then (w.f, -1., on_news, &w) == 0);
    INT_FAILS (EDEADLK, flux_future_get (w.f, NULL));
    OK (flux_reactor_run (r, 0) == 0); /* it goes on */
    OK (w.finals == 1 && w.errnum == 0);
    flux_future_destroy (w.f);

    w.f = start_file (FLUX_BCAST_TRUNC);
    w.finals = 0;
    OK (flux_future_get (w.f, NULL) == 0 && !flux_bcast_is_final (w.f));
    flux_future_reset (w.f);
    OK (flux_future_then (w.f, -1., on_news, &w) == 0);
    INT_FAILS (EINVAL, flux_future_get (w.f, NULL));
    OK (flux_bcast_is_final (w.f));
    flux_future_destroy (w.f);
    flux_watcher_destroy (w.timer);
}

/* An orderly end: every rank answers.
 */
static void on_news_cancel (flux_future_t *f, void *v)
{
    struct watch *w = v;

    if (flux_bcast_is_final (f)) {
        w->finals++;
        return;
    }
    if (flux_bcast_get_state (f) == FLUX_BCAST_SENDING)
        OK (flux_bcast_cancel (f, "enough of this") == 0);
    flux_future_reset (f);
}

static void cancelled (void)
{
    struct watch w = { .f = start_file (FLUX_BCAST_TRUNC) };

    OK (flux_future_then (w.f, -1., on_news_cancel, &w) == 0);
    OK (flux_reactor_run (r, 0) == 0);
    OK (w.finals == 1 && flux_bcast_get_errnum (w.f) == ECANCELED);
    OK (!strcmp (flux_bcast_get_error_text (w.f), "enough of this"));
    OK (flux_bcast_get_rank_count (w.f) > 0);
    for (int i = 0; i < flux_bcast_get_rank_count (w.f); i++)
        OK (flux_bcast_get_rank_state (w.f, i) == FLUX_BCAST_RANK_CANCELLED);
    flux_future_destroy (w.f);
}

/* --- threads, and the end of the instance -------------------------------------- */

static void *thread (void *name)
{
    flux_t *own = flux_open (NULL, 0);
    flux_bcast_opts_t *o = make (0);

    OK (own != NULL);
    OK (flux_bcast_opts_add_path (o, arg, name) == 0);
    flux_future_t *f = flux_bcast_start (own, id, o);
    OK (f && result (f) == 0);
    flux_bcast_opts_destroy (o);
    flux_future_destroy (f);
    flux_close (own);
    return NULL;
}

static void threads (void)
{
    char names[3][8] = { "one", "two", "three" };
    pthread_t all[3];

    for (int i = 0; i < 3; i++)
        OK (pthread_create (&all[i], NULL, thread, names[i]) == 0);
    for (int i = 0; i < 3; i++)
        OK (pthread_join (all[i], NULL) == 0);
}

/* Kills the broker, whose process id is in the environment, as soon as data
 * flows.
 */
static void on_news_kill (flux_future_t *f, void *v)
{
    static bool killed;

    (void)v;
    if (flux_bcast_is_final (f))
        return;
    if (flux_bcast_get_state (f) == FLUX_BCAST_SENDING && !killed) {
        killed = true;
        OK (getenv ("BROKER") && kill (atoi (getenv ("BROKER")), SIGKILL) == 0);
    }
    flux_future_reset (f);
}

/* Who notices first is chance: the handle, so that waiting fails, or the transfer,
 * which cannot send any more and ends with a result.
 */
static void orphaned (flux_future_t *f, int rc)
{
    if (flux_bcast_is_final (f)) {
        OK (flux_bcast_get_errnum (f) != 0);
        OK (flux_bcast_get_error_text (f) != NULL);
        return;
    }
    OK (rc < 0);
    FAILS (EAGAIN, flux_bcast_get_error_text (f) == NULL);
}

static void orphan (void)
{
    flux_future_t *f = start_file (0);

    OK (flux_future_then (f, -1., on_news_kill, NULL) == 0);
    orphaned (f, flux_reactor_run (r, 0));
    flux_future_destroy (f);
}

static void orphan_blocking (void)
{
    flux_future_t *f = start_file (0);
    int rc;

    while ((rc = flux_future_get (f, NULL)) == 0 && !flux_bcast_is_final (f))
        on_news_kill (f, NULL);
    orphaned (f, rc);
    flux_future_destroy (f);
}

/* ------------------------------------------------------------------------------- */

static const struct check checks[] = {
    { "options", options },
    { "sources", sources },
    { "targets", targets },
    { "unique", unique },
    { "flags", flags },
    { "directory", directory },
    { "progress", progress },
    { "accessors", accessors },
    { "paced", paced },
    { "exists", exists },
    { "error", error },
    { "nowait", nowait },
    { "pending", pending },
    { "closed-first", closed_first },
    { "closed-first-blocking", closed_first_blocking },
    { "unread", unread },
    { "destroyed", destroyed },
    { "never-waited", never_waited },
    { "mixed", mixed },
    { "cancelled", cancelled },
    { "threads", threads },
    { "orphan", orphan },
    { "orphan-blocking", orphan_blocking },
    { NULL, NULL },
};

int main (int argc, char *argv[])
{
    return run_check (checks, argc, argv);
}
