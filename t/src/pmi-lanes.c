/* pmi-lanes.c - several threads of one rank, each a PMI client of its own
 *
 * Usage: pmi-lanes LANES ROUNDS
 *
 * Thread L connects with pmiid = PMI_ID + PMI_SIZE * L.  In every round each
 * thread puts a value that nobody else can guess right, enters the barrier
 * after a random delay, and then reads the values of all ranks: they must be
 * those of this round and lane.  Ranks of odd number start their threads in
 * opposite order.  Prints "rank R: N values" and exits 0 if all was right.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int rank, size, lanes, rounds;
static long id;
static struct sockaddr_in addr = { .sin_family = AF_INET };

static void fail (int lane, const char *what, const char *text)
{
    fprintf (stderr, "rank %d lane %d: %s: %s\n", rank, lane, what, text);
    exit (1);
}

/* The value of a rank in a round, as hexadecimal digits of random length. */
static void value (char *buf, int of, int lane, int round)
{
    uint64_t x = 0x9E3779B97F4A7C15ull * (of + 1) ^ 0xD1B54A32D192ED03ull * (lane + 7)
                 ^ 0x2545F4914F6CDD1Dull * (round + 3);
    int len;

    x ^= x >> 29;
    len = 1 + x % 300;
    for (int i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        buf[i] = "0123456789ABCDEF"[x >> 60];
    }
    buf[len] = 0;
}

static void get_line (FILE *f, int lane, char *buf, int len)
{
    if (!fgets (buf, len, f))
        fail (lane, "read", "connection ended");
    buf[strcspn (buf, "\n")] = 0;
}

static void ask (FILE *f, int lane, const char *request, const char *reply)
{
    char line[2048];

    fprintf (f, "%s\n", request);
    fflush (f);
    get_line (f, lane, line, sizeof (line));
    if (strcmp (line, reply) != 0) {
        fprintf (stderr, "sent: %s\nwant: %s\n", request, reply);
        fail (lane, "got", line);
    }
}

static void *run (void *arg)
{
    int lane = (int)(intptr_t)arg, one = 1;
    int fd = socket (AF_INET, SOCK_STREAM, 0);
    unsigned int seed = rank * 1000 + lane;
    char request[2048], reply[2048], buf[512];
    FILE *f;

    if (fd < 0 || connect (fd, (struct sockaddr *)&addr, sizeof (addr)) < 0)
        fail (lane, "connect", "failed");
    setsockopt (fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof (one));
    f = fdopen (fd, "r+");
    setvbuf (f, NULL, _IOFBF, 4096);
    snprintf (request, sizeof (request), "cmd=initack pmiid=%ld", id + (long)size * lane);
    ask (f, lane, request, "cmd=initack");
    for (int i = 0; i < 3; i++)
        get_line (f, lane, reply, sizeof (reply));
    for (int round = 0; round < rounds; round++) {
        value (buf, rank, lane, round);
        snprintf (request, sizeof (request), "cmd=put kvsname=K key=k%d value=%s", rank, buf);
        ask (f, lane, request, "cmd=put_result rc=0");
        if (rand_r (&seed) % 4 == 0)
            usleep (rand_r (&seed) % 3000);
        ask (f, lane, "cmd=barrier_in", "cmd=barrier_out rc=0");
        for (int of = 0; of < size; of++) {
            value (buf, of, lane, round);
            snprintf (request, sizeof (request), "cmd=get kvsname=K key=k%d", of);
            snprintf (reply, sizeof (reply), "cmd=get_result rc=0 value=%s", buf);
            ask (f, lane, request, reply);
        }
        /* No rank may put its next value before all have read this one. */
        ask (f, lane, "cmd=barrier_in", "cmd=barrier_out rc=0");
    }
    ask (f, lane, "cmd=finalize", "cmd=finalize_ack rc=0");
    fclose (f);
    return NULL;
}

int main (int argc, char **argv)
{
    pthread_t threads[64];
    char host[64];
    int port;

    if (argc != 3 || !getenv ("PMI_PORT") || !getenv ("PMI_ID")
        || sscanf (getenv ("PMI_PORT"), "%63[^:]:%d", host, &port) != 2
        || inet_pton (AF_INET, host, &addr.sin_addr) != 1)
        return 2;
    addr.sin_port = htons (port);
    rank = atoi (getenv ("PMI_RANK"));
    size = atoi (getenv ("PMI_SIZE"));
    id = atol (getenv ("PMI_ID"));
    lanes = atoi (argv[1]);
    rounds = atoi (argv[2]);
    if (lanes < 1 || lanes > 64)
        return 2;
    for (int i = 0; i < lanes; i++) {
        int lane = rank % 2 ? lanes - 1 - i : i;
        if (pthread_create (&threads[i], NULL, run, (void *)(intptr_t)lane) != 0)
            return 2;
        usleep (2000);
    }
    for (int i = 0; i < lanes; i++)
        pthread_join (threads[i], NULL);
    printf ("rank %d: %d values\n", rank, lanes * rounds * size);
    return 0;
}
