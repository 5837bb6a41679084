/* capi-tasks.c - what the C functions promise besides plain transfers: shared
 * objects, digests, sources on a rank, fetching, listing, removing
 *
 *	capi-tasks CHECK [JOBID [ARG [ARG]]]
 */
#include <fcntl.h>
#include <unistd.h>

#include "capi-check.h"

/* The functions that begin something, of one kind.
 */
typedef flux_future_t *begin_f (flux_t *, flux_jobid_t, const flux_bcast_opts_t *);
typedef flux_future_t *begin_enclosing_f (flux_t *, const flux_bcast_opts_t *);

static flux_future_t *begin (begin_f *function, flux_bcast_opts_t *o)
{
    flux_future_t *f = function (h, id, o);

    if (!f)
        fprintf (stderr, "%s\n", flux_bcast_opts_get_error_text (o));
    OK (f != NULL);
    flux_bcast_opts_destroy (o);
    return f;
}

/* The options are refused, and the text has that word.
 */
static void refused (begin_f *function, flux_bcast_opts_t *o, const char *word)
{
    NULL_FAILS (EINVAL, function (h, id, o));
    fprintf (stderr, "%s\n", flux_bcast_opts_get_error_text (o));
    OK (strstr (flux_bcast_opts_get_error_text (o), word) != NULL);
    flux_bcast_opts_destroy (o);
}

static flux_bcast_opts_t *with_path (int flags, const char *path)
{
    flux_bcast_opts_t *o = make (flags);

    OK (flux_bcast_opts_add_path (o, path, NULL) == 0);
    return o;
}

static void print_error (flux_future_t *f)
{
    int e = result (f);

    printf ("%d %s\n", e, flux_bcast_get_error_text (f));
    flux_future_destroy (f);
}

/* --- options ----------------------------------------------------------------- */

