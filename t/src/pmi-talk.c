/* pmi-talk.c - says exact bytes to PMI_PORT and prints what comes back
 *
 * Usage: pmi-talk [WORD...]
 *
 * PMI_FROM in the environment is the address to connect from.
 * Each WORD is sent as a line, and one line of reply is printed.  Special ones:
 *   @id N      send cmd=initack pmiid=N and print the four lines of reply
 *   @hello     the same with PMI_ID
 *   @send TEXT send TEXT and a newline, wait for nothing
 *   @part TEXT send TEXT without a newline, wait for nothing
 *   @slow TEXT send TEXT and a newline byte by byte, print one line
 *   @both TEXT send TEXT, in which '|' stands for newline, at once; print as
 *              many lines as were sent
 *   @junk N    send N bytes without any newline
 *   @file PATH wait until PATH exists
 *   @touch PATH create PATH
 *   @sleep MS  wait that long
 *   @eof       print "eof" when the other side has closed (fails after 100 s)
 *   @rst       close with a reset
 *   @new       open one more connection and use that from now on
 *   @exit N    leave with that status
 * Exit status 1: a connection that ended early, or no reply within 100 s.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fd = -1;

static void die (const char *what)
{
    fprintf (stderr, "pmi-talk: %s: %s\n", what, strerror (errno));
    exit (1);
}

static void dial (void)
{
    const char *port = getenv ("PMI_PORT"), *from = getenv ("PMI_FROM");
    char host[64];
    int number, one = 1;
    struct sockaddr_in addr = { .sin_family = AF_INET };

    if (!port || sscanf (port, "%63[^:]:%d", host, &number) != 2
        || inet_pton (AF_INET, host, &addr.sin_addr) != 1) {
        fprintf (stderr, "pmi-talk: bad PMI_PORT\n");
        exit (2);
    }
    addr.sin_port = htons (number);
    if ((fd = socket (AF_INET, SOCK_STREAM, 0)) < 0)
        die ("socket");
    if (from) {
        struct sockaddr_in here = { .sin_family = AF_INET };
        if (inet_pton (AF_INET, from, &here.sin_addr) != 1
            || bind (fd, (struct sockaddr *)&here, sizeof (here)) < 0)
            die (from);
    }
    if (connect (fd, (struct sockaddr *)&addr, sizeof (addr)) < 0)
        die ("connect");
    setsockopt (fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof (one));
}

static void say (const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write (fd, text, len);
        if (n < 0)
            die ("write");
        text += n;
        len -= n;
    }
}

static void say_line (const char *text)
{
    char *line = malloc (strlen (text) + 2);

    say (line, sprintf (line, "%s\n", text));
    free (line);
}

/* Reads a byte; 0 at the end of the stream. */
static int hear (char *c)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    ssize_t n;

    if (poll (&p, 1, 100000) != 1) {
        fprintf (stderr, "pmi-talk: no reply\n");
        exit (1);
    }
    n = read (fd, c, 1);
    return n > 0;
}

static void hear_lines (int count)
{
    char c;

    while (count > 0) {
        if (!hear (&c)) {
            fflush (stdout);
            fprintf (stderr, "pmi-talk: connection ended\n");
            exit (1);
        }
        putchar (c);
        if (c == '\n')
            count--;
    }
    fflush (stdout);
}

static void hello (const char *id)
{
    char line[64];

    snprintf (line, sizeof (line), "cmd=initack pmiid=%s", id ? id : "");
    say_line (line);
    hear_lines (4);
}

static int both (char *text)
{
    int lines = 1;

    for (char *p = text; *p; p++) {
        if (*p == '|') {
            *p = '\n';
            lines++;
        }
    }
    say_line (text);
    return lines;
}

int main (int argc, char **argv)
{
    char c;

    signal (SIGPIPE, SIG_IGN);
    dial ();
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        char *arg = i + 1 < argc ? argv[i + 1] : "";

        if (word[0] != '@') {
            say_line (word);
            hear_lines (1);
            continue;
        }
        if (!strcmp (word, "@hello")) {
            hello (getenv ("PMI_ID"));
            continue;
        }
        if (!strcmp (word, "@new")) {
            dial ();
            continue;
        }
        if (!strcmp (word, "@eof")) {
            while (hear (&c))
                ;
            puts ("eof");
            fflush (stdout);
            continue;
        }
        if (!strcmp (word, "@rst")) {
            struct linger now = { .l_onoff = 1, .l_linger = 0 };
            setsockopt (fd, SOL_SOCKET, SO_LINGER, &now, sizeof (now));
            close (fd);
            return 0;
        }
        i++;
        if (!strcmp (word, "@id"))
            hello (arg);
        else if (!strcmp (word, "@send"))
            say_line (arg);
        else if (!strcmp (word, "@part"))
            say (arg, strlen (arg));
        else if (!strcmp (word, "@slow")) {
            for (const char *p = arg; *p; p++) {
                say (p, 1);
                usleep (200);
            }
            say ("\n", 1);
            hear_lines (1);
        }
        else if (!strcmp (word, "@both"))
            hear_lines (both (arg));
        else if (!strcmp (word, "@junk")) {
            char block[1000];
            memset (block, 'x', sizeof (block));
            for (int left = atoi (arg); left > 0; left -= sizeof (block)) {
                if (write (fd, block, sizeof (block)) < 0)
                    break;
            }
        }
        else if (!strcmp (word, "@file")) {
            for (int n = 0; access (arg, F_OK) < 0; n++) {
                if (n > 30000) {
                    fprintf (stderr, "pmi-talk: %s does not appear\n", arg);
                    return 1;
                }
                usleep (10000);
            }
        }
        else if (!strcmp (word, "@touch")) {
            int file = open (arg, O_CREAT | O_WRONLY, 0644);
            if (file < 0)
                die (arg);
            close (file);
        }
        else if (!strcmp (word, "@sleep"))
            usleep (atoi (arg) * 1000);
        else if (!strcmp (word, "@exit"))
            return atoi (arg);
        else {
            fprintf (stderr, "pmi-talk: what is %s?\n", word);
            return 2;
        }
    }
    return 0;
}
