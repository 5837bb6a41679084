/* mpi-session.c - two MPI sessions one after the other
 *
 * Newer libraries ask the PMI provider again for the second one, over a second
 * connection with the same id, and leave the first one open.
 */
#include <mpi.h>
#include <stdio.h>

static int session (int number)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int rank, size, sum = 0;

    MPI_Session_init (MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset (session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group (group, "test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Comm_rank (comm, &rank);
    MPI_Comm_size (comm, &size);
    MPI_Allreduce (&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    printf ("session %d rank %d of %d: sum %d\n", number, rank, size, sum);
    MPI_Comm_free (&comm);
    MPI_Group_free (&group);
    MPI_Session_finalize (&session);
    return sum == size * (size - 1) / 2 ? 0 : 1;
}

int main (void)
{
    return session (1) || session (2);
}
