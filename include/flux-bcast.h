/* flux-bcast.h - send files to the shells of a running Flux job, and fetch them
 *
 * C99 and C++17.  Link with
 *
 *	cc prog.c $(pkg-config --cflags --libs flux-bcast)
 *
 * A transfer copies files (directories, links, memory, a stream) from this
 * process, or from one node, to each node of a job that has the flux-bcast plugin
 * in its shells; or the files of each node to this process (flux_bcast_gather).
 * What was put on nodes can be listed and removed.  Say what and how in an option
 * object, start, and wait for the future:
 *
 *	flux_bcast_opts_t *o = flux_bcast_opts_create ();
 *	flux_bcast_opts_add_path (o, "data.tar", NULL);
 *	flux_future_t *f = flux_bcast_start (h, id, o);
 *	flux_bcast_opts_destroy (o);
 *	while (flux_future_get (f, NULL) == 0 && !flux_bcast_is_final (f))
 *	    flux_future_reset (f);
 *	if (flux_bcast_is_final (f))
 *	    fprintf (stderr, "%s\n", flux_bcast_get_error_text (f));
 *	flux_future_destroy (f);
 *
 * What is promised.  Nothing appears under a final name before every target
 * rank has all data, verified by a digest; then every rank publishes its copy
 * by renaming it.  If anything fails before, nothing is changed anywhere, and
 * the result says for each rank what happened.  FLUX_BCAST_PARTIAL,
 * FLUX_BCAST_APPEND and FLUX_BCAST_IN_PLACE weaken this as described there.
 *
 * Errors.  Functions that return a number return -1 on failure, those that return
 * a pointer NULL, both with errno set; output parameters are then untouched.
 * flux_bcast_opts_get_error_text says more about options that are refused,
 * flux_bcast_get_error_text about results.
 * After an internal error of the library every call on that thread fails with
 * ENOTRECOVERABLE.
 *
 * Strings are NUL-terminated.  Paths and names are bytes in any encoding.
 *
 * Threads.  A future belongs to the thread of its handle (as in libflux): wait
 * for it, read it and destroy it there.  Handles of different threads can be
 * used at the same time.  An option object is bound to no thread, but is not
 * locked: one thread at a time.  Files are read by a thread of the library, one
 * for each transfer, with all signals blocked.
 *
 * fork(2).  A transfer stays with the process that started it.  A child must
 * use neither its futures nor its handle, not even to destroy them; descriptors
 * of the library are closed by exec.
 *
 * Where rules come from: flux_future_get(3), flux_future_then(3) and
 * flux_future_create(3) for futures, open(2) for what is said about existing
 * files, RFC 22 for sets of ranks, RFC 29 for host lists.
 */
#ifndef FLUX_BCAST_H
#define FLUX_BCAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <flux/core.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef FLUX_BCAST_API
#if defined(__GNUC__)
#define FLUX_BCAST_API __attribute__ ((visibility ("default")))
#else
#define FLUX_BCAST_API
#endif
#endif

/* --- version --------------------------------------------------------------- */

/* Version of this header. */
#define FLUX_BCAST_VERSION_MAJOR 0
#define FLUX_BCAST_VERSION_MINOR 1
#define FLUX_BCAST_VERSION_PATCH 0
#define FLUX_BCAST_VERSION_STRING "0.1.0"

/* One number to compare with: 0x010203 is 1.2.3. */
#define FLUX_BCAST_VERSION_HEX \
    ((FLUX_BCAST_VERSION_MAJOR << 16) | (FLUX_BCAST_VERSION_MINOR << 8) \
     | FLUX_BCAST_VERSION_PATCH)

/* Version of the library that is loaded, as "MAJOR.MINOR.PATCH".
 *
 * Returns: a static string, never NULL.  Any thread.
 */
FLUX_BCAST_API const char *flux_bcast_version_string (void);

/* --- options --------------------------------------------------------------- */

/* What to send, where to, and how.  Opaque. */
typedef struct flux_bcast_opts flux_bcast_opts_t;

/* Makes an option object with the defaults: no sources, all ranks of the job,
 * the job's temporary directory, existing files are not touched.
 *
 * Returns: the object, which the caller destroys; NULL with ENOMEM.
 */
FLUX_BCAST_API flux_bcast_opts_t *flux_bcast_opts_create (void);

/* Destroys an option object.  Transfers that were started with it go on.
 *
 * opts: may be NULL.  errno is kept.
 */
FLUX_BCAST_API void flux_bcast_opts_destroy (flux_bcast_opts_t *opts);