static void options (void)
{
    flux_bcast_opts_t *o = make (0);
    int pipes[2];

    NULL_FAILS (EINVAL, flux_bcast_opts_get_error_text (NULL));
    OK (!strcmp (flux_bcast_opts_get_error_text (o), ""));
    INT_FAILS (EINVAL, flux_bcast_opts_set_ranks (o, "0-x"));
    OK (strstr (flux_bcast_opts_get_error_text (o), "0-x") != NULL);
    OK (flux_bcast_opts_set_ranks (o, "0") == 0); /* success keeps the text */
    OK (strstr (flux_bcast_opts_get_error_text (o), "0-x") != NULL);
    INT_FAILS (EINVAL, flux_bcast_opts_set_from (NULL, 0));
    INT_FAILS (EINVAL, flux_bcast_opts_set_from (o, -2));
    INT_FAILS (EINVAL, flux_bcast_opts_set_from (o, (int64_t)1 << 32));
    INT_FAILS (EINVAL, flux_bcast_opts_set_libs_dir (NULL, "x"));
    INT_FAILS (EINVAL, flux_bcast_opts_set_libs_dir (o, "a/b"));
    INT_FAILS (EINVAL, flux_bcast_opts_set_libs_dir (o, ".."));
    INT_FAILS (EINVAL, flux_bcast_opts_set_exclude_libs (NULL, "/lib"));
    INT_FAILS (EINVAL, flux_bcast_opts_set_flags (o, 16384));
    OK (strstr (flux_bcast_opts_get_error_text (o), "0x4000") != NULL);
    flux_bcast_opts_destroy (o);

    NULL_FAILS (EINVAL, flux_bcast_start (NULL, 1, NULL));
    NULL_FAILS (EINVAL, flux_bcast_gather (h, 1, NULL));
    NULL_FAILS (EINVAL, flux_bcast_remove (h, 1, NULL));
    NULL_FAILS (EINVAL, flux_bcast_list (NULL, 1, NULL));
    NULL_FAILS (EINVAL, flux_bcast_list_enclosing (NULL, NULL));

    refused (flux_bcast_start, make (0), "no sources");
    OK (pipe (pipes) == 0);
    o = make (FLUX_BCAST_CHECKSUM);
    OK (flux_bcast_opts_add_stream (o, pipes[0], "s") == 0);
    refused (flux_bcast_start, o, "FLUX_BCAST_CHECKSUM");

    o = with_path (FLUX_BCAST_CHECKSUM, "x");
    OK (flux_bcast_opts_set_from (o, 0) == 0);
    refused (flux_bcast_start, o, "FLUX_BCAST_CHECKSUM");
    o = with_path (FLUX_BCAST_SEND_LIBS, "x");
    OK (flux_bcast_opts_set_from (o, 0) == 0);
    refused (flux_bcast_start, o, "FLUX_BCAST_SEND_LIBS");
    o = make (0);
    OK (flux_bcast_opts_set_from (o, 0) == 0);
    OK (flux_bcast_opts_add_path (o, "x", "name") == 0);
    refused (flux_bcast_start, o, "name");
    o = make (0);
    OK (flux_bcast_opts_set_from (o, 0) == 0);
    OK (flux_bcast_opts_add_memory (o, "x", 1, "m") == 0);
    refused (flux_bcast_start, o, "paths");

    o = with_path (0, "x");
    OK (flux_bcast_opts_set_from (o, 1) == 0);
    refused (flux_bcast_dry_run, o, "from");
    refused (flux_bcast_dry_run, make (0), "no sources");
    o = with_path (FLUX_BCAST_CHECKSUM, "x");
    refused (flux_bcast_dry_run, o, "FLUX_BCAST_CHECKSUM");

    refused (flux_bcast_gather, with_path (0, "x"), "directory");
    o = make (0);
    OK (flux_bcast_opts_set_dest (o, "d") == 0);
    refused (flux_bcast_gather, o, "no sources");
    o = with_path (FLUX_BCAST_APPEND, "x");
    OK (flux_bcast_opts_set_dest (o, "d") == 0);
    refused (flux_bcast_gather, o, "FLUX_BCAST_APPEND");
    refused (flux_bcast_gather, with_path (FLUX_BCAST_UNIQUE, "x"), "FLUX_BCAST_UNIQUE");
    o = with_path (0, "x");
    OK (flux_bcast_opts_set_dest (o, "d") == 0);
    OK (flux_bcast_opts_set_from (o, 1) == 0);
    refused (flux_bcast_gather, o, "from");

    refused (flux_bcast_list, with_path (0, "x"), "sources");
    refused (flux_bcast_list, make (FLUX_BCAST_MKDIR), "FLUX_BCAST_MKDIR");
    refused (flux_bcast_remove, with_path (FLUX_BCAST_TRUNC, "x"), "FLUX_BCAST_TRUNC");
    o = make (0);
    OK (flux_bcast_opts_set_dest (o, "d") == 0);
    refused (flux_bcast_remove, o, "destination");
}

/* The instance is not a job: there is no enclosing one.
 */
static void no_enclosing (void)
{
    begin_enclosing_f *all[] = {
        flux_bcast_start_enclosing,
        flux_bcast_dry_run_enclosing,
        flux_bcast_gather_enclosing,
        flux_bcast_list_enclosing,
        flux_bcast_remove_enclosing,
    };

    for (int i = 0; i < 5; i++) {
        flux_bcast_opts_t *o = with_path (0, "x");

        OK (flux_bcast_opts_set_dest (o, "d") == 0);
        NULL_FAILS (ENOENT, all[i] (h, o));
        OK (strstr (flux_bcast_opts_get_error_text (o), "not itself a job") != NULL);
        flux_bcast_opts_destroy (o);
    }
    NULL_FAILS (ENOENT, flux_bcast_list_enclosing (h, NULL));
}

/* --- transfers ------------------------------------------------------------------ */

/* Prints each rank, and whether it was left out.
 */
