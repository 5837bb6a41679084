/* signing.c - stands in for flux-security where there is none
 *
 * Signs with a key in a file, as munged does with that of the cluster: whoever
 * has no access to that file can sign nothing. Built as a shared library.
 *
 *	SIGNING_KEY=FILE   the key (required)
 *	SIGNING_UID=UID    sign in the name of another user
 *	SIGNING_FLIP=WORD  sign something else than one is asked to: the first digit
 *	                   after WORD, where WORD occurs, is changed
 *	                   (also where the file $SIGNING_KEY.flip has the word)
 *	SIGNING_LOG=FILE   keeps the latest signature whose text has SIGNING_WORD
 *	                   ($SIGNING_KEY.log keeps it where $SIGNING_KEY.word has
 *	                   the word)
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "flux_security_abi.h"

struct flux_security {
    char key[64];
    char *token;
    char *payload;
    const char *error;
    int errnum;
};

static int fail (flux_security_t *ctx, int errnum, const char *text)
{
    ctx->errnum = errnum;
    ctx->error = text;
    return -1;
}

/* Good enough to tell who knows the key, in a test (FNV-1a). */
static uint64_t mac (const flux_security_t *ctx, const char *text)
{
    uint64_t sum = 0xcbf29ce484222325;

    for (const char *parts[] = { ctx->key, text, ctx->key, NULL }, **p = parts; *p; p++)
        for (const char *c = *p; *c; c++)
            sum = (sum ^ (unsigned char)*c) * 0x100000001b3;
    return sum;
}

flux_security_t *flux_security_create (int flags)
{
    (void)flags;
    return calloc (1, sizeof (flux_security_t));
}

void flux_security_destroy (flux_security_t *ctx)
{
    if (ctx) {
        free (ctx->token);
        free (ctx->payload);
        free (ctx);
    }
}

const char *flux_security_last_error (flux_security_t *ctx)
{
    return ctx->error;
}

int flux_security_last_errnum (flux_security_t *ctx)
{
    return ctx->errnum;
}

int flux_security_configure (flux_security_t *ctx, const char *pattern)
{
    const char *path = getenv ("SIGNING_KEY");
    FILE *f = path ? fopen (path, "r") : NULL;

    (void)pattern;
    if (!f)
        return fail (ctx, ENOENT, "there is no key");
    if (!fgets (ctx->key, sizeof (ctx->key), f))
        fail (ctx, EIO, "the key cannot be read");
    fclose (f);
    return ctx->error ? -1 : 0;
}

/* What the file beside the key holds, if there is one; else what is given. */
static const char *beside (const char *name, char line[64], const char *word)
{
    char path[4096];
    FILE *f;

    snprintf (path, sizeof (path), "%s.%s", getenv ("SIGNING_KEY"), name);
    if ((f = fopen (path, "r"))) {
        if (fscanf (f, "%60s", line) == 1)
            word = line;
        fclose (f);
    }
    return word;
}

/* The text with one digit changed, if so asked. */
static char *flipped (const char *text, int size)
{
    char line[64];
    const char *word = beside ("flip", line, getenv ("SIGNING_FLIP"));
    char *copy = strndup (text, size);
    char *at = copy && word ? strstr (copy, word) : NULL;

    if (at && (at = strpbrk (at, "0123456789")))
        *at = *at == '1' ? '2' : '1';
    return copy;
}

/* Hexadecimal digits hold no dot. */
const char *flux_sign_wrap (flux_security_t *ctx,
                            const void *payload,
                            int payloadsz,
                            const char *mech_type,
                            int flags)
{
    const char *uid = getenv ("SIGNING_UID");
    const char *log = getenv ("SIGNING_LOG"), *word = getenv ("SIGNING_WORD");
    char line[64], path[4096];
    const char *other = beside ("word", line, NULL);
    char *text = flipped (payload, payloadsz);
    size_t room = text ? 2 * strlen (text) + 64 : 0;

    (void)mech_type;
    (void)flags;
    free (ctx->token);
    ctx->token = text ? malloc (room) : NULL;
    if (!ctx->token) {
        free (text);
        fail (ctx, ENOMEM, "out of memory");
        return NULL;
    }
    int n = sprintf (ctx->token, "%lld.", uid ? atoll (uid) : (long long)getuid ());
    for (const char *c = text; *c; c++)
        n += sprintf (ctx->token + n, "%02x", (unsigned char)*c);
    uint64_t sum = mac (ctx, ctx->token);
    snprintf (ctx->token + n, room - n, ".%016llx", (unsigned long long)sum);
    if (other) {
        word = other;
        snprintf (path, sizeof (path), "%s.log", getenv ("SIGNING_KEY"));
        log = path;
    }
    if (log && word && strstr (text, word)) {
        FILE *f = fopen (log, "w");
        if (f) {
            fputs (ctx->token, f);
            fclose (f);
        }
    }
    free (text);
    return ctx->token;
}

int flux_sign_unwrap (flux_security_t *ctx,
                      const char *input,
                      const void **payload,
                      int *payloadsz,
                      int64_t *userid,
                      int flags)
{
    char *signed_part = strdup (input);
    char *dot = signed_part ? strrchr (signed_part, '.') : NULL;
    const char *hex;
    int size = 0;

    (void)flags;
    if (!dot || !(hex = strchr (signed_part, '.')) || hex == dot) {
        free (signed_part);
        return fail (ctx, EINVAL, "this is no signature");
    }
    *dot = '\0';
    if (strtoull (dot + 1, NULL, 16) != mac (ctx, signed_part)) {
        free (signed_part);
        return fail (ctx, EINVAL, "the signature is forged");
    }
    free (ctx->payload);
    ctx->payload = malloc (strlen (hex));
    for (hex++; ctx->payload && hex[0] && hex[1]; hex += 2) {
        unsigned int byte = 0;
        sscanf (hex, "%2x", &byte);
        ctx->payload[size++] = (char)byte;
    }
    *payload = ctx->payload;
    *payloadsz = size;
    *userid = atoll (signed_part);
    free (signed_part);
    return 0;
}