/* Says why the last call that failed with this object did: one of the functions
 * that change it, or one that starts something with it.
 *
 * Returns: one line, empty if none has failed yet, that lives until the next
 *    failure or the end of the object; NULL with EINVAL if opts is NULL.
 */
FLUX_BCAST_API const char *flux_bcast_opts_get_error_text (
    const flux_bcast_opts_t *opts);

/* Adds a file, a directory (with everything in it) or a symbolic link.
 *
 * A link that is named here is followed; links inside a directory are copied as
 * links.  The path is looked up when the transfer starts, not here.
 *
 * For what starts on ranks (flux_bcast_opts_set_from, flux_bcast_gather,
 * flux_bcast_remove) it is a path there: absolute or below the job's temporary
 * directory.  Only paths are sources there, and only without a name.
 *
 * path: copied; relative to the working directory at the time of the start.
 * name: name of the copy, one component; copied.  NULL: last component of path.
 * Returns: 0, or -1 with EINVAL (NULL or empty path, not a name) or ENOMEM.
 */
FLUX_BCAST_API int flux_bcast_opts_add_path (flux_bcast_opts_t *opts,
                                             const char *path,
                                             const char *name);

/* Adds an open regular file.  It is read from its start to its end, whatever its
 * offset, which stays as it is.  (A directory is EISDIR in the result.)
 *
 * fd: duplicated; the caller keeps it and may close it at once.
 * name: name of the copy, one component; copied.
 * Returns: 0, or -1 with EINVAL (not a name), EBADF, EMFILE or ENOMEM.
 */
FLUX_BCAST_API int flux_bcast_opts_add_fd (flux_bcast_opts_t *opts,
                                           int fd,
                                           const char *name);

/* Adds bytes in memory as a file.
 *
 * data, size: copied; data may be NULL if size is 0.
 * name: name of the copy, one component; copied.
 * Returns: 0, or -1 with EINVAL or ENOMEM.
 */
FLUX_BCAST_API int flux_bcast_opts_add_memory (flux_bcast_opts_t *opts,
                                               const void *data,
                                               size_t size,
                                               const char *name);

/* Adds a stream (pipe, socket, terminal), which is read until its end.  Its
 * size is not known beforehand; see FLUX_BCAST_SIZE_UNKNOWN.
 *
 * The stream is used up: a second transfer with the same options finds what is
 * left of it.  A transfer that is given up may leave a thread in read(2) until
 * the writer closes the stream.
 *
 * fd: duplicated; the caller keeps it and may close it at once.
 * name: name of the copy, one component; copied.
 * Returns: 0, or -1 with EINVAL (not a name), EBADF, EMFILE or ENOMEM.
 */
FLUX_BCAST_API int flux_bcast_opts_add_stream (flux_bcast_opts_t *opts,
                                               int fd,
                                               const char *name);

/* Takes the sources from the node of a shell rank, not from this process: they
 * are paths there, and that rank's shell is the root of the tree.  Unless ranks
 * or hosts are set, the rank itself gets no copies, for it has the files.
 *
 * Not with FLUX_BCAST_CHECKSUM or FLUX_BCAST_SEND_LIBS, and only for
 * flux_bcast_start; a rank that the job does not have is found there.
 *
 * rank: at least 0.  -1: this process again.
 * Returns: 0, or -1 with EINVAL.
 */
FLUX_BCAST_API int flux_bcast_opts_set_from (flux_bcast_opts_t *opts,
                                             int64_t rank);

/* Sets where the copies go on each node.  (For flux_bcast_gather it is something
 * else; see there.)
 *
 * A relative path is below the job's temporary directory, FLUX_JOB_TMPDIR, and
 * cannot leave it, neither by ".." nor by a symbolic link (EPERM in the result).
 * Tags such as {{tmpdir}} or {{node.id}} are filled in on each node.  Ending in
 * '/' it is a directory that the sources go into under their names; else it is
 * the name of the copy, if there is a single source.
 *
 * path: copied.  NULL: the default, FLUX_JOB_TMPDIR itself.
 * Returns: 0, or -1 with EINVAL (empty, or FLUX_BCAST_UNIQUE is set) or ENOMEM.
 */
FLUX_BCAST_API int flux_bcast_opts_set_dest (flux_bcast_opts_t *opts,
                                             const char *path);

/* Sets the shell ranks that get the files.  Others carry no data.  This and the
 * next three: ranks and hosts that the job does not have, and a set of which
 * nothing is left, are found when the transfer starts (EINVAL in the result).
 *
 * ranks: set of ranks (RFC 22), such as "0-3,7"; copied.  NULL: all ranks.
 * Returns: 0, or -1 with EINVAL (not a set, or an empty one).
 */
