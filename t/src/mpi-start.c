/* mpi-start.c - how long MPI takes to start
 *
 * Rank 0 prints the milliseconds from the call of MPI_Init to the end of a
 * first barrier, of the slowest rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

static double now (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main (int argc, char **argv)
{
    double start = now (), mine, slowest;
    int rank;

    MPI_Init (&argc, &argv);
    MPI_Barrier (MPI_COMM_WORLD);
    mine = now () - start;
    MPI_Reduce (&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Comm_rank (MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf ("%.1f\n", slowest);
    MPI_Finalize ();
    return 0;
}