static void checksum (void)
{
    flux_bcast_opts_t *o = with_path (FLUX_BCAST_CHECKSUM | FLUX_BCAST_TRUNC, arg);
    int fd = open (arg, O_RDONLY);

    OK (fd >= 0 && flux_bcast_opts_add_fd (o, fd, "by-fd") == 0 && close (fd) == 0);
    OK (flux_bcast_opts_add_memory (o, "memory", 6, "by-memory") == 0);
    OK (flux_bcast_opts_set_dest (o, "checksum/") == 0);
    flux_future_t *f = start (o);
    OK (flux_bcast_get_rank_unchanged (NULL, 0) == -1 && errno == EINVAL);
    OK (flux_bcast_get_rank_unchanged (f, 0) == -1 && errno == EAGAIN);
    OK (result (f) == 0);
    INT_FAILS (EINVAL, flux_bcast_get_rank_unchanged (f, -1));
    for (int i = 0; i < flux_bcast_get_rank_count (f); i++) {
        OK (flux_bcast_get_rank_state (f, i) == FLUX_BCAST_RANK_DONE);
        printf ("%" PRId64 " %d %s\n",
                flux_bcast_get_rank (f, i),
                flux_bcast_get_rank_unchanged (f, i),
                flux_bcast_get_rank_path (f, i, 2));
    }
    flux_future_destroy (f);
}

static void compress (void)
{
    flux_bcast_opts_t *o = with_path (FLUX_BCAST_COMPRESS, arg);
    uint64_t bytes, rank_bytes;
    double seconds;

    OK (flux_bcast_opts_set_dest (o, "compressed") == 0);
    flux_future_t *f = start (o);
    OK (result (f) == 0);
    OK (flux_bcast_get_stats (f, &bytes, NULL) == 0);
    for (int i = 0; i < flux_bcast_get_rank_count (f); i++) {
        OK (flux_bcast_get_rank_stats (f, i, &rank_bytes, &seconds) == 0);
        OK (rank_bytes == bytes && seconds > 0.);
        OK (flux_bcast_get_rank_path_size (f, i, 0) == (int64_t)bytes);
    }
    OK (flux_bcast_get_rank_stats (f, 0, NULL, NULL) == 0);
    INT_FAILS (EINVAL, flux_bcast_get_rank_stats (f, -1, NULL, NULL));
    INT_FAILS (EINVAL, flux_bcast_get_rank_path_size (f, 0, 1));
    /* only a list knows */
    INT_FAILS (EINVAL, flux_bcast_get_rank_path_kind (f, 0, 0));
    INT_FAILS (EINVAL, flux_bcast_get_rank_path_entries (f, 0, 0));
    NULL_FAILS (EINVAL, flux_bcast_get_rank_path_digest (f, 0, 0));
    OK (!strcmp (flux_bcast_get_rank_library_path (f, 0), ""));
    OK (!strcmp (flux_bcast_get_notes (f), ""));
    NULL_FAILS (EINVAL, flux_bcast_get_notes (NULL));
    flux_future_destroy (f);
}

/* A program, its shared objects in a directory of that name (or the default for
 * "-"), to the destination: prints ranks and library paths, then the notes.
 */
static void libs (void)
{
    flux_bcast_opts_t *o = with_path (FLUX_BCAST_SEND_LIBS, "prog");

    OK (flux_bcast_opts_set_dest (o, arg) == 0);
    if (strcmp (arg2, "-"))
        OK (flux_bcast_opts_set_libs_dir (o, arg2) == 0);
    flux_future_t *f = start (o);
    OK (!strcmp (flux_bcast_get_notes (f), ""));
    OK (result (f) == 0);
    for (int i = 0; i < flux_bcast_get_rank_count (f); i++) {
        const char *path = flux_bcast_get_rank_library_path (f, i);

        OK (flux_bcast_get_rank_path_count (f, i) == (path[0] ? 2 : 1));
        printf ("%" PRId64 " %s\n", flux_bcast_get_rank (f, i), path);
    }
    printf ("%s\n", flux_bcast_get_notes (f));
    flux_future_destroy (f);
}

/* Everything is left out, and then nothing.
 */
static void exclude_libs (void)
{
    flux_bcast_opts_t *o = with_path (FLUX_BCAST_SEND_LIBS | FLUX_BCAST_UNIQUE, "prog");

    OK (flux_bcast_opts_set_exclude_libs (o, "/") == 0);
    flux_future_t *f = flux_bcast_start (h, id, o);
    OK (f && result (f) == 0);
    OK (flux_bcast_get_rank_path_count (f, 0) == 1);
    flux_future_destroy (f);
    OK (flux_bcast_opts_set_exclude_libs (o, "") == 0);
    f = start (o);
    OK (result (f) == 0);
    OK (flux_bcast_get_rank_path_count (f, 0) == 2);
    OK (!strcmp (flux_bcast_get_rank_library_path (f, 0),
                 flux_bcast_get_rank_path (f, 0, 1)));
    printf ("%s\n", flux_bcast_get_rank_path (f, 0, 1));
    flux_future_destroy (f);
    /* no place for them: the name differs by node */
    o = with_path (FLUX_BCAST_SEND_LIBS, "prog");
    OK (flux_bcast_opts_set_dest (o, "prog.{{node.id}}") == 0);
    f = start (o);
    OK (result (f) == EINVAL);
    OK (strstr (flux_bcast_get_error_text (f), "differs by node") != NULL);
    flux_future_destroy (f);
}

