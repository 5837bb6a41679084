/* capi-many.c - sends a file of a few bytes again and again, by one handle
 *
 *	capi-many JOBID COUNT
 *
 * Each transfer has other bytes, and replaces the file `many` of the one before.
 * Exit status: 0 all ranks had all of them, 1 one has failed, 2 it cannot begin.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <flux-bcast.h>
#include <flux/core.h>

/* Returns 0 if all ranks have the file. */
static int send_number (flux_t *h, flux_jobid_t id, int number)
{
    char text[32];
    int length = snprintf (text, sizeof (text), "transfer %d\n", number);
    flux_bcast_opts_t *opts = flux_bcast_opts_create ();
    flux_future_t *f = NULL;
    int rc = -1;

    if (opts
        && flux_bcast_opts_add_memory (opts, text, length, "many") == 0
        && flux_bcast_opts_set_flags (opts, FLUX_BCAST_TRUNC) == 0
        && (f = flux_bcast_start (h, id, opts))) {
        while (flux_future_get (f, NULL) == 0 && !flux_bcast_is_final (f))
            flux_future_reset (f);
        if (flux_bcast_is_final (f))
            rc = flux_bcast_get_errnum (f);
        if (rc != 0)
            fprintf (stderr, "transfer %d: %s\n", number, flux_bcast_get_error_text (f));
    }
    flux_future_destroy (f);
    flux_bcast_opts_destroy (opts);
    return rc;
}

int main (int argc, char *argv[])
{
    flux_jobid_t id;
    flux_t *h;
    int status = 0;

    if (argc != 3 || flux_job_id_parse (argv[1], &id) < 0 || !(h = flux_open (NULL, 0)))
        return 2;
    for (int i = 1; i <= atoi (argv[2]) && status == 0; i++)
        status = send_number (h, id, i) != 0;
    flux_close (h);
    return status;
}
