/* hostile.c - a sender that keeps to none of the rules, one attack at a time
 *
 *	hostile ATTACK JOBID
 *
 * It has the rights of the job's owner, and speaks to the shells directly. Each
 * attack ends with status 0 if every answer was as it should be, or says which
 * line of this file was not so and ends with 1.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <flux/core.h>

#define OK(condition) ok (condition, #condition, __LINE__)

static void ok (bool good, const char *what, int line)
{
    if (!good) {
        fprintf (stderr,
                 "hostile.c:%d: not so: %s (errno: %s)\n",
                 line,
                 what,
                 strerror (errno));
        exit (1);
    }
}

static flux_t *h;
static flux_jobid_t id;
static char service[256];

/* --- what the attacks need ------------------------------------------------- */

static void find_service (void)
{
    flux_future_t *f = flux_job_event_watch (h,
                                             id,
                                             "guest.exec.eventlog",
                                             FLUX_JOB_EVENT_WATCH_WAITCREATE);
    const char *event = NULL, *at = NULL;

    while (!at) {
        OK (flux_future_wait_for (f, 30.) == 0);
        OK (flux_job_event_watch_get (f, &event) == 0);
        at = strstr (event, "\"service\":");
        if (!at)
            flux_future_reset (f);
    }
    OK (sscanf (at, "\"service\":\"%200[^\"]\"", service) == 1);
    flux_future_destroy (f);
}

static const char *topic (const char *method)
{
    static char topic[300];

    snprintf (topic, sizeof (topic), "%s.bcast.%s", service, method);
    return topic;
}

/* Sends JSON to the job's first shell. */
static flux_future_t *ask (const char *method, const char *json, int flags)
{
    flux_future_t *f = flux_rpc (h, topic (method), json, 0, flags);

    OK (f != NULL);
    return f;
}

/* The next answer: errno, and the answer or what went wrong. */
static int answer (flux_future_t *f, const char **text)
{
    int error = 0;

    *text = NULL;
    OK (flux_future_wait_for (f, 60.) == 0 || errno != ETIMEDOUT);
    if (flux_rpc_get (f, text) < 0) {
        error = errno;
        *text = flux_future_error_string (f);
    }
    if (!*text)
        *text = "";
    return error;
}

/* The answer must be this error, with a text that holds `says`. */
static void refused (flux_future_t *f, int error, const char *says)
{
    const char *text;
    int got = answer (f, &text);

    if (got != error || !strstr (text, says))
        fprintf (stderr, "got %s: %s\n", strerror (got), text);
    OK (got == error && strstr (text, says));
    flux_future_destroy (f);
}

/* A transfer may be opened, and this is what comes first. */
static void begun (flux_future_t *f)
{
    const char *text;

    OK (answer (f, &text) == 0 && strstr (text, "ready"));
    flux_future_reset (f);
}

/* So many ranks say that they failed, each with a text that holds `says`. They
 * find out by themselves, each in its own time.
 */
static void failed (flux_future_t *f, int ranks, const char *says)
{
    const char *text;

    while (ranks > 0) {
        OK (answer (f, &text) == 0);
        if (strstr (text, "\"failure\"")) {
            if (!strstr (text, says))
                fprintf (stderr, "%s\n", text);
            OK (strstr (text, says));
            ranks--;
        }
        flux_future_reset (f);
    }
}

/* The transfer ends, its last word holding `says`. */
static void ended (flux_future_t *f, const char *says)
{
    const char *text;
    bool done = false;

    while (answer (f, &text) == 0) {
        done = strstr (text, "\"done\"") != NULL;
        if (done && !strstr (text, says))
            fprintf (stderr, "%s\n", text);
        OK (!done || strstr (text, says));
        flux_future_reset (f);
    }
    OK (done && errno == ENODATA);
    flux_future_destroy (f);
}

static unsigned char transfer[16];

static const char *hex (void)
{
    static char hex[33];

    for (int i = 0; i < 16; i++)
        snprintf (hex + 2 * i, 3, "%02x", transfer[i]);
    return hex;
}