/* From rank 1: the path that is the argument to the destination, if any.
 */
static flux_bcast_opts_t *from_opts (int64_t rank)
{
    flux_bcast_opts_t *o = with_path (0, arg);

    OK (flux_bcast_opts_set_from (o, rank) == 0);
    OK (flux_bcast_opts_set_dest (o, arg2) == 0);
    return o;
}

static void from (void)
{
    flux_future_t *f = start (from_opts (1));

    OK (result (f) == 0);
    OK (strlen (flux_bcast_get_transfer_id (f)) == 32);
    print_copies (f);
    flux_future_destroy (f);
}

static void from_error (void)
{
    print_error (start (from_opts (1)));
}

static void from_bad_rank (void)
{
    print_error (start (from_opts (99)));
}

/* --- what would be --------------------------------------------------------------- */

/* The file that is the argument to the destination: prints for each rank what it
 * would be and where, what is there, and whether space is known to be free.
 */
static void dry_run (void)
{
    flux_bcast_opts_t *o = with_path (FLUX_BCAST_COMPRESS, arg);
    uint64_t bytes = 0;

    OK (flux_bcast_opts_set_dest (o, arg2) == 0);
    flux_future_t *f = begin (flux_bcast_dry_run, o);
    INT_FAILS (EAGAIN, flux_bcast_get_rank_free (f, 0));
    int rc = flux_future_get (f, NULL);
    OK (flux_bcast_is_final (f) && (rc < 0) == (flux_bcast_get_errnum (f) != 0));
    OK (flux_bcast_get_stats (f, &bytes, NULL) == 0 && bytes > 0);
    NULL_FAILS (EAGAIN, flux_bcast_get_transfer_id (f));
    for (int i = 0; i < flux_bcast_get_rank_count (f); i++) {
        OK (flux_bcast_get_rank_path_count (f, i) == 1);
        errno = 0;
        int64_t size = flux_bcast_get_rank_path_size (f, i, 0);
        OK (size >= 0 || errno == ENOENT);
        printf ("%" PRId64 " %d %d %d %" PRId64 " %s\n",
                flux_bcast_get_rank (f, i),
                flux_bcast_get_rank_state (f, i),
                flux_bcast_get_rank_errnum (f, i),
                flux_bcast_get_rank_free (f, i) > 0,
                size,
                flux_bcast_get_rank_path (f, i, 0));
    }
    printf ("%s\n", flux_bcast_get_error_text (f));
    flux_future_reset (f);
    INT_FAILS (ENODATA, flux_future_get (f, NULL));
    flux_future_destroy (f);
}

/* A stream is not read, a missing source is found here, and shared objects are
 * among the copies.
 */
static void dry_sources (void)
{
    flux_bcast_opts_t *o = make (FLUX_BCAST_UNIQUE);
    int pipes[2];
    char c;

    OK (pipe (pipes) == 0 && write (pipes[1], "x", 1) == 1);
    OK (flux_bcast_opts_add_stream (o, pipes[0], "stream") == 0);
    flux_future_t *f = begin (flux_bcast_dry_run, o);
    OK (result (f) == 0);
    INT_FAILS (ENOENT, flux_bcast_get_rank_path_size (f, 0, 0));
    OK (read (pipes[0], &c, 1) == 1 && c == 'x');
    flux_future_destroy (f);

    f = begin (flux_bcast_dry_run, with_path (0, "no-such-file"));
    OK (result (f) == ENOENT);
    OK (strstr (flux_bcast_get_error_text (f), "no-such-file") != NULL);
    OK (flux_bcast_get_rank_count (f) == 0);
    flux_future_destroy (f);

    o = with_path (FLUX_BCAST_SEND_LIBS, "prog");
    OK (flux_bcast_opts_set_dest (o, "dry") == 0);
    f = begin (flux_bcast_dry_run, o);
    OK (result (f) == 0);
    OK (flux_bcast_get_rank_path_count (f, 0) == 2);
    OK (strstr (flux_bcast_get_rank_path (f, 0, 1), "/dry_libs") != NULL);
    flux_future_destroy (f);
}

