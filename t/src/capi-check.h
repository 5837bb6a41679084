/* capi-check.h - what programs that check the C functions have in common
 *
 * A program has a table of checks and one argument that says which; each ends
 * with status 0, or says which line was not as it should be and ends with 1.
 */
#ifndef CAPI_CHECK_H
#define CAPI_CHECK_H

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <flux-bcast.h>
#include <flux/core.h>

#define OK(condition) ok (condition, #condition, __FILE__, __LINE__)
#define FAILS(error, call) (errno = 0, OK ((call) && errno == (error)))
#define INT_FAILS(error, call) FAILS (error, (call) == -1)
#define NULL_FAILS(error, call) FAILS (error, (call) == NULL)

static inline void ok (bool good, const char *what, const char *file, int line)
{
    if (!good) {
        fprintf (stderr,
                 "%s:%d: not so: %s (errno: %s)\n",
                 file,
                 line,
                 what,
                 strerror (errno));
        exit (1);
    }
}

static flux_t *h;
static flux_reactor_t *r;
static flux_jobid_t id;
static const char *arg;
static const char *arg2;

/* --- what most checks need ------------------------------------------------- */

static inline flux_bcast_opts_t *make (int flags)
{
    flux_bcast_opts_t *o = flux_bcast_opts_create ();

    OK (o != NULL);
    OK (flux_bcast_opts_set_flags (o, flags) == 0);
    return o;
}

static inline flux_future_t *start (flux_bcast_opts_t *o)
{
    flux_future_t *f = flux_bcast_start (h, id, o);

    OK (f != NULL);
    flux_bcast_opts_destroy (o);
    return f;
}

/* Blocks until the result; returns its errno.
 */
static inline int result (flux_future_t *f)
{
    while (flux_future_get (f, NULL) == 0) {
        if (flux_bcast_is_final (f)) {
            OK (flux_bcast_get_errnum (f) == 0);
            return 0;
        }
        flux_future_reset (f);
    }
    int e = errno;
    OK (flux_bcast_is_final (f));
    OK (flux_bcast_get_errnum (f) == e);
    OK (strlen (flux_bcast_get_error_text (f)) > 0);
    return e;
}

static inline void print_copies (flux_future_t *f)
{
    for (int i = 0; i < flux_bcast_get_rank_count (f); i++)
        for (int j = 0; j < flux_bcast_get_rank_path_count (f, i); j++)
            printf ("%" PRId64 " %s\n",
                    flux_bcast_get_rank (f, i),
                    flux_bcast_get_rank_path (f, i, j));
}

struct check {
    const char *name;
    void (*run) (void);
};

/* Runs the check that is asked for: CHECK [JOBID [ARG [ARG]]]; checks ends with a NULL
 * name.
 */
static inline int run_check (const struct check *checks, int argc, char *argv[])
{
    OK (argc > 1);
    OK (argc < 3 || flux_job_id_parse (argv[2], &id) == 0);
    arg = argc > 3 ? argv[3] : NULL;
    arg2 = argc > 4 ? argv[4] : NULL;
    (void)arg2; /* not every program has use for it */
    OK ((h = flux_open (NULL, 0)) && (r = flux_get_reactor (h)));
    for (; checks->name; checks++) {
        if (!strcmp (checks->name, argv[1])) {
            checks->run ();
            if (h)
                flux_close (h);
            return 0;
        }
    }
    OK (!"a check of that name");
    return 1;
}

#endif /* !CAPI_CHECK_H */