/* Opens a new transfer to the ranks of `tree`, with other fields as said. */
static flux_future_t *open_with (const char *tree,
                                 const char *tuning,
                                 const char *dest,
                                 int flags)
{
    static unsigned int number;
    char json[4096];
    int len;

    memset (transfer, 7, sizeof (transfer));
    number++;
    memcpy (transfer, &number, sizeof (number));
    len = snprintf (json,
                    sizeof (json),
                    "{\"version\":1,\"transfer\":\"%s\",\"tree\":%s,\"dest\":%s,"
                    "\"policy\":{},\"tuning\":%s,\"partial\":false}",
                    hex (),
                    tree,
                    dest,
                    tuning);
    OK (len < (int)sizeof (json));
    return ask ("open", json, flags | FLUX_RPC_STREAMING);
}

#define ONE "{\"ranks\":[0],\"parents\":[0]}"
#define TWO "{\"ranks\":[0,1],\"parents\":[0,0]}"
#define CHAIN "{\"ranks\":[0,1,2],\"parents\":[0,0,1]}"

static flux_future_t *open_plain (void)
{
    return open_with (ONE, "{}", "{}", 0);
}

static flux_future_t *order_over (flux_t *over, const char *order)
{
    char json[256];
    flux_future_t *f;

    snprintf (json, sizeof (json), "{\"transfer\":\"%s\",\"order\":%s}", hex (), order);
    OK ((f = flux_rpc (over, topic ("ctl"), json, 0, 0)) != NULL);
    return f;
}

static void order (const char *what)
{
    const char *text;
    flux_future_t *f = order_over (h, what);

    OK (answer (f, &text) == 0);
    flux_future_destroy (f);
}

#define ABORT "{\"abort\":{\"rank\":null,\"errno\":125,\"text\":\"enough\"}}"

/* By a table, for the sake of the attack with the most data. */
static uint32_t crc32_of (const unsigned char *at, size_t len)
{
    static uint32_t table[256];
    uint32_t crc = UINT32_MAX;

    for (uint32_t byte = 0; !table[255] && byte < 256; byte++) {
        table[byte] = byte;
        for (int bit = 0; bit < 8; bit++)
            table[byte] = table[byte] >> 1 ^ (table[byte] & 1 ? 0xedb88320 : 0);
    }
    while (len--)
        crc = crc >> 8 ^ table[(crc ^ *at++) & 255];
    return ~crc;
}