/* --- fetching --------------------------------------------------------------------- */

static flux_bcast_opts_t *gather_opts (int flags)
{
    flux_bcast_opts_t *o = with_path (flags, arg);

    OK (flux_bcast_opts_set_dest (o, arg2) == 0);
    return o;
}

static void gather (void)
{
    flux_future_t *f = begin (flux_bcast_gather, gather_opts (FLUX_BCAST_MKDIR));
    uint64_t done, last = 0, total, sum = 0, bytes;

    while (flux_future_get (f, NULL) == 0 && !flux_bcast_is_final (f)) {
        OK (flux_bcast_get_progress (f, &done, &total) == 0);
        OK (done >= last);
        OK (total == FLUX_BCAST_SIZE_UNKNOWN
            || flux_bcast_get_state (f) == FLUX_BCAST_ENDED);
        last = done;
        flux_future_reset (f);
    }
    OK (result (f) == 0);
    for (int i = 0; i < flux_bcast_get_rank_count (f); i++) {
        OK (flux_bcast_get_rank_stats (f, i, &bytes, NULL) == 0);
        OK (flux_bcast_get_rank_path_size (f, i, 0) == (int64_t)bytes);
        sum += bytes;
    }
    OK (flux_bcast_get_stats (f, &bytes, NULL) == 0 && bytes == sum);
    OK (flux_bcast_get_progress (f, &done, &total) == 0);
    OK (done == total && total == sum);
    OK (strlen (flux_bcast_get_transfer_id (f)) == 32);
    print_copies (f);
    flux_future_destroy (f);
}

/* Two sources, not in the order of their names; a tag; the tmpdir is where they
 * are.
 */
static void gather_two (void)
{
    flux_bcast_opts_t *o = gather_opts (FLUX_BCAST_TRUNC);

    OK (flux_bcast_opts_add_path (o, "checksum/by-fd", NULL) == 0);
    OK (flux_bcast_opts_set_ranks (o, "0,2") == 0);
    OK (flux_bcast_opts_set_fanout (o, 1) == 0);
    flux_future_t *f = begin (flux_bcast_gather, o);
    OK (result (f) == 0);
    OK (flux_bcast_get_rank_path_count (f, 1) == 2);
    OK (strstr (flux_bcast_get_rank_path (f, 1, 1), "/by-fd") != NULL);
    print_copies (f);
    flux_future_destroy (f);
}

static void gather_error (void)
{
    print_error (begin (flux_bcast_gather, gather_opts (0)));
}

/* --- lists and removals -------------------------------------------------------------- */

/* A list has one fulfilment.
 */
static void list (void)
{
    flux_future_t *f = flux_bcast_list (h, id, NULL);

    OK (f != NULL && !flux_bcast_is_final (f));
    OK (flux_bcast_get_state (f) == FLUX_BCAST_STARTING);
    INT_FAILS (EAGAIN, flux_bcast_get_rank_path_kind (f, 0, 0));
    OK (flux_future_get (f, NULL) == 0 && flux_bcast_is_final (f));
    OK (flux_bcast_get_state (f) == FLUX_BCAST_ENDED);
    NULL_FAILS (EAGAIN, flux_bcast_get_transfer_id (f));
    for (int i = 0; i < flux_bcast_get_rank_count (f); i++)
        for (int j = 0; j < flux_bcast_get_rank_path_count (f, i); j++)
            printf ("%" PRId64 " %d %" PRId64 " %" PRId64 " [%s] %s\n",
                    flux_bcast_get_rank (f, i),
                    flux_bcast_get_rank_path_kind (f, i, j),
                    flux_bcast_get_rank_path_size (f, i, j),
                    flux_bcast_get_rank_path_entries (f, i, j),
                    flux_bcast_get_rank_path_digest (f, i, j),
                    flux_bcast_get_rank_path (f, i, j));
    INT_FAILS (EINVAL, flux_bcast_get_rank_path_kind (f, 0, 1000));
    flux_future_reset (f);
    INT_FAILS (ENODATA, flux_future_get (f, NULL));
    flux_future_destroy (f);
}