FLUX_BCAST_API int flux_bcast_opts_set_ranks (flux_bcast_opts_t *opts,
                                              const char *ranks);

/* Sets the hosts whose shells get the files; with ranks, those of these ranks that
 * are on these hosts.
 *
 * hosts: host list (RFC 29), such as "node[3-7]"; copied.  NULL: all hosts.
 * Returns: 0, or -1 with EINVAL (not a list, or an empty one).
 */
FLUX_BCAST_API int flux_bcast_opts_set_hosts (flux_bcast_opts_t *opts,
                                              const char *hosts);

/* Sets shell ranks to leave out.
 *
 * ranks: set of ranks (RFC 22); copied.  NULL: none.
 * Returns: 0, or -1 with EINVAL.
 */
FLUX_BCAST_API int flux_bcast_opts_set_exclude_ranks (flux_bcast_opts_t *opts,
                                                      const char *ranks);

/* Sets hosts to leave out.
 *
 * hosts: host list (RFC 29); copied.  NULL: none.
 * Returns: 0, or -1 with EINVAL.
 */
FLUX_BCAST_API int flux_bcast_opts_set_exclude_hosts (flux_bcast_opts_t *opts,
                                                      const char *hosts);

/* What happens to a file that exists (at most one of the first four lines):
 *
 *	0 or EXCL          it is an error, EEXIST on that rank; checked at the
 *	                   start and again, atomically, at the end
 *	TRUNC              it is replaced atomically: a reader sees the old file
 *	                   or the new one
 *	TRUNC | IN_PLACE   it is overwritten, its inode kept.  Not atomic: a reader
 *	                   sees both, a failing disk leaves a mixture
 *	APPEND             the data goes to its end, or makes it.  Not atomic; what
 *	                   others append meanwhile is kept
 *
 * The last two begin only when every rank has all data, so what can still fail
 * is the disk.  A combination that says two things about the same file is
 * refused (EINVAL): EXCL with another one, APPEND with TRUNC or IN_PLACE,
 * IN_PLACE without TRUNC.
 */
enum flux_bcast_flags {
    FLUX_BCAST_EXCL = 1,
    FLUX_BCAST_TRUNC = 2,
    FLUX_BCAST_APPEND = 4,
    FLUX_BCAST_IN_PLACE = 8,
    /* Missing parent directories of the destination are made. */
    FLUX_BCAST_MKDIR = 16,
    /* Copies and their directories are flushed to disk before they appear. */
    FLUX_BCAST_SYNC = 32,
    /* Modification and access times of the sources are kept. */
    FLUX_BCAST_TIMES = 64,
    /* Ranks that are well publish their copies although others fail.  The
     * result is then the error of the first that failed. */
    FLUX_BCAST_PARTIAL = 128,
    /* The copies go into a new directory, the same name on every rank, in the
     * job's temporary directory; see flux_bcast_get_rank_path.  Not with
     * flux_bcast_opts_set_dest. */
    FLUX_BCAST_UNIQUE = 256,
    /* If the job has not started, the result is EAGAIN; else the transfer waits
     * for its start. */
    FLUX_BCAST_NOWAIT = 512,
    /* Ranks that have the files already get nothing: those where each copy is
     * there as a regular file of the same size and digest, whatever the flags
     * say about files that exist.  The sources are read twice, so there may be
     * no stream; with anything but regular files among them (the directories of
     * FLUX_BCAST_SEND_LIBS, too), all ranks get everything.  See
     * flux_bcast_get_rank_unchanged, flux_bcast_get_notes. */
    FLUX_BCAST_CHECKSUM = 1024,
    /* Data is compressed on its way, where that makes it smaller: for networks
     * that are slower than a processor compresses. */
    FLUX_BCAST_COMPRESS = 2048,
    /* The shared objects of programs among the sources are sent, too, in
     * directories next to the copies.  They are found as the loader would find
     * them in this process, without running anything.  See
     * flux_bcast_opts_set_libs_dir, flux_bcast_opts_set_exclude_libs,
     * flux_bcast_get_rank_library_path, flux_bcast_get_notes. */
    FLUX_BCAST_SEND_LIBS = 4096,
    /* Data goes by TCP from shell to shell, past the brokers, between those that
     * can connect to each other; between others as ever.  Faster, and easier on
     * the brokers; for sites whose nodes may do that. */
    FLUX_BCAST_DIRECT = 8192,
};

/* Sets all flags, in place of earlier ones.
 *
 * flags: FLUX_BCAST_* combined by |.
 * Returns: 0, or -1 with EINVAL (unknown flag, refused combination, or
 * FLUX_BCAST_UNIQUE with a destination).
 */
