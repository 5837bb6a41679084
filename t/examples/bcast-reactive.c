/* bcast-reactive.c - send files beside everything else a program does
 *
 *	cc -o bcast-reactive bcast-reactive.c \
 *	   $(pkg-config --cflags --libs flux-bcast)
 *	bcast-reactive JOBID FILE...
 *
 * Each FILE is a transfer of its own; all run at once in one reactor, together
 * with a timer and with a watcher of standard input.  A line "cancel" there
 * calls all transfers off in an orderly way (each rank still answers), a line
 * "destroy" drops them on the spot.  Exit status: 0 all ranks have the files,
 * 1 not, 2 wrong usage or no Flux.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <flux-bcast.h>
#include <flux/core.h>

struct transfer {
    struct program *program;
    const char *file;
    flux_future_t *future;
    uint64_t done;
};

struct program {
    flux_t *h;
    struct transfer *transfers;
    int count;
    int running;
    int failed;
    unsigned ticks;
    flux_watcher_t *timer;
    flux_watcher_t *input;
};

/* Without transfers there is nothing left to do: a reactor runs as long as it
 * has something to watch.
 */
static void one_less (struct program *p)
{
    if (--p->running == 0) {
        flux_watcher_stop (p->timer);
        flux_watcher_stop (p->input);
    }
}

static void transfer_cb (flux_future_t *f, void *arg)
{
    struct transfer *t = arg;
    struct program *p = t->program;
    uint64_t done;

    if (!flux_bcast_is_final (f)) {
        if (flux_bcast_get_progress (f, &done, NULL) == 0) {
            if (done < t->done) {
                fprintf (stderr, "%s: progress went backwards\n", t->file);
                exit (1);
            }
            t->done = done;
        }
        flux_future_reset (f);
        return;
    }
    if (flux_future_get (f, NULL) == 0)
        printf ("%s: on %d ranks\n", t->file, flux_bcast_get_rank_count (f));
    else {
        const char *problem = flux_bcast_get_error_text (f);

        printf ("%s: %s\n", t->file, problem ? problem : strerror (errno));
        p->failed++;
    }
    fflush (stdout);
    t->future = NULL;
    flux_future_destroy (f); /* allowed in its own continuation */
    one_less (p);
}

static void timer_cb (flux_reactor_t *r, flux_watcher_t *w, int revents, void *arg)
{
    struct program *p = arg;

    (void)r;
    (void)w;
    (void)revents;
    p->ticks++;
}

static void input_cb (flux_reactor_t *r, flux_watcher_t *w, int revents, void *arg)
{
    struct program *p = arg;
    char line[80];
    ssize_t n = read (STDIN_FILENO, line, sizeof (line) - 1);

    (void)r;
    (void)revents;
    if (n <= 0) {
        flux_watcher_stop (w);
        return;
    }
    line[n] = '\0';
    for (int i = 0; i < p->count; i++) {
        struct transfer *t = &p->transfers[i];

        if (!t->future)
            continue;
        if (!strncmp (line, "cancel", 6))
            flux_bcast_cancel (t->future, "told to stop");
        else if (!strncmp (line, "destroy", 7)) {
            flux_future_destroy (t->future);
            t->future = NULL;
            p->failed++;
            one_less (p);
        }
    }
}

static int start (struct transfer *t, flux_jobid_t id)
{
    flux_bcast_opts_t *opts = flux_bcast_opts_create ();

    if (opts
        && flux_bcast_opts_add_path (opts, t->file, NULL) == 0
        && flux_bcast_opts_set_flags (opts, FLUX_BCAST_TRUNC) == 0
        && (t->future = flux_bcast_start (t->program->h, id, opts))
        && flux_future_then (t->future, -1., transfer_cb, t) == 0)
        t->program->running++;
    else
        fprintf (stderr, "%s: cannot start: %s\n", t->file, strerror (errno));
    flux_bcast_opts_destroy (opts);
    return t->program->running;
}

int main (int argc, char *argv[])
{
    struct program p = { .count = argc - 2 };
    flux_reactor_t *r;
    flux_jobid_t id;

    if (argc < 3 || flux_job_id_parse (argv[1], &id) < 0) {
        fprintf (stderr, "Usage: bcast-reactive JOBID FILE...\n");
        return 2;
    }
    if (!(p.h = flux_open (NULL, 0)) || !(r = flux_get_reactor (p.h))) {
        fprintf (stderr, "cannot connect to Flux: %s\n", strerror (errno));
        return 2;
    }
    p.transfers = calloc (p.count, sizeof (*p.transfers));
    p.timer = flux_timer_watcher_create (r, 0.01, 0.01, timer_cb, &p);
    p.input = flux_fd_watcher_create (r, STDIN_FILENO, FLUX_POLLIN, input_cb, &p);
    if (!p.transfers || !p.timer || !p.input)
        return 2;
    flux_watcher_start (p.timer);
    flux_watcher_start (p.input);
    for (int i = 0; i < p.count; i++) {
        p.transfers[i].program = &p;
        p.transfers[i].file = argv[i + 2];
        if (!start (&p.transfers[i], id))
            return 2;
    }
    if (flux_reactor_run (r, 0) < 0) {
        fprintf (stderr, "lost the connection to Flux\n");
        p.failed++;
    }
    printf ("the timer fired %s\n", p.ticks > 0 ? "meanwhile" : "never");
    for (int i = 0; i < p.count; i++)
        flux_future_destroy (p.transfers[i].future);
    flux_watcher_destroy (p.timer);
    flux_watcher_destroy (p.input);
    free (p.transfers);
    flux_close (p.h);
    return p.failed > 0 ? 1 : 0;
}