/* Of one rank, by a continuation.
 */
static void on_list (flux_future_t *f, void *v)
{
    OK (flux_bcast_is_final (f) && flux_future_get (f, NULL) == 0);
    *(bool *)v = true;
}

static void list_then (void)
{
    flux_bcast_opts_t *o = make (FLUX_BCAST_NOWAIT);
    bool listed = false;

    OK (flux_bcast_opts_set_ranks (o, "2") == 0);
    OK (flux_bcast_opts_set_timeout (o, 20.) == 0);
    flux_future_t *f = begin (flux_bcast_list, o);
    OK (flux_future_then (f, -1., on_list, &listed) == 0);
    OK (flux_reactor_run (r, 0) == 0);
    OK (listed && flux_bcast_get_rank_count (f) == 1);
    OK (flux_bcast_get_rank (f, 0) == 2);
    flux_future_destroy (f);
}

static void remove_path (void)
{
    flux_future_t *f = begin (flux_bcast_remove, with_path (0, arg));

    OK (flux_future_get (f, NULL) == 0 && flux_bcast_is_final (f));
    INT_FAILS (ENOENT, flux_bcast_get_rank_path_size (f, 0, 0));
    print_copies (f);
    flux_future_destroy (f);
}

static void remove_all (void)
{
    flux_future_t *f = begin (flux_bcast_remove, make (0));

    OK (result (f) == 0);
    print_copies (f);
    flux_future_destroy (f);
}

/* One path that is there and one that is not.
 */
static void remove_partly (void)
{
    flux_bcast_opts_t *o = with_path (0, arg);

    OK (flux_bcast_opts_add_path (o, "nothing-of-ours", NULL) == 0);
    flux_future_t *f = begin (flux_bcast_remove, o);
    OK (result (f) == ENOENT);
    OK (strstr (flux_bcast_get_error_text (f), "nothing-of-ours") != NULL);
    for (int i = 0; i < flux_bcast_get_rank_count (f); i++) {
        OK (flux_bcast_get_rank_state (f, i) == FLUX_BCAST_RANK_FAILED);
        OK (flux_bcast_get_rank_errnum (f, i) == ENOENT);
        OK (strstr (flux_bcast_get_rank_error_text (f, i), "nothing-of-ours") != NULL);
        OK (flux_bcast_get_rank_path_count (f, i) == 1);
    }
    flux_future_destroy (f);
}

/* A job that cannot be asked, or only later: all kinds but plain transfers.
 */
static void no_job (void)
{
    flux_bcast_opts_t *o = from_opts (0);

    print_error (start (o));
    print_error (begin (flux_bcast_gather, gather_opts (0)));
    print_error (flux_bcast_list (h, id, NULL));
    print_error (begin (flux_bcast_remove, make (0)));
    print_error (begin (flux_bcast_dry_run, with_path (0, "file")));
}

static void pending (void)
{
    flux_bcast_opts_t *all[5];
    begin_f *functions[] = {
        flux_bcast_start,
        flux_bcast_gather,
        flux_bcast_list,
        flux_bcast_remove,
        flux_bcast_dry_run,
    };

    for (int pass = 0; pass < 2; pass++) {
        all[0] = from_opts (0);
        all[1] = gather_opts (0);
        all[2] = make (0);
        all[3] = make (0);
        all[4] = with_path (0, "file");
        for (int i = 0; i < 5; i++) {
            if (pass)
                OK (flux_bcast_opts_set_flags (all[i], FLUX_BCAST_NOWAIT) == 0);
            else
                OK (flux_bcast_opts_set_timeout (all[i], 2.) == 0);
            flux_future_t *f = begin (functions[i], all[i]);
            OK (result (f) == (pass ? EAGAIN : ETIMEDOUT));
            OK (flux_bcast_get_rank_count (f) == 0);
            flux_future_destroy (f);
        }
    }
}

/* --- names ------------------------------------------------------------------------------- */