FLUX_BCAST_API int flux_bcast_opts_set_flags (flux_bcast_opts_t *opts,
                                              int flags);

/* Sets the permission bits of regular files.  Without it they have those of
 * their source (0644 for memory and streams); the umask plays no part.
 *
 * mode: 0 to 0777.
 * Returns: 0, or -1 with EINVAL.
 */
FLUX_BCAST_API int flux_bcast_opts_set_mode (flux_bcast_opts_t *opts,
                                             uint32_t mode);

/* Names the directory of the shared objects of FLUX_BCAST_SEND_LIBS.  Without it
 * there is one for each program, called as its copy with "_libs" appended.
 *
 * dir: one component; copied.  NULL: the default again.
 * Returns: 0, or -1 with EINVAL (not a name).
 */
FLUX_BCAST_API int flux_bcast_opts_set_libs_dir (flux_bcast_opts_t *opts,
                                                 const char *dir);

/* Says which shared objects FLUX_BCAST_SEND_LIBS leaves out: those below these
 * directories.
 *
 * paths: separated by colons or commas; copied.  Empty: none is left out.  NULL:
 *    the default again, the system's (/lib, /usr/lib, /lib64, /usr/lib64).
 * Returns: 0, or -1 with EINVAL (opts is NULL).
 */
FLUX_BCAST_API int flux_bcast_opts_set_exclude_libs (flux_bcast_opts_t *opts,
                                                     const char *paths);

/* Sets the arity of the tree over the target ranks.  Without it the tree
 * follows the overlay network of the brokers.  For flux_bcast_gather: how many
 * ranks send at once (default 16).
 *
 * k: at least 1.  0: the default again.
 * Returns: 0, or -1 with EINVAL.
 */
FLUX_BCAST_API int flux_bcast_opts_set_fanout (flux_bcast_opts_t *opts,
                                               uint32_t k);

/* Sets the unit of offsets and flow control (default 4096).  A batch that is
 * smaller is raised to it.
 *
 * bytes: 1 to 1048576.
 * Returns: 0, or -1 with EINVAL.
 */
FLUX_BCAST_API int flux_bcast_opts_set_chunk (flux_bcast_opts_t *opts,
                                              uint32_t bytes);

/* Sets how much data one message carries at most; it is rounded down to whole
 * chunks.
 *
 * bytes: at least one chunk.
 * Returns: 0, or -1 with EINVAL (less than a chunk, or too large).
 */
FLUX_BCAST_API int flux_bcast_opts_set_batch (flux_bcast_opts_t *opts,
                                              uint32_t bytes);

/* Sets how many bytes may be under way from one node, shared by all nodes that
 * it feeds; bounds the memory of each shell as well.
 *
 * bytes: at least 1; one message is always allowed.
 * Returns: 0, or -1 with EINVAL.
 */
FLUX_BCAST_API int flux_bcast_opts_set_window (flux_bcast_opts_t *opts,
                                               uint64_t bytes);

/* Sets how many bytes per second whoever reads the data (this process, or the
 * shell of flux_bcast_opts_set_from) sends at most, to bound what other users of
 * the brokers notice.  A shell that feeds several others sends as much to each.
 * Messages count as they are sent: with their headers, and compressed where
 * FLUX_BCAST_COMPRESS is set.  A slow pace makes messages smaller, down to a
 * chunk.
 *
 * bytes_per_second: 1 to 2^40.  0: no limit, the default.
 * Returns: 0, or -1 with EINVAL (too large).
 */
FLUX_BCAST_API int flux_bcast_opts_set_pace (flux_bcast_opts_t *opts,
                                             uint64_t bytes_per_second);

/* Sets a time limit for everything from the start to the last rank's answer,
 * the wait for a pending job included.  The result is then ETIMEDOUT.
 *
 * seconds: more than 0.  0: no limit, the default.
 * Returns: 0, or -1 with EINVAL (negative, or not a number).
 */
FLUX_BCAST_API int flux_bcast_opts_set_timeout (flux_bcast_opts_t *opts,
                                                double seconds);

/* --- start ----------------------------------------------------------------- */

