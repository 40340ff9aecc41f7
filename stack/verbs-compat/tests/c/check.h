/* Counted checks: the first that fails ends the program. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Threads check too. */
static atomic_int checks;

/* After so many seconds a program that still runs is ended. */
#ifndef PATIENCE
#define PATIENCE 50
#endif

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s; errno %d\n", __FILE__, __LINE__, #condition, errno); \
            exit(1);                                                                       \
        }                                                                                  \
        checks++;                                                                          \
    } while (0)