static void put (unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

enum { ENTRY = 1, DATA, HOLE, END, FIN };

/* What happens to the next data message on its way: this byte of it changes. */
static int damaged_byte = -1;

/* A data message of the open transfer, well-formed whatever it says. */
static flux_future_t *send_over (flux_t *over,
                                 int kind,
                                 uint64_t seq,
                                 uint64_t offset,
                                 uint64_t span,
                                 const void *bytes,
                                 size_t len)
{
    unsigned char *frame = calloc (1, 64 + len);
    flux_future_t *f;

    OK (frame != NULL);
    memcpy (frame, "FBC1", 4);
    frame[4] = (unsigned char)kind;
    memcpy (frame + 8, transfer, 16);
    put (frame + 24, seq, 8);
    put (frame + 32, offset, 8);
    put (frame + 40, span, 8);
    put (frame + 52, len, 4);
    put (frame + 56, crc32_of (bytes, len), 4);
    put (frame + 60, crc32_of (frame, 60), 4);
    if (len)
        memcpy (frame + 64, bytes, len);
    if (damaged_byte >= 0)
        frame[damaged_byte] ^= 4;
    damaged_byte = -1;
    OK ((f = flux_rpc_raw (over, topic ("data"), frame, (int)(64 + len), 0, 0)) != NULL);
    free (frame);
    return f;
}

static void send (int kind, uint64_t seq, uint64_t offset, uint64_t span, const char *text)
{
    flux_future_destroy (send_over (h, kind, seq, offset, span, text, strlen (text)));
}

/* --- the attacks ----------------------------------------------------------- */

/* What no request is, to every method: an error and nothing else. */
static void junk (void)
{
    static const char *const methods[] = {
        "plan", "open", "data", "ctl", "release", "inspect",
        "has", "list", "from", "fetch", "credit", "remove",
    };
    char deep[20000], bytes[300];

    memset (deep, '[', sizeof (deep) - 1);
    deep[sizeof (deep) - 1] = 0;
    for (size_t i = 0; i < sizeof (methods) / sizeof (methods[0]); i++) {
        for (int flags = 0; flags <= FLUX_RPC_STREAMING; flags += FLUX_RPC_STREAMING) {
            refused (ask (methods[i], NULL, flags), EPROTO, "");
            refused (ask (methods[i], "", flags), EPROTO, "");
            refused (ask (methods[i], "\"x\"", flags), EPROTO, "");
            refused (ask (methods[i], deep, flags), EPROTO, "");
            for (int byte = 0; byte < 256; byte += 51) {
                memset (bytes, byte, sizeof (bytes));
                refused (flux_rpc_raw (h, topic (methods[i]), bytes, sizeof (bytes), 0, flags),
                         EPROTO,
                         "");
            }
        }
    }
}

/* Openings that ask for the impossible. */
static void limits (void)
{
    static const char *const bad[][2] = {
        { "{\"stall\":1e300}", "stall" },
        { "{\"stall\":-1}", "stall" },
        { "{\"window\":18446744073709551615}", "window" },
        { "{\"window\":0}", "window" },
        { "{\"pace\":0}", "pace" },
        { "{\"pace\":9223372036854775807}", "pace" },
        { "{\"chunk\":0}", "chunk" },
        { "{\"chunk\":4294967295}", "chunk" },
        { "{\"batch\":4294967295}", "batch" },
        { "{\"k\":0}", "k " },
        { "{\"window\":-1}", "" },
        { "{\"window\":1e400}", "" },
    };
    static const char *const trees[] = {
        "{\"ranks\":[],\"parents\":[]}",
        "{\"ranks\":[0,1,2],\"parents\":[0,2,1]}",
        "{\"ranks\":[0,1,1],\"parents\":[0,0,0]}",
        "{\"ranks\":[1,0],\"parents\":[0,0]}",
        "{\"ranks\":[0,4294967295],\"parents\":[0,0]}",
        "{\"ranks\":[0,-1],\"parents\":[0,0]}",
    };

    char release[64];

    for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++)
        refused (open_with (ONE, bad[i][0], "{}", 0), EPROTO, bad[i][1]);
    for (size_t i = 0; i < sizeof (trees) / sizeof (trees[0]); i++)
        refused (open_with (trees[i], "{}", "{}", 0), EPROTO, "");
    for (int i = 0; i < 5; i++) {
        refused (ask ("plan", "{\"version\":1,\"ranks\":\"0-1048575\"}", 0), EINVAL, "rank");
        refused (ask ("plan", "{\"version\":1,\"hosts\":\"no[0-1048575]\"}", 0), EINVAL, "host");
    }
    snprintf (release, sizeof (release), "{\"transfer\":\"%s\"}", hex ());
    refused (ask ("release", release, 0), EPROTO, "does not wait");
    refused (ask ("remove", "{}", 0), EPROTO, "name what is to be removed");
    refused (ask ("remove", "{\"paths\":[],\"all\":false}", 0), EPROTO, "name what");
    refused (ask ("remove", "{\"paths\":[\"f\"],\"all\":true}", 0), EPROTO, "name what");
    /* Flux does not tell when such a sender is gone. */
    flux_future_destroy (open_with (ONE, "{}", "{}", FLUX_RPC_NORESPONSE));
    refused (order_over (h, "\"ping\""), ESTALE, "");
}