/* Starts a transfer to a job.
 *
 * The future is fulfilled again and again: a few times with progress, then with
 * the result, which is an error unless every target rank has the copies
 * (FLUX_BCAST_PARTIAL does not change that).  Each time flux_future_get(3)
 * tells success or error without a value (pass NULL), and
 * flux_bcast_is_final tells whether it was the result; flux_future_reset(3)
 * lets the next one come.  Progress that is not waited for is not queued, so a
 * slow caller misses nothing but intermediate figures.  After the result, a
 * further reset leads to ENODATA.
 *
 * The work begins when the caller begins to wait, in one of two ways:
 *
 *  - flux_future_then(3): it goes on in the reactor of h, beside everything
 *    else there.  Its timeout counts from one fulfilment to the next and does
 *    not end the transfer; flux_bcast_opts_set_timeout does.
 *  - flux_future_get(3) or flux_future_wait_for(3): it goes on while the call
 *    waits, and stands still between two calls.  If it stands still for more
 *    than 30 s, it fails (ETIMEDOUT): both sides take the other for lost.  Do
 *    not run the reactor of h meanwhile.
 *
 * One way for one future: flux_future_get(3) on a future that has a
 * continuation and is not ready fails with EDEADLK, and a continuation on one
 * that was waited for gets EINVAL, for good.
 *
 * If the connection itself is lost, it is as always in libflux: the reactor or
 * flux_future_get(3) fails, and there is no result.
 *
 * flux_future_destroy(3), at any time, also inside the continuation, calls the
 * transfer off on all ranks and removes what is there of it.  The result
 * belongs to the future: strings that the functions below return live until
 * then, whether or not the future is reset.
 *
 * Results are, among others: ENOENT no such job or no such source, EPERM the
 * job is another user's, ESHUTDOWN the job has ended, ENOSYS its shells do not
 * have the plugin (or the instance is another user's, so that requests must be
 * signed, and there is no flux-security), EAGAIN see FLUX_BCAST_NOWAIT,
 * ETIMEDOUT, ECANCELED, and whatever the ranks' file systems say (EEXIST, ENOSPC,
 * EACCES...).
 *
 * h: a connection to the instance that runs the job.  The future keeps a
 *    reference; flux_close(3) may come first.
 * id: the job; flux_job_id_parse(3) reads all written forms.  It may be
 *    pending.
 * opts: used during the call only (descriptors and memory are duplicated).
 * Returns: a future that the caller destroys; NULL with EINVAL (a NULL
 *    argument, no sources, options without a meaning here), ENOSYS (this process
 *    has no libflux-core, or too old a one), EMFILE or ENOMEM.
 */
FLUX_BCAST_API flux_future_t *flux_bcast_start (flux_t *h,
                                                flux_jobid_t id,
                                                const flux_bcast_opts_t *opts);

/* Starts a transfer to the job that h's instance is: from a batch script, an
 * allocation or a nested instance to all nodes of it.  The enclosing job and
 * the instance that runs it are found by the broker attributes "jobid" and
 * "parent-uri" (may wait for the broker's answer); a connection to that
 * instance is opened when the caller begins to wait, and closed with the
 * future.
 *
 * A task of a job inside that instance gets the same, the whole enclosing job;
 * its own job is in the environment variable FLUX_JOB_ID.
 *
 * h: a connection to the inner instance.
 * Returns: as flux_bcast_start; also NULL with ENOENT if h's instance is not a
 *    job.
 */
FLUX_BCAST_API flux_future_t *flux_bcast_start_enclosing (
    flux_t *h,
    const flux_bcast_opts_t *opts);

/* Finds out what flux_bcast_start would find with the same arguments, and sends
 * nothing: sources are looked at (a stream is not read), and every target rank
 * says where its copies would be, whether anything is there, how much space is
 * free, and whether it would fail for what can be seen now.
 *
 * The future has one fulfilment, the result: an error unless all ranks would have
 * the copies.  Such a rank is FLUX_BCAST_RANK_DONE, another one
 * FLUX_BCAST_RANK_FAILED, with errno and text.  Its paths are those of the copies,
 * with the sizes of what is there now; see also flux_bcast_get_rank_free.  The
 * bytes of flux_bcast_get_stats are those that each rank would get.
 *
 * Not with flux_bcast_opts_set_from or FLUX_BCAST_CHECKSUM.
 *
 * Returns: as flux_bcast_start.
 */
FLUX_BCAST_API flux_future_t *flux_bcast_dry_run (flux_t *h,
                                                  flux_jobid_t id,
                                                  const flux_bcast_opts_t *opts);

/* The same for the job that h's instance is.
 *
 * Returns: as flux_bcast_start_enclosing.
 */
FLUX_BCAST_API flux_future_t *flux_bcast_dry_run_enclosing (
    flux_t *h,
    const flux_bcast_opts_t *opts);