/* A name that is no text, all the way: sent, listed, sent on, fetched, removed.
 */
static void bytes (void)
{
    const char *name = "by\xff\xfete\ns";
    flux_bcast_opts_t *o = make (0);
    bool seen = false;

    OK (flux_bcast_opts_add_memory (o, "bytes", 5, name) == 0);
    OK (flux_bcast_opts_set_ranks (o, "0-1") == 0);
    flux_future_t *f = start (o);
    OK (result (f) == 0);
    OK (!strcmp (strrchr (flux_bcast_get_rank_path (f, 1, 0), '/') + 1, name));
    flux_future_destroy (f);

    f = flux_bcast_list (h, id, NULL);
    OK (f && result (f) == 0);
    for (int j = 0; j < flux_bcast_get_rank_path_count (f, 1); j++)
        seen = seen || strstr (flux_bcast_get_rank_path (f, 1, j), name);
    OK (seen);
    flux_future_destroy (f);

    o = with_path (0, name);
    OK (flux_bcast_opts_set_from (o, 1) == 0);
    OK (flux_bcast_opts_set_ranks (o, "2-3") == 0);
    f = start (o);
    OK (result (f) == 0);
    flux_future_destroy (f);

    o = with_path (0, name);
    OK (flux_bcast_opts_set_dest (o, "by\xff.{{rank}}") == 0);
    f = begin (flux_bcast_gather, o);
    OK (result (f) == 0);
    FILE *fetched = fopen (flux_bcast_get_rank_path (f, 3, 0), "r");
    char data[9] = "";
    OK (fetched && fread (data, 1, 8, fetched) == 5 && !strcmp (data, "bytes"));
    OK (fclose (fetched) == 0);
    OK (strstr (flux_bcast_get_rank_path (f, 3, 0), "/by\xff.3/") != NULL);
    flux_future_destroy (f);

    f = begin (flux_bcast_remove, with_path (0, name));
    OK (result (f) == 0);
    OK (strstr (flux_bcast_get_rank_path (f, 0, 0), name) != NULL);
    flux_future_destroy (f);
}

/* --- the end of futures -------------------------------------------------------------------- */

/* So that a large file takes seconds, in which the ranks need nobody here.
 */
static flux_bcast_opts_t *slowly (flux_bcast_opts_t *o)
{
    OK (flux_bcast_opts_set_chunk (o, 4096) == 0);
    OK (flux_bcast_opts_set_batch (o, 4096) == 0);
    OK (flux_bcast_opts_set_window (o, 4096) == 0);
    return o;
}

/* The kinds by name; the argument is a large file of the ranks.
 */
static flux_future_t *of_kind (const char *kind)
{
    if (!strcmp (kind, "from"))
        return start (slowly (from_opts (1)));
    if (!strcmp (kind, "gather"))
        return begin (flux_bcast_gather, slowly (gather_opts (FLUX_BCAST_TRUNC)));
    if (!strcmp (kind, "dry-run"))
        return begin (flux_bcast_dry_run, with_path (0, "file"));
    if (!strcmp (kind, "list"))
        return flux_bcast_list (h, id, NULL);
    return begin (flux_bcast_remove, with_path (0, "nothing-of-ours"));
}

static const char *const kinds[] = { "from", "gather", "list", "remove", "dry-run" };

struct watch {
    bool destroy;
    int ended;
};

static void on_news (flux_future_t *f, void *v)
{
    struct watch *w = v;

    if (flux_bcast_is_final (f)) {
        OK (!w->destroy);
        w->ended = flux_bcast_get_errnum (f);
        return;
    }
    if (flux_bcast_get_state (f) == FLUX_BCAST_SENDING) {
        if (w->destroy) {
            flux_future_destroy (f);
            return;
        }
        OK (flux_bcast_cancel (f, "enough of this") == 0);
    }
    flux_future_reset (f);
}

/* Transfers in the middle: destroyed by the continuation, or called off.
 */
static void halfway (void)
{
    for (int i = 0; i < 4; i++) {
        struct watch w = { .destroy = i % 2 == 0 };
        flux_future_t *f = of_kind (kinds[i / 2]);

        OK (flux_future_then (f, -1., on_news, &w) == 0);
        OK (flux_reactor_run (r, 0) == 0); /* nothing is left to watch */
        if (w.destroy)
            continue;
        OK (w.ended == ECANCELED);
        OK (strstr (flux_bcast_get_error_text (f), "enough of this") != NULL);
        flux_future_destroy (f);
    }
}