/* Streams that are none. */
static void streams (void)
{
    static const char *const paths[] = {
        "../escaped", "/tmp/escaped", "..", ".", "", "a/../../escaped", "a//escaped",
    };
    char entry[200];
    flux_future_t *f;

    begun (f = open_plain ());
    order ("\"commit\"");
    order (ABORT);
    ended (f, "before the data was complete");

    for (size_t i = 0; i < sizeof (paths) / sizeof (paths[0]); i++) {
        begun (f = open_plain ());
        snprintf (entry,
                  sizeof (entry),
                  "{\"path\":\"%s\",\"kind\":\"file\",\"mode\":420}",
                  paths[i]);
        send (ENTRY, 0, 0, 0, entry);
        failed (f, 1, "never sent");
        order (ABORT);
        ended (f, "never sent");
    }
    snprintf (entry, sizeof (entry), "{\"path\":\"f\",\"kind\":\"file\",\"mode\":420}");

    begun (f = open_plain ());
    send (ENTRY, 0, 0, 0, entry);
    send (DATA, 2, 0, 1, "x");
    order (ABORT);
    ended (f, "2 came instead of 1");

    begun (f = open_plain ());
    send (ENTRY, 0, 0, 0, entry);
    send (HOLE, 1, 0, UINT64_C (1) << 62, "");
    failed (f, 1, "too long");
    order (ABORT);
    ended (f, "too long");

    begun (f = open_plain ());
    send (ENTRY, 0, 0, 0, entry);
    send (DATA, 1, 0, 1, "x");
    send (END, 2, 1, 0, "01234567890123456789012345678901");
    failed (f, 1, "digest");
    order (ABORT);
    ended (f, "digest");

    f = open_with (ONE, "{}", "{\"path\":\"../escaped\"}", 0);
    begun (f);
    failed (f, 1, "cannot lead out");
    order (ABORT);
    ended (f, "cannot lead out");
}

/* Opens a transfer of a file `name` to a chain of three shells. */
static flux_future_t *open_chain (const char *name)
{
    char entry[200];
    flux_future_t *f = open_with (CHAIN, "{}", "{}", 0);

    begun (f);
    snprintf (entry,
              sizeof (entry),
              "{\"path\":\"%s\",\"kind\":\"file\",\"mode\":420}",
              name);
    send (ENTRY, 0, 0, 0, entry);
    send (DATA, 1, 0, 5, "begin");
    return f;
}

/* Prints what becomes of the transfer. */
static void tell_end (flux_future_t *f)
{
    const char *text;

    while (answer (f, &text) == 0) {
        if (strstr (text, "\"done\""))
            printf ("%s\n", text);
        flux_future_reset (f);
    }
    OK (errno == ENODATA);
    flux_future_destroy (f);
}

/* One byte of a message changes on its way to the first shell: one of the file,
 * one of the header. */
static void damage (void)
{
    for (int byte = 64 + 2; byte > 0; byte -= 30) {
        flux_future_t *f = open_chain ("damaged");

        damaged_byte = byte;
        refused (send_over (h, DATA, 2, 5, 6, "middle", 6), EPROTO, "checksum mismatch");
        send (DATA, 3, 11, 3, "end");
        failed (f, 1, "checksum mismatch");
        order (ABORT);
        tell_end (f);
    }
}

/* Every message is whole, but the data is not what the source has digested. */
static void digest (void)
{
    flux_future_t *f = open_chain ("altered");

    send (END, 2, 5, 0, "01234567890123456789012345678901");
    send (FIN, 3, 5, 1, "");
    failed (f, 3, "the digest differs");
    /* Whoever sends would not say so now; nobody obeys. */
    flux_future_destroy (order_over (h, "\"commit\""));
    order (ABORT);
    tell_end (f);
}

/* Somebody else's transfer is out of reach. */
static void others (void)
{
    flux_t *other = flux_open (NULL, 0);
    flux_future_t *f = open_plain ();
    const char *text;

    OK (other != NULL);
    begun (f);
    refused (order_over (other, "\"commit\""), EPERM, "another sender");
    refused (send_over (other, DATA, 0, 0, 1, "x", 1), EPERM, "another sender");
    /* A call-off is always confirmed; it does nothing here. */
    flux_future_t *abort = order_over (other, ABORT);
    OK (answer (abort, &text) == 0);
    flux_future_destroy (abort);
    flux_future_destroy (
        flux_rpc (other, topic ("disconnect"), NULL, 0, FLUX_RPC_NORESPONSE));
    usleep (200000);
    order ("\"ping\"");
    flux_close (other);
    order (ABORT);
    ended (f, "cancelled");
}