/* Fetches files from ranks: each rank's files into a directory of its own in this
 * process's file system.  The inverse of flux_bcast_start, with the same kind of
 * future, the same promises and results.
 *
 * flux_bcast_opts_add_path: a file or directory on the ranks, at least one.  Each
 *    rank must have each of them.
 * flux_bcast_opts_set_dest: here a directory of this process, which must be set.
 *    It gets a directory RANK for each rank; or, with the tags {{rank}} and
 *    {{host}} in it, it is each rank's directory.  The last component of the
 *    part without tags is made if it is missing, its parents with
 *    FLUX_BCAST_MKDIR.
 * Flags: EXCL, TRUNC, MKDIR, SYNC, TIMES, PARTIAL, NOWAIT; others are refused.
 * Ranks, hosts, mode, fanout, chunk, batch, window, pace and timeout as ever;
 * window and pace are shared by the ranks that send at once.
 *
 * flux_future_destroy(3) waits for the threads that write, at most some seconds
 * each, and removes what they have written.
 *
 * In the result, the paths of a rank are those of its files in this process's
 * file system, in the order in which they were added.  The total of
 * flux_bcast_get_progress is not known before the end; its first number, and
 * flux_bcast_get_stats, count the bytes of all ranks together.
 *
 * Returns: as flux_bcast_start.
 */
FLUX_BCAST_API flux_future_t *flux_bcast_gather (flux_t *h,
                                                 flux_jobid_t id,
                                                 const flux_bcast_opts_t *opts);

/* The same from the job that h's instance is.
 *
 * Returns: as flux_bcast_start_enclosing.
 */
FLUX_BCAST_API flux_future_t *flux_bcast_gather_enclosing (
    flux_t *h,
    const flux_bcast_opts_t *opts);

/* Lists what this service has put on the nodes of a job and what is still there:
 * by transfers to it, and at its start.
 *
 * The future has one fulfilment, the result: an error unless all ranks that are
 * asked have answered, in which case those that have can be read all the same.
 * A second one after flux_future_reset(3) is ENODATA.  All else, such as the two
 * ways of waiting, is as with flux_bcast_start.  In the result the paths of a
 * rank are what is there, in the order of their bytes; see
 * flux_bcast_get_rank_path_kind and the functions next to it.
 *
 * opts: ranks, hosts, timeout, FLUX_BCAST_NOWAIT; other flags, sources and a
 *    destination are refused.  NULL: all ranks.
 * Returns: as flux_bcast_start.
 */
FLUX_BCAST_API flux_future_t *flux_bcast_list (flux_t *h,
                                               flux_jobid_t id,
                                               const flux_bcast_opts_t *opts);

/* The same of the job that h's instance is.
 *
 * Returns: as flux_bcast_start_enclosing.
 */
FLUX_BCAST_API flux_future_t *flux_bcast_list_enclosing (
    flux_t *h,
    const flux_bcast_opts_t *opts);

/* Removes what this service has put on the nodes of a job: all of it, or the
 * paths that are added to opts.  What it did not put there, or was changed since,
 * is not removed: an error of that rank (ENOENT, ESTALE...), while the rest is
 * removed.
 *
 * The future is as that of flux_bcast_list.  In the result the paths of a rank are
 * what is gone.  flux_bcast_cancel does not bring it back.
 *
 * opts: as for flux_bcast_list, and paths (flux_bcast_opts_add_path).  Not NULL:
 *    say explicitly, by an object without paths, that everything is meant.
 * Returns: as flux_bcast_start.
 */
FLUX_BCAST_API flux_future_t *flux_bcast_remove (flux_t *h,
                                                 flux_jobid_t id,
                                                 const flux_bcast_opts_t *opts);

/* The same for the job that h's instance is.
 *
 * Returns: as flux_bcast_start_enclosing.
 */
FLUX_BCAST_API flux_future_t *flux_bcast_remove_enclosing (
    flux_t *h,
    const flux_bcast_opts_t *opts);

/* Calls a transfer off and keeps the future: the result, ECANCELED, comes when
 * the ranks have answered, or after a few seconds.  Ranks that have published
 * their copies keep them.  Does nothing after the result or before the caller
 * has begun to wait.
 *
 * With flux_bcast_opts_set_from, and with futures of flux_bcast_dry_run,
 * flux_bcast_gather, flux_bcast_list and flux_bcast_remove, the result comes at
 * once: without waiting for ranks, and so without saying what became of them.
 *
 * reason: words for the result's text; NULL: "cancelled".
 * Returns: 0, or -1 with EINVAL (not a future of this library).
 */
FLUX_BCAST_API int flux_bcast_cancel (flux_future_t *f, const char *reason);

/* --- progress and result --------------------------------------------------- */