/* All kinds: before anybody waits, while the job is looked for, and after a
 * moment.
 */
static void destroyed (void)
{
    for (int i = 0; i < 5; i++) {
        double waits[] = { 0.0001, 0.02, 0.2 };

        flux_future_destroy (of_kind (kinds[i]));
        for (int j = 0; j < 3; j++) {
            flux_future_t *f = of_kind (kinds[i]);
            int rc = flux_future_wait_for (f, waits[j]);

            OK (rc == 0 || errno == ETIMEDOUT);
            flux_future_destroy (f);
        }
    }
}

/* What is no transfer and is called off, before and after the result.
 */
static void on_called_off (flux_future_t *f, void *v)
{
    OK (flux_bcast_is_final (f));
    *(int *)v = flux_bcast_get_errnum (f);
}

static void called_off (void)
{
    for (int i = 2; i < 5; i++) {
        flux_future_t *f = of_kind (kinds[i]);
        int errnum = -1;

        OK (flux_bcast_cancel (f, NULL) == 0); /* nothing has begun */
        OK (flux_future_then (f, -1., on_called_off, &errnum) == 0);
        OK (flux_bcast_cancel (f, "not now") == 0);
        OK (flux_reactor_run (r, 0) == 0);
        OK (errnum == ECANCELED);
        OK (strstr (flux_bcast_get_error_text (f), "not now") != NULL);
        OK (flux_bcast_cancel (f, "too late") == 0);
        flux_future_destroy (f);
    }
}

/* --- the enclosing job ------------------------------------------------------------------------ */

static void enclosing (void)
{
    flux_bcast_opts_t *o = make (0);

    OK (flux_bcast_opts_add_memory (o, "inner", 5, "inner") == 0);
    flux_future_t *f = flux_bcast_dry_run_enclosing (h, o);
    OK (f && result (f) == 0 && flux_bcast_get_rank_count (f) == 2);
    flux_future_destroy (f);
    f = flux_bcast_start_enclosing (h, o);
    OK (f && result (f) == 0);
    flux_future_destroy (f);
    flux_bcast_opts_destroy (o);

    f = flux_bcast_list_enclosing (h, NULL);
    OK (f && result (f) == 0);
    OK (flux_bcast_get_rank_count (f) == 2);
    OK (flux_bcast_get_rank_path_count (f, 1) == 1);
    flux_future_destroy (f);

    o = with_path (0, "inner");
    OK (flux_bcast_opts_set_dest (o, "outer") == 0);
    f = flux_bcast_gather_enclosing (h, o);
    OK (f && result (f) == 0);
    print_copies (f);
    flux_future_destroy (f);
    flux_bcast_opts_destroy (o);

    o = make (0);
    f = flux_bcast_remove_enclosing (h, o);
    OK (f && result (f) == 0);
    OK (flux_bcast_get_rank_path_count (f, 1) == 1);
    flux_future_destroy (f);
    flux_bcast_opts_destroy (o);
}

/* ------------------------------------------------------------------------------------------------ */

static const struct check checks[] = {
    { "options", options },
    { "no-enclosing", no_enclosing },
    { "checksum", checksum },
    { "compress", compress },
    { "libs", libs },
    { "exclude-libs", exclude_libs },
    { "from", from },
    { "from-error", from_error },
    { "from-bad-rank", from_bad_rank },
    { "dry-run", dry_run },
    { "dry-sources", dry_sources },
    { "gather", gather },
    { "gather-two", gather_two },
    { "gather-error", gather_error },
    { "list", list },
    { "list-then", list_then },
    { "remove", remove_path },
    { "remove-all", remove_all },
    { "remove-partly", remove_partly },
    { "no-job", no_job },
    { "pending", pending },
    { "bytes", bytes },
    { "halfway", halfway },
    { "destroyed", destroyed },
    { "called-off", called_off },
    { "enclosing", enclosing },
    { NULL, NULL },
};

int main (int argc, char *argv[])
{
    return run_check (checks, argc, argv);
}
