/* mpi-sum.c - the smallest MPI program that needs all of its ranks
 *
 * Prints one line per rank, and the library's name, and fails unless each of them has heard from all
 * others.  With an argument, rank 0 (or the rank given second) aborts with
 * that exit code instead.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main (int argc, char **argv)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int rank, size, len, sum = 0;

    MPI_Init (&argc, &argv);
    MPI_Comm_rank (MPI_COMM_WORLD, &rank);
    MPI_Comm_size (MPI_COMM_WORLD, &size);
    if (argc > 1 && rank == (argc > 2 ? atoi (argv[2]) : 0))
        MPI_Abort (MPI_COMM_WORLD, atoi (argv[1]));
    MPI_Allreduce (&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier (MPI_COMM_WORLD);
    printf ("rank %d of %d: sum %d, PMI_FD %s\n",
            rank,
            size,
            sum,
            getenv ("PMI_FD") ? "set" : "unset");
    MPI_Get_library_version (library, &len);
    library[strcspn (library, "\n")] = 0;
    if (rank == 0)
        printf ("library: %s\n", library);
    MPI_Finalize ();
    return sum == size * (size - 1) / 2 ? 0 : 1;
}