/* None of these functions waits.  All fail with EINVAL if f is not a future of
 * this library, those about the result with EAGAIN as long as there is none,
 * and those about the INDEX-th target rank with EINVAL unless
 * 0 <= index < flux_bcast_get_rank_count (f).  Target ranks are in rising order.
 */

/* For the total of flux_bcast_get_progress. */
#define FLUX_BCAST_SIZE_UNKNOWN UINT64_MAX

/* How far a transfer is. */
enum flux_bcast_state {
    FLUX_BCAST_STARTING = 0, /* looking at sources and job */
    FLUX_BCAST_WAITING = 1,  /* the job has not started */
    FLUX_BCAST_SENDING = 2,  /* data flows */
    FLUX_BCAST_ENDED = 3,    /* there is a result */
};

/* What something in a list is. */
enum flux_bcast_kind {
    FLUX_BCAST_KIND_FILE = 0,
    FLUX_BCAST_KIND_DIR = 1,
    FLUX_BCAST_KIND_SYMLINK = 2,
};

/* What became of a rank. */
enum flux_bcast_rank_state {
    FLUX_BCAST_RANK_DONE = 0,      /* it has the copies (or would have
                                      them; its files are here; it has
                                      answered; it has removed all) */
    FLUX_BCAST_RANK_FAILED = 1,    /* it failed; nothing is changed there (but
                                      for what flux_bcast_remove has removed,
                                      what was written in place, and directories
                                      that were there and are filled up in part) */
    FLUX_BCAST_RANK_CANCELLED = 2, /* it was well, and gave up as others failed
                                      or the transfer was called off */
    FLUX_BCAST_RANK_UNKNOWN = 3,   /* lost while publishing: either way */
};

/* Tells whether what the future holds now is the result: true from the
 * fulfilment with the result on, and for errors that take its place (a future
 * that is waited for in two ways, an internal error); false for progress, for a
 * future without a fulfilment, and for one that is not of this library.
 */
FLUX_BCAST_API bool flux_bcast_is_final (flux_future_t *f);

/* Returns: an enum flux_bcast_state, or -1. */
FLUX_BCAST_API int flux_bcast_get_state (flux_future_t *f);

/* Bytes of file data that the slowest healthy rank has, and how many there are.
 * The first number never falls; holes of sparse files count as data.
 *
 * done, total: may be NULL.  *total is FLUX_BCAST_SIZE_UNKNOWN before the
 *    sources have been looked at, and for streams until the end.
 * Returns: 0, or -1.
 */
FLUX_BCAST_API int flux_bcast_get_progress (flux_future_t *f,
                                            uint64_t *done,
                                            uint64_t *total);

/* The transfer's random id, 32 hexadecimal digits.  EAGAIN before the caller has
 * begun to wait, and for what is no transfer.
 *
 * Returns: a string that lives as long as the future, or NULL.
 */
FLUX_BCAST_API const char *flux_bcast_get_transfer_id (flux_future_t *f);

/* What FLUX_BCAST_SEND_LIBS could not find, or that it has found nothing to send,
 * and what makes FLUX_BCAST_CHECKSUM compare nothing: one line for each.  It is no
 * failure.  Known since data flows; empty before, and if there is nothing to say.
 *
 * Returns: a string, or NULL.  One that is not empty lives as long as the future.
 */
FLUX_BCAST_API const char *flux_bcast_get_notes (flux_future_t *f);

/* Why the transfer is not a success.
 *
 * Returns: 0 for success, an errno value, or -1.
 */
FLUX_BCAST_API int flux_bcast_get_errnum (flux_future_t *f);

/* The same in words: one line for each distinct failure, which names ranks and
 * hosts ("ranks 2-3 (node[4-5]): write /tmp/x: No space left on device"), or
 * what failed on this side.  Lines are separated by newlines; the last one has
 * none.
 *
 * Returns: a string that lives as long as the future, empty for success; or
 *    NULL.
 */
FLUX_BCAST_API const char *flux_bcast_get_error_text (flux_future_t *f);

/* Bytes of the copies on one rank (sum of sizes; for flux_bcast_gather and
 * flux_bcast_list on all of them), and the time from the start to the last rank's
 * answer.
 *
 * bytes, seconds: may be NULL.
 * Returns: 0, or -1.
 */
FLUX_BCAST_API int flux_bcast_get_stats (flux_future_t *f,
                                         uint64_t *bytes,
                                         double *seconds);

/* Number of target ranks; known since data flows.
 *
 * Returns: the number (0 if it did not come to a transfer), or -1; EAGAIN as
 *    long as it is not known.
 */
FLUX_BCAST_API int flux_bcast_get_rank_count (flux_future_t *f);