/* More transfers than a shell can have; they are left to their end. */
static void crowd (void)
{
    enum { MANY = 2000, MOST = 64 };
    static flux_future_t *f[MANY];
    const char *text;
    int open = 0;

    for (int i = 0; i < MANY; i++)
        f[i] = open_plain ();
    for (int i = 0; i < MANY; i++) {
        int error = answer (f[i], &text);
        OK (error == 0 || (error == EAGAIN && strstr (text, "try again later")));
        open += !error;
    }
    printf ("%d\n", open);
    OK (open == MOST);
}

/* Far more data than was granted, while a shell below takes none. */
static void flood (void)
{
    enum { SIZE = 1 << 20, MESSAGES = 128 };
    static char blob[SIZE];
    const char *entry = "{\"path\":\"flood\",\"kind\":\"file\",\"mode\":420}";
    const char *text;
    flux_future_t *f = open_with (TWO, "{}", "{}", 0);

    begun (f);
    send (ENTRY, 0, 0, 0, entry);
    for (int i = 0; i < MESSAGES; i++)
        flux_future_destroy (
            send_over (h, DATA, 1 + i, (uint64_t)i * SIZE, SIZE, blob, SIZE));
    OK (answer (f, &text) == 0);
    OK (strstr (text, "more data came than the 860160 bytes granted"));
    printf ("broken\n");
    fflush (stdout);
    /* Until the test has looked. */
    (void)!read (0, blob, 1);
}

/* A transfer whose data comes by TCP from scripts/tcp-feed: says where, and, once
 * that is over, what the shell said and how it ended. What is over with an 'f' has
 * failed by itself, which is waited for.
 */
static void direct (void)
{
    char kernel[64], tuning[200], byte;
    FILE *id = fopen ("/proc/sys/kernel/random/boot_id", "r");
    flux_future_t *f;
    const char *text;

    OK (id && fscanf (id, "%63s", kernel) == 1);
    fclose (id);
    snprintf (tuning, sizeof (tuning),
              "{\"direct\":true,\"chunk\":4096,\"batch\":4096,\"window\":8192},"
              "\"kernel\":\"%s\"", kernel);
    f = open_with (ONE, tuning, "{}", 0);
    OK (answer (f, &text) == 0 && strstr (text, "\"secret\""));
    printf ("%s %s\n", hex (), text);
    fflush (stdout);
    flux_future_reset (f);
    if (read (0, &byte, 1) == 1 && byte == 'f')
        failed (f, 1, "");
    order (ABORT);
    while (answer (f, &text) == 0) {
        printf ("%s\n", text);
        flux_future_reset (f);
    }
    OK (errno == ENODATA);
    flux_future_destroy (f);
}

/* What ends a fetch; 0 if nothing does for so many seconds. */
static int fetch_end (flux_future_t *f, double seconds)
{
    const void *frame;
    size_t len = 0;
    void *to = &len; /* where Flux 0.58 has an int */

    while (flux_future_wait_for (f, seconds) == 0) {
        if (flux_rpc_get_raw (f, &frame, to) < 0)
            return errno;
        flux_future_reset (f);
    }
    return 0;
}

/* Fetches whose clients are silent: each ends by itself. */
static void silent (void)
{
    enum { MANY = 66, MOST = 64 };
    static flux_future_t *f[MANY];
    char json[300];
    int over = 0;

    memset (transfer, 9, sizeof (transfer));
    for (int i = 0; i < MANY; i++) {
        transfer[0] = (unsigned char)i;
        snprintf (json,
                  sizeof (json),
                  "{\"version\":1,\"transfer\":\"%s\",\"sources\":[\"/bin/sh\"],"
                  "\"chunk\":4096,\"batch\":4096,\"window\":4096,\"stall\":6}",
                  hex ());
        f[i] = ask ("fetch", json, FLUX_RPC_STREAMING);
    }
    for (int i = MOST; i < MANY; i++)
        refused (f[i], EAGAIN, "64 transfers are open");
    /* The last of those that are open gets signs of life as long as the others
     * are there, and a while longer. */
    transfer[0] = MOST - 1;
    for (int more = 10; more > 0; more -= over == MOST - 1) {
        usleep (100000);
        refused (order_over (h, "\"ping\""), ESTALE, "");
        for (int e; over < MOST - 1 && (e = fetch_end (f[over], 0.01)) != 0; over++) {
            OK (e == ETIMEDOUT);
            OK (strstr (flux_future_error_string (f[over]),
                        "no sign of life from the client"));
        }
    }
    OK (fetch_end (f[MOST - 1], 0.5) == 0);
    /* There is room again, though this client is still there. */
    begun (open_plain ());
}

