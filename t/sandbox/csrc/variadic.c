/* variadic.c - the host functions that take printf(3) arguments
 *
 * Each formats its text here and hands it to a function of fixed arguments
 * (src/bin/flux-shell), because stable Rust cannot define variadic functions.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct flux_shell;
struct flux_command;

int sandbox_shell_setenv (struct flux_shell *shell,
                          int overwrite,
                          const char *name,
                          const char *value);
int sandbox_shell_add_ref (struct flux_shell *shell, const char *name);
int sandbox_shell_remove_ref (struct flux_shell *shell, const char *name);
void sandbox_shell_log (const char *component,
                        int level,
                        const char *file,
                        int line,
                        const char *text);
void sandbox_shell_fatal (const char *component,
                          const char *file,
                          int line,
                          int errnum,
                          int exit_code,
                          const char *text);
void sandbox_shell_raise (const char *type,
                          int severity,
                          int wait_status,
                          const char *text);
int sandbox_cmd_setenv (struct flux_command *cmd,
                        int overwrite,
                        const char *name,
                        const char *value);

/* What fits in a log message; longer text ends in '+'. */
#define TEXT_SIZE 4096

static void format (char *text, const char *fmt, va_list ap)
{
    int n = vsnprintf (text, TEXT_SIZE, fmt, ap);

    if (n >= TEXT_SIZE)
        text[TEXT_SIZE - 2] = '+';
    else if (n > 0 && text[n - 1] == '\n')
        text[n - 1] = '\0';
}

#define FORMAT(text, fmt)            \
    do {                             \
        va_list ap_;                 \
        va_start (ap_, fmt);         \
        format ((text), fmt, ap_);   \
        va_end (ap_);                \
    } while (0)

/* The value of a variable `name` of `object`; NULL with errno set. */
static char *format_value (const void *object,
                           const char *name,
                           const char *fmt,
                           va_list ap)
{
    char *value;

    if (!object || !name || !fmt) {
        errno = EINVAL;
        return NULL;
    }
    return vasprintf (&value, fmt, ap) < 0 ? NULL : value;
}

#define VALUE(value, object, name, fmt)                        \
    do {                                                       \
        va_list ap_;                                           \
        va_start (ap_, fmt);                                   \
        (value) = format_value ((object), (name), fmt, ap_);   \
        va_end (ap_);                                          \
    } while (0)

typedef int change_ref_f (struct flux_shell *shell, const char *name);

static int change_ref (struct flux_shell *shell,
                       change_ref_f *change,
                       const char *fmt,
                       va_list ap)
{
    char text[TEXT_SIZE];

    if (!shell || !fmt) {
        errno = EINVAL;
        return -1;
    }
    format (text, fmt, ap);
    return change (shell, text);
}

int flux_shell_setenvf (struct flux_shell *shell,
                        int overwrite,
                        const char *name,
                        const char *fmt,
                        ...)
{
    char *value;
    int rc;

    VALUE (value, shell, name, fmt);
    if (!value)
        return -1;
    rc = sandbox_shell_setenv (shell, overwrite, name, value);
    free (value);
    return rc;
}

int flux_shell_add_completion_ref (struct flux_shell *shell,
                                   const char *fmt,
                                   ...)
{
    va_list ap;
    int rc;

    va_start (ap, fmt);
    rc = change_ref (shell, sandbox_shell_add_ref, fmt, ap);
    va_end (ap);
    return rc;
}

int flux_shell_remove_completion_ref (struct flux_shell *shell,
                                      const char *fmt,
                                      ...)
{
    va_list ap;
    int rc;

    va_start (ap, fmt);
    rc = change_ref (shell, sandbox_shell_remove_ref, fmt, ap);
    va_end (ap);
    return rc;
}

void flux_shell_log (const char *component,
                     int level,
                     const char *file,
                     int line,
                     const char *fmt,
                     ...)
{
    char text[TEXT_SIZE];

    FORMAT (text, fmt);
    sandbox_shell_log (component, level, file, line, text);
}

void flux_shell_fatal (const char *component,
                       const char *file,
                       int line,
                       int errnum,
                       int exit_code,
                       const char *fmt,
                       ...)
{
    char text[TEXT_SIZE];

    FORMAT (text, fmt);
    sandbox_shell_fatal (component, file, line, errnum, exit_code, text);
}

void flux_shell_raise (const char *type, int severity, const char *fmt, ...)
{
    char text[TEXT_SIZE];

    FORMAT (text, fmt);
    sandbox_shell_raise (type, severity, -1, text);
}

void flux_shell_raise_exit_status (int wait_status, const char *fmt, ...)
{
    char text[TEXT_SIZE];

    FORMAT (text, fmt);
    sandbox_shell_raise ("exec", 0, wait_status, text);
}

int flux_cmd_setenvf (struct flux_command *cmd,
                      int overwrite,
                      const char *name,
                      const char *fmt,
                      ...)
{
    char *value;
    int rc;

    VALUE (value, cmd, name, fmt);
    if (!value)
        return -1;
    rc = sandbox_cmd_setenv (cmd, overwrite, name, value);
    free (value);
    return rc;
}