/* Returns: the shell rank of a target, or -1. */
FLUX_BCAST_API int64_t flux_bcast_get_rank (flux_future_t *f, int index);

/* Returns: the host name of a target (a string that lives as long as the
 * future), or NULL.
 */
FLUX_BCAST_API const char *flux_bcast_get_rank_host (flux_future_t *f,
                                                     int index);

/* Returns: an enum flux_bcast_rank_state, or -1. */
FLUX_BCAST_API int flux_bcast_get_rank_state (flux_future_t *f, int index);

/* Returns: the errno value of what failed on that rank (0 if nothing did), or
 * -1.
 */
FLUX_BCAST_API int flux_bcast_get_rank_errnum (flux_future_t *f, int index);

/* Returns: one line that says what failed on that rank, with the path (a string
 * that lives as long as the future; empty if nothing did), or NULL.  After
 * flux_bcast_remove a line for each path, separated by newlines.
 */
FLUX_BCAST_API const char *flux_bcast_get_rank_error_text (flux_future_t *f,
                                                           int index);

/* Tells whether FLUX_BCAST_CHECKSUM has left the rank out, as it had the files.
 * Its state is then FLUX_BCAST_RANK_DONE and its paths say where they are.
 *
 * Returns: 1 if so, 0 if not, or -1.
 */
FLUX_BCAST_API int flux_bcast_get_rank_unchanged (flux_future_t *f, int index);

/* Bytes of the copies on that rank (of what was fetched from it, of what is
 * listed), and the time from the opening of the transfer there to the publication
 * of the copies (0 for what is no transfer).
 *
 * bytes, seconds: may be NULL.
 * Returns: 0, or -1.
 */
FLUX_BCAST_API int flux_bcast_get_rank_stats (flux_future_t *f,
                                              int index,
                                              uint64_t *bytes,
                                              double *seconds);

/* Returns: bytes that are free where the copies would go, as flux_bcast_dry_run
 * has found; or -1, EINVAL for other futures and ranks that gave no answer.
 */
FLUX_BCAST_API int64_t flux_bcast_get_rank_free (flux_future_t *f, int index);

/* What to set LD_LIBRARY_PATH to (or to put before what it is) for programs whose
 * shared objects FLUX_BCAST_SEND_LIBS has sent to that rank.
 *
 * Returns: directories separated by colons (a string that lives as long as the
 *    future; empty if there are none), or NULL.
 */
FLUX_BCAST_API const char *flux_bcast_get_rank_library_path (flux_future_t *f,
                                                             int index);

/* Returns: how many copies that rank has: one for each source if it is done
 * (and, behind them, the directories of FLUX_BCAST_SEND_LIBS), else 0; how many
 * things are listed there, or removed; or -1.
 */
FLUX_BCAST_API int flux_bcast_get_rank_path_count (flux_future_t *f,
                                                   int index);

/* Where a copy is.
 *
 * source: place of its source, in the order in which they were added, from 0.
 * Returns: the absolute path on that rank (a string that lives as long as the
 *    future), or NULL; EINVAL if there is no such copy.
 */
FLUX_BCAST_API const char *flux_bcast_get_rank_path (flux_future_t *f,
                                                     int index,
                                                     int source);

/* Size of a copy; for a directory, of all files in it.
 *
 * Returns: bytes, or -1; EINVAL if there is no such copy, ENOENT if nothing is
 *    there: it is removed, or it is what flux_bcast_dry_run says would be made.
 */
FLUX_BCAST_API int64_t flux_bcast_get_rank_path_size (flux_future_t *f,
                                                      int index,
                                                      int source);

/* More about what flux_bcast_list has found.  EINVAL for other futures, and if
 * there is nothing of that index.
 *
 * Returns: an enum flux_bcast_kind, or -1.
 */
FLUX_BCAST_API int flux_bcast_get_rank_path_kind (flux_future_t *f,
                                                  int index,
                                                  int source);

/* Returns: how many files, directories and links there are in a directory (0 for
 * what is none), or -1.
 */
FLUX_BCAST_API int64_t flux_bcast_get_rank_path_entries (flux_future_t *f,
                                                         int index,
                                                         int source);

/* Returns: the BLAKE3 digest of a regular file, 64 hexadecimal digits (a string
 * that lives as long as the future; empty for anything else, such as a file that
 * was appended to), or NULL.
 */
FLUX_BCAST_API const char *flux_bcast_get_rank_path_digest (flux_future_t *f,
                                                            int index,
                                                            int source);

#ifdef __cplusplus
}
#endif

#endif /* !FLUX_BCAST_H */