/* What makes a plugin with faults panic on rank 1 (see t/t4001-panic.t). */
static void panic (void)
{
    static const char *const methods[] = { "fault", "list", "fault" };
    flux_future_t *f[3];

    /* All at once: the job does not last. What reaches a shell that is about to
     * exit is never answered, or by its broker. */
    for (int i = 0; i < 3; i++)
        OK ((f[i] = flux_rpc (h, topic (methods[i]), NULL, 1, 0)) != NULL);
    refused (f[0], ECANCELED, "");
    for (int i = 1; i < 3; i++) {
        const char *text;
        int error = ENOSYS;

        if (flux_future_wait_for (f[i], 2.) == 0)
            error = answer (f[i], &text);
        OK (error == ENOSYS || (error == ENOTRECOVERABLE && strstr (text, "internal error")));
        flux_future_destroy (f[i]);
    }
}

/* A job that is being started is told to go on (its last shell is held). */
static void release (void)
{
    const char *json = "{\"transfer\":\"00000000000000000000000000000000\"}";

    refused (ask ("release", json, 0), EPROTO, "does not wait");
    refused (flux_rpc (h, topic ("release"), json, 1, 0), EPERM, "has not released");
}

/* In an instance of another user, nothing that touches files is done unsigned. */
static void unsigned_requests (void)
{
    static const char *methods[] = { "inspect", "has", "list", "remove" };

    for (size_t i = 0; i < sizeof (methods) / sizeof (methods[0]); i++)
        refused (ask (methods[i], "{\"version\":1,\"paths\":null}", 0),
                 EPERM,
                 "must be signed");
    refused (ask ("from", "{\"version\":1}", FLUX_RPC_STREAMING), EPERM, "must be signed");
    refused (ask ("fetch", "{\"version\":1}", FLUX_RPC_STREAMING), EPERM, "must be signed");
    refused (open_plain (), EPERM, "must be signed");
    refused (ask ("list", "{\"version\":1,\"signature\":\"junk\"}", 0), EINVAL, "");
}

/* What was signed once is done once: SIGNED names a file with the signature of a
 * request for METHOD.
 */
static void replay (void)
{
    FILE *f = fopen (getenv ("SIGNED"), "r");
    static char signature[1 << 16], json[sizeof (signature) + 100];

    OK (f && fgets (signature, sizeof (signature), f));
    snprintf (json, sizeof (json), "{\"version\":1,\"signature\":\"%s\"}", signature);
    refused (ask (getenv ("METHOD"), json, 0), EPERM, "sent before");
}

/* So are the terms of a transfer: SIGNED names a file with an opening request. */
static void reopen (void)
{
    FILE *f = fopen (getenv ("SIGNED"), "r");
    static char json[1 << 16];

    OK (f && fgets (json, sizeof (json), f));
    refused (ask ("open", json, FLUX_RPC_STREAMING), EPERM, "sent before");
}

static const struct {
    const char *name;
    void (*run) (void);
} attacks[] = {
    { "junk", junk },     { "limits", limits }, { "streams", streams },
    { "others", others }, { "crowd", crowd },   { "flood", flood },
    { "release", release }, { "silent", silent },
    { "panic", panic },     { "direct", direct },
    { "damage", damage }, { "digest", digest }, { "replay", replay },
    { "unsigned", unsigned_requests }, { "reopen", reopen },
};

int main (int argc, char *argv[])
{
    OK (argc == 3 && flux_job_id_parse (argv[2], &id) == 0);
    OK ((h = flux_open (NULL, 0)) != NULL);
    find_service ();
    for (size_t i = 0; i < sizeof (attacks) / sizeof (attacks[0]); i++) {
        if (!strcmp (attacks[i].name, argv[1])) {
            attacks[i].run ();
            flux_close (h);
            return 0;
        }
    }
    OK (!"an attack of that name");
}
