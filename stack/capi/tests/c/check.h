/* What the test programs share: checks that name their line, and two stacks joined by memory. */
#ifndef CHECK_H
#define CHECK_H

#include <ironwarp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                 \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition,      \
                    iw_last_error());                                                                    \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

/* Checks an answer, and tells it where it is another one. */
#define ANSWERS(expected, answer)                                                                        \
    do {                                                                                                 \
        long long is = (answer);                                                                         \
        if (is != (expected)) {                                                                          \
            fprintf(stderr, "%s:%d: %s = %lld (%s)\n", __FILE__, __LINE__, #answer, is,                  \
                    iw_last_error());                                                                    \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

/* The transport below DDP. */
#ifndef TRANSPORT
#define TRANSPORT "tcp"
#endif

#define TOML(host) "[stack]\ntransport = \"" TRANSPORT "\"\n"                                             \
                   "[port]\ndevice.memory = {}\nring_size = 256\nrx_frames = 2048\ntx_frames = 2048\n"     \
                   "[limits]\nqueue_pairs = 16\nhalf_open = 16\n[net]\naddress = \"10.0.0." host "/24\"\n"
#define NEAR_TOML TOML("1")
#define FAR_TOML TOML("2")
#define FAR_ADDRESS "10.0.0.2:4791"

enum { POOL_BYTES = 65536, SECOND_NS = 1000000000 };

/* One end: a stack of one core, a context, and everything a connection needs. */
struct end {
    struct iw_stack *stack;
    struct iw_worker *worker;
    struct iw_ctx *ctx;
    struct iw_pd pd;
    struct iw_cq cq;
    struct iw_qp qp;
    struct iw_mr *mr;
    struct iw_mr_info info;
    unsigned char *pool;
    struct iw_event event; /* The last one. */
    struct iw_wc wc;       /* The last one. */
};

struct pair {
    struct end near, far;
};

static inline void end_open(struct end *end)
{
    struct iw_qp_attr attr;
    uint32_t all = IW_ACCESS_LOCAL_WRITE | IW_ACCESS_REMOTE_READ | IW_ACCESS_REMOTE_WRITE | IW_ACCESS_REMOTE_ATOMIC |
                   IW_ACCESS_BIND;
    end->event.size = sizeof end->event;
    end->info.size = sizeof end->info;
    ANSWERS(1, iw_stack_cores(end->stack));
    ANSWERS(IW_OK, iw_worker_take(end->stack, 0, &end->worker));
    ANSWERS(IW_OK, iw_ctx_open(end->stack, &end->ctx));
    ANSWERS(IW_OK, iw_pd_alloc(end->ctx, &end->pd));
    ANSWERS(IW_OK, iw_cq_create(end->ctx, 64, &end->cq));
    ANSWERS(IW_OK, iw_qp_attr_init(&attr, end->cq));
    ANSWERS(IW_OK, iw_qp_create(end->ctx, end->pd, &attr, &end->qp));
    /* Memory of the program's own. */
    end->pool = aligned_alloc(4096, POOL_BYTES);
    CHECK(end->pool != NULL);
    memset(end->pool, 0, POOL_BYTES);
    ANSWERS(IW_OK, iw_mr_register(end->ctx, end->pd, end->pool, POOL_BYTES, all, &end->mr));
    ANSWERS(IW_OK, iw_mr_query(end->mr, &end->info));
    CHECK(end->info.length == POOL_BYTES && end->info.offset == (uint64_t)(uintptr_t)end->pool);
}

static inline void pair_open(struct pair *pair)
{
    memset(pair, 0, sizeof *pair);
    ANSWERS(IW_OK, iw_stack_open_pair(NEAR_TOML, FAR_TOML, IW_PAIR_MEMORY, 0, &pair->near.stack,
                                      &pair->far.stack));
    end_open(&pair->near);
    end_open(&pair->far);
}

static inline void turn(struct pair *pair)
{
    CHECK(iw_worker_poll(pair->near.worker, 4, NULL) >= 0);
    CHECK(iw_worker_poll(pair->far.worker, 4, NULL) >= 0);
}

/* Polls until an end has an event of that kind; others are dropped. */
static inline void await_event(struct pair *pair, struct end *end, uint32_t kind)
{
    uint64_t limit = iw_now_ns() + 20ull * SECOND_NS;
    for (;;) {
        turn(pair);
        int32_t found = iw_event_poll(end->ctx, &end->event);
        CHECK(found >= 0);
        if (found == 1 && end->event.kind == kind) {
            return;
        }
        CHECK(iw_now_ns() < limit);
    }
}

/* Polls until an end has a completion. */
static inline void await_completion(struct pair *pair, struct end *end, uint32_t opcode, uint64_t wr_id)
{
    uint64_t limit = iw_now_ns() + 20ull * SECOND_NS;
    int32_t found = 0;
    while (found == 0) {
        turn(pair);
        found = iw_cq_poll(end->ctx, end->cq, &end->wc, 1);
        CHECK(found >= 0);
        CHECK(iw_now_ns() < limit);
    }
    CHECK(end->wc.opcode == opcode);
    CHECK(end->wc.wr_id == wr_id);
}

/* Connects the queue pairs; what the two sides carry beside Send, Write and Read is theirs. */
static inline void pair_join(struct pair *pair, uint32_t near_extensions, uint32_t far_extensions)
{
    struct iw_addr at;
    struct iw_conn_params params;
    ANSWERS(IW_OK, iw_addr_parse(FAR_ADDRESS, &at));
    ANSWERS(IW_OK, iw_conn_params_init(&params));
    params.extensions = near_extensions;
    params.private_data = (const uint8_t *)"from near";
    params.private_data_bytes = 9;
    ANSWERS(IW_OK, iw_connect(pair->near.ctx, pair->near.qp, &at, &params));
    await_event(pair, &pair->far, IW_EVENT_CONNECT_REQUEST);
    CHECK(pair->far.event.private_data_bytes == 9);
    CHECK(memcmp(pair->far.event.private_data, "from near", 9) == 0);
    CHECK(pair->far.event.negotiated.ird == 16 && pair->far.event.negotiated.ord == 16);
    ANSWERS(0, iw_request_core(&pair->far.event.request));
    params.extensions = far_extensions;
    params.private_data = (const uint8_t *)"from far";
    params.private_data_bytes = 8;
    ANSWERS(IW_OK, iw_accept(pair->far.ctx, &pair->far.event.request, pair->far.qp, &params));
    await_event(pair, &pair->near, IW_EVENT_ESTABLISHED);
    CHECK(pair->near.event.qp.id == pair->near.qp.id);
    CHECK(memcmp(pair->near.event.private_data, "from far", 8) == 0);
    await_event(pair, &pair->far, IW_EVENT_ESTABLISHED);
}

static inline void pair_connect(struct pair *pair, uint32_t extensions)
{
    struct iw_addr at;
    ANSWERS(IW_OK, iw_addr_parse(FAR_ADDRESS, &at));
    ANSWERS(IW_OK, iw_listen(pair->far.ctx, &at));
    turn(pair);
    pair_join(pair, extensions, extensions);
}

/* Connects the pair once more, with new queue pairs: the last ones have ended. */
static inline void pair_join_again(struct pair *pair, uint32_t near_extensions, uint32_t far_extensions)
{
    struct end *ends[] = {&pair->near, &pair->far};
    for (int i = 0; i < 2; i++) {
        struct iw_qp_attr attr;
        ANSWERS(IW_OK, iw_qp_destroy(ends[i]->ctx, ends[i]->qp));
        while (iw_cq_poll(ends[i]->ctx, ends[i]->cq, &ends[i]->wc, 1) > 0) {
        }
        ANSWERS(IW_OK, iw_qp_attr_init(&attr, ends[i]->cq));
        ANSWERS(IW_OK, iw_qp_create(ends[i]->ctx, ends[i]->pd, &attr, &ends[i]->qp));
    }
    pair_join(pair, near_extensions, far_extensions);
}

static inline struct iw_sge piece(const struct end *end, size_t from, uint32_t length)
{
    struct iw_sge sge = {end->info.offset + from, length, end->info.stag};
    return sge;
}

static inline void memory_close(struct pair *pair, struct end *end)
{
    uint64_t limit = iw_now_ns() + 20ull * SECOND_NS;
    int32_t over;
    ANSWERS(IW_OK, iw_mr_deregister(end->mr));
    while ((over = iw_mr_poll_deregistered(end->mr)) == 0) {
        turn(pair);
        CHECK(iw_now_ns() < limit);
    }
    ANSWERS(1, over);
    free(end->pool);
}

/* The orderly end: connections, memory, contexts, workers, stacks. */
static inline void pair_close(struct pair *pair)
{
    uint64_t deadline = iw_now_ns() + 10ull * SECOND_NS;
    while (iw_drain(pair->near.ctx, deadline, NULL) + iw_drain(pair->far.ctx, deadline, NULL) != 0) {
        turn(pair);
    }
    memory_close(pair, &pair->near);
    memory_close(pair, &pair->far);
    struct end *ends[] = {&pair->near, &pair->far};
    for (int i = 0; i < 2; i++) {
        ANSWERS(IW_OK, iw_ctx_close(ends[i]->ctx));
        ANSWERS(IW_OK, iw_worker_close(ends[i]->worker));
        ANSWERS(IW_OK, iw_stack_close(ends[i]->stack));
    }
}

#endif
