/* A small storage appliance: it owns DPDK's environment, polls one worker on each lcore, and serves Send, Write and
 * Read; and the client that checks it.
 *
 * Each client has a slice of the server's pool, which it writes and reads by RDMA. By Sends it requests:
 *   'E' bytes     the reply is the same message
 *   'V' seed      does the slice hold pattern(seed)? The reply is 'Y' or 'N'
 *   'B'           the client leaves; the reply is 'B'
 * The private data of the server's accept names the slice: steering tag, offset, length, big-endian.
 */
#ifndef EMBED_H
#define EMBED_H

#include <ironwarp.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    CLIENTS_MAX = 16,
    SLICE_BYTES = 1 << 20,
    MESSAGE_BYTES = 256,
    RECEIVES = 8,        /* A connection's receives, each of MESSAGE_BYTES. */
    ADVERTISEMENT_BYTES = 16,    /* What the private data of an answer has. */
};

#define SECOND_NS 1000000000ull

/* The pool that the application allocates from DPDK and registers piece by piece. */
struct pool {
    unsigned char *bytes;
    size_t length;
    struct iw_mr *mr;
    struct iw_mr_info info;
};

/* One accepted connection, and its part of the pool. */
struct client_slot {
    bool used;
    struct iw_qp qp;
    uint32_t qp_num;
    size_t slice, messages; /* Offsets into the pool. */
};

struct server {
    struct iw_ctx *ctx;
    struct iw_pd pd;
    struct iw_cq cq;
    struct iw_addr at;
    struct pool pool;
    struct client_slot clients[CLIENTS_MAX];
    unsigned served; /* Clients that said goodbye. */
};

struct client {
    struct iw_ctx *ctx;
    struct iw_pd pd;
    struct iw_cq cq;
    struct iw_qp qp;
    struct pool pool;
    uint32_t stag;
    uint64_t offset;
};

/* One step of the application's own loop on the main lcore; false when it has to stop. */
typedef bool (*poll_fn)(void *arg);

int server_open(struct server *server, struct iw_stack *stack, const struct iw_addr *at);
int server_step(struct server *server);
int server_close(struct server *server, poll_fn poll, void *arg);

int client_open(struct client *client, struct iw_stack *stack);
int client_run(struct client *client, const struct iw_addr *server, unsigned rounds, poll_fn poll, void *arg);
int client_close(struct client *client, poll_fn poll, void *arg);

/* Registered memory from DPDK. */
int pool_open(struct pool *pool, struct iw_ctx *ctx, struct iw_pd pd, size_t length, uint32_t access);
int pool_close(struct pool *pool, poll_fn poll, void *arg);
struct iw_sge pool_sge(const struct pool *pool, size_t from, uint32_t length);

/* Closes every connection of a context, at most until the deadline. */
int drain(struct iw_ctx *ctx, poll_fn poll, void *arg);

/* Fills a slice with the bytes of a seed. */
void pattern_fill(unsigned char *bytes, size_t length, uint32_t seed);
bool pattern_holds(const unsigned char *bytes, size_t length, uint32_t seed);

/* Prints the library's error and returns -1. */
int report_error(const char *what);

#endif
