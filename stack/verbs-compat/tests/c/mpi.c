/*
 * An MPI program: a ping-pong between the first process and each other one, an all-reduce, an all-to-all exchange and one-sided
 * puts. It checks every byte that arrives, and prints a line per size. Exit code 0: all was right.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20, ROUNDS = 20, VALUES = 4096, BLOCK = 16384 };

static int rank, processes;

static void fail(const char *what, int size) {
    fprintf(stderr, "mpi: process %d: %s of %d bytes is wrong\n", rank, what, size);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_of(int from, int round, int at) {
    return (unsigned char)(from * 31 + round * 7 + at + at / 251);
}

static void fill(unsigned char *bytes, int size, int from, int round) {
    for (int at = 0; at < size; at++) bytes[at] = byte_of(from, round, at);
}

static void check(const unsigned char *bytes, int size, int from, int round, const char *what) {
    for (int at = 0; at < size; at++)
        if (bytes[at] != byte_of(from, round, at)) fail(what, size);
}

/* Half of the round-trip time, bytes compared outside of the time. */
static void ping_pong(int peer, int size) {
    unsigned char *out = malloc(size), *in = malloc(size);
    int other = rank == 0 ? peer : 0;
    double spent = 0;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Status status;
        fill(out, size, rank, round);
        memset(in, 0, size);
        double begun = MPI_Wtime();
        if (rank == 0) MPI_Send(out, size, MPI_BYTE, other, round, MPI_COMM_WORLD);
        MPI_Recv(in, size, MPI_BYTE, other, round, MPI_COMM_WORLD, &status);
        if (rank != 0) MPI_Send(out, size, MPI_BYTE, other, round, MPI_COMM_WORLD);
        spent += MPI_Wtime() - begun;
        check(in, size, other, round, "a message");
    }
    if (rank == 0) printf("ping-pong 0-%d %8d bytes %10.1f us\n", peer, size, spent / ROUNDS / 2 * 1e6);
    free(out);
    free(in);
}

static void reduce(int values) {
    long *mine = malloc(values * sizeof *mine), *sum = malloc(values * sizeof *sum);
    double spent = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = 0; at < values; at++) mine[at] = (long)(rank + 1) * (at + round);
        double begun = MPI_Wtime();
        MPI_Allreduce(mine, sum, values, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        spent += MPI_Wtime() - begun;
        long factor = (long)processes * (processes + 1) / 2;
        for (int at = 0; at < values; at++)
            if (sum[at] != factor * (at + round)) fail("a sum", (int)(values * sizeof *sum));
    }
    if (rank == 0) printf("allreduce %8d bytes %10.1f us\n", (int)(values * sizeof *mine), spent / ROUNDS * 1e6);
    free(mine);
    free(sum);
}

static void exchange(void) {
    unsigned char *out = malloc((size_t)BLOCK * processes), *in = malloc((size_t)BLOCK * processes);
    for (int to = 0; to < processes; to++) fill(out + (size_t)BLOCK * to, BLOCK, rank, to);
    MPI_Alltoall(out, BLOCK, MPI_BYTE, in, BLOCK, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < processes; from++) check(in + (size_t)BLOCK * from, BLOCK, from, rank, "a block");
    free(out);
    free(in);
}

/* Each process puts a block into the window of the next one. */
static void put(void) {
    unsigned char *window_bytes, *out = malloc(BLOCK);
    MPI_Win window;
    MPI_Win_allocate(BLOCK, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_bytes, &window);
    fill(out, BLOCK, rank, 3);
    MPI_Win_fence(0, window);
    MPI_Put(out, BLOCK, MPI_BYTE, (rank + 1) % processes, 0, BLOCK, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    check(window_bytes, BLOCK, (rank + processes - 1) % processes, 3, "a window");
    MPI_Win_free(&window);
    free(out);
}

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    for (int peer = 1; peer < processes; peer++) {
        for (int size = 1; size <= LARGEST; size *= 16)
            if (rank == 0 || rank == peer) ping_pong(peer, size);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int values = 1; values <= VALUES; values *= 64) reduce(values);
    exchange();
    put();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("mpi: %d processes, all data right\n", processes);
    MPI_Finalize();
    return 0;
}
