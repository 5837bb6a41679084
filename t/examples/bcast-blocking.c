/* bcast-blocking.c - send a file to all nodes of a job, and wait
 *
 *	cc -o bcast-blocking bcast-blocking.c \
 *	   $(pkg-config --cflags --libs flux-bcast)
 *	bcast-blocking JOBID FILE [DEST]
 *	bcast-blocking - FILE [DEST]		(to the enclosing job)
 *
 * Prints a line for each rank and copy.  Exit status: 0 all ranks have the
 * file, 1 the transfer failed, 2 wrong usage or no Flux.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <flux-bcast.h>
#include <flux/core.h>

static flux_bcast_opts_t *options (const char *file, const char *dest)
{
    flux_bcast_opts_t *opts = flux_bcast_opts_create ();

    if (opts
        && flux_bcast_opts_add_path (opts, file, NULL) == 0
        && flux_bcast_opts_set_dest (opts, dest) == 0
        && flux_bcast_opts_set_timeout (opts, 60.) == 0)
        return opts;
    flux_bcast_opts_destroy (opts);
    return NULL;
}

/* Waits for the result and tells how the transfer gets on.  Returns false, with
 * errno set, if there will be no result, as when the broker is gone.
 */
static bool wait_for_result (flux_future_t *f)
{
    while (flux_future_get (f, NULL) == 0 && !flux_bcast_is_final (f)) {
        uint64_t done, total;

        if (flux_bcast_get_state (f) == FLUX_BCAST_WAITING)
            fprintf (stderr, "waiting for the job to start\n");
        else if (flux_bcast_get_progress (f, &done, &total) == 0
                 && total != FLUX_BCAST_SIZE_UNKNOWN)
            fprintf (stderr, "%" PRIu64 " of %" PRIu64 " bytes\n", done, total);
        flux_future_reset (f);
    }
    return flux_bcast_is_final (f);
}

static void print_ranks (flux_future_t *f)
{
    int count = flux_bcast_get_rank_count (f);

    for (int i = 0; i < count; i++) {
        int64_t rank = flux_bcast_get_rank (f, i);
        const char *host = flux_bcast_get_rank_host (f, i);
        int copies = flux_bcast_get_rank_path_count (f, i);

        for (int j = 0; j < copies; j++)
            printf ("%" PRId64 " %s %s\n",
                    rank,
                    host,
                    flux_bcast_get_rank_path (f, i, j));
        if (flux_bcast_get_rank_errnum (f, i) > 0)
            printf ("%" PRId64 " %s failed: %s\n",
                    rank,
                    host,
                    flux_bcast_get_rank_error_text (f, i));
    }
}

int main (int argc, char *argv[])
{
    flux_t *h;
    flux_jobid_t id = 0;
    flux_bcast_opts_t *opts;
    flux_future_t *f;
    int status = 1;

    if (argc < 3 || argc > 4) {
        fprintf (stderr, "Usage: bcast-blocking JOBID|- FILE [DEST]\n");
        return 2;
    }
    if (strcmp (argv[1], "-") != 0 && flux_job_id_parse (argv[1], &id) < 0) {
        fprintf (stderr, "%s: not a job id\n", argv[1]);
        return 2;
    }
    if (!(h = flux_open (NULL, 0))) {
        fprintf (stderr, "cannot connect to Flux: %s\n", strerror (errno));
        return 2;
    }
    if (!(opts = options (argv[2], argc > 3 ? argv[3] : NULL))) {
        fprintf (stderr, "cannot do that: %s\n", strerror (errno));
        flux_close (h);
        return 2;
    }
    if (strcmp (argv[1], "-") == 0)
        f = flux_bcast_start_enclosing (h, opts);
    else
        f = flux_bcast_start (h, id, opts);
    flux_bcast_opts_destroy (opts);
    if (!f) {
        fprintf (stderr, "cannot start: %s\n", strerror (errno));
        flux_close (h);
        return 2;
    }
    if (!wait_for_result (f))
        fprintf (stderr, "waiting: %s\n", strerror (errno));
    else if (flux_bcast_get_errnum (f) == 0)
        status = 0;
    else
        fprintf (stderr, "%s\n", flux_bcast_get_error_text (f));
    print_ranks (f);
    flux_future_destroy (f);
    flux_close (h);
    return status;
}
