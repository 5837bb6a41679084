/* held.c - a shell plugin that stops the last shell of a job that is being started
 *
 * So whatever has to happen before the job's tasks run has all the time it needs.
 * The shell's process id is in the file $HELD of the job's environment when it
 * stops; SIGCONT lets it go on.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "flux_abi.h"

/* The number after "key": in a JSON text; -1 without. */
static int number (const char *json, const char *key)
{
    char quoted[64];
    const char *p;

    snprintf (quoted, sizeof (quoted), "\"%s\":", key);
    if (!json || !(p = strstr (json, quoted)))
        return -1;
    return strtol (p + strlen (quoted), NULL, 10);
}

static int hold (flux_plugin_t *p, const char *topic, flux_plugin_arg_t *args, void *data)
{
    flux_shell_t *shell = flux_plugin_get_shell (p);
    const char *path = flux_shell_getenv (shell, "HELD");
    char *json = NULL, tmp[4096];
    FILE *f;
    int last;

    (void)topic;
    (void)args;
    (void)data;
    if (!path || flux_shell_get_info (shell, &json) < 0)
        return -1;
    last = number (json, "rank") == number (json, "size") - 1;
    free (json);
    if (!last)
        return 0;
    snprintf (tmp, sizeof (tmp), "%s.tmp", path);
    if (!(f = fopen (tmp, "w")) || fprintf (f, "%d\n", (int)getpid ()) < 0
        || fclose (f) != 0 || rename (tmp, path) < 0)
        return -1;
    return raise (SIGSTOP);
}

int flux_plugin_init (flux_plugin_t *p)
{
    return flux_plugin_add_handler (p, "shell.post-init", hold, NULL);
}
