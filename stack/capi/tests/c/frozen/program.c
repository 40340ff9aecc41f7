/* A program of the frozen header beside it: it must compile and work with every later library of the same
 * IW_ABI_VERSION, upper half. It passes every struct that has a size, in both directions. */
#include "../check.h"

static struct pair pair;

/* Bytes behind a result that the library must leave alone. */
#define GUARDED(type, name)                                                                              \
    struct {                                                                                             \
        struct type it;                                                                                  \
        unsigned char guard[64];                                                                         \
    } name;                                                                                              \
    memset(&name, 0xa5, sizeof name);                                                                    \
    name.it.size = sizeof name.it

#define CHECK_GUARD(name)                                                                                \
    do {                                                                                                 \
        CHECK(name.it.size == sizeof name.it);                                                           \
        for (size_t at = 0; at < sizeof name.guard; at++) {                                              \
            CHECK(name.guard[at] == 0xa5);                                                               \
        }                                                                                                \
    } while (0)

static void results(void)
{
    GUARDED(iw_limits, limits);
    GUARDED(iw_qp_info, qp);
    GUARDED(iw_cq_info, cq);
    GUARDED(iw_mr_info, mr);
    GUARDED(iw_port_info, port);
    GUARDED(iw_poll_result, polled);
    GUARDED(iw_drain_progress, drained);
    GUARDED(iw_event, event);
    ANSWERS(IW_OK, iw_limits_query(pair.near.ctx, &limits.it));
    ANSWERS(IW_OK, iw_qp_query(pair.near.ctx, pair.near.qp, &qp.it));
    ANSWERS(IW_OK, iw_cq_query(pair.near.ctx, pair.near.cq, &cq.it));
    ANSWERS(IW_OK, iw_mr_query(pair.near.mr, &mr.it));
    ANSWERS(IW_OK, iw_port_query(pair.near.ctx, 0, &port.it));
    CHECK(iw_worker_poll(pair.near.worker, 1, &polled.it) >= 0);
    ANSWERS(IW_OK, iw_listen(pair.near.ctx, &(struct iw_addr){.ip = {10, 0, 0, 1}, .port = 9, .family = 4}));
    ANSWERS(IW_OK, iw_listen(pair.near.ctx, &(struct iw_addr){.ip = {10, 0, 0, 1}, .port = 9, .family = 4}));
    uint64_t limit = iw_now_ns() + 20ull * SECOND_NS;
    while (iw_event_poll(pair.near.ctx, &event.it) == 0) {
        turn(&pair);
        CHECK(iw_now_ns() < limit);
    }
    CHECK(event.it.kind == IW_EVENT_LISTEN_FAILED && event.it.local.port == 9);
    ANSWERS(1, iw_drain(pair.near.ctx, iw_now_ns() + 10ull * SECOND_NS, &drained.it));
    CHECK(limits.it.max_sge == 16 && qp.it.state == IW_QP_ESTABLISHED && cq.it.depth == 64);
    CHECK(mr.it.length == POOL_BYTES && port.it.mtu_bytes == 1500 && drained.it.open == 1);
    CHECK_GUARD(limits);
    CHECK_GUARD(qp);
    CHECK_GUARD(cq);
    CHECK_GUARD(mr);
    CHECK_GUARD(port);
    CHECK_GUARD(polled);
    CHECK_GUARD(drained);
    CHECK_GUARD(event);
}

/* Lists in the data path: more than the library converts at a time. */
static void lists(void)
{
    enum { COUNT = 40 };
    struct iw_recv_wr receives[COUNT];
    struct iw_send_wr sends[COUNT];
    struct iw_wc wcs[COUNT];
    struct iw_sge to = piece(&pair.far, 0, 64);
    uint32_t posted = 0, seen = 0;
    memset(sends, 0, sizeof sends);
    for (uint32_t i = 0; i < COUNT; i++) {
        receives[i] = (struct iw_recv_wr){.wr_id = i, .sges = &to, .sge_count = 1};
        sends[i].wr_id = 100 + i;
        sends[i].opcode = IW_WR_SEND;
        sends[i].flags = IW_SEND_INLINE;
        sends[i].inline_data = (const uint8_t *)"frozen";
        sends[i].inline_bytes = 6;
    }
    ANSWERS(IW_OK, iw_post_recv(pair.far.ctx, pair.far.qp, receives, COUNT, &posted));
    CHECK(posted == COUNT);
    ANSWERS(IW_OK, iw_post_send(pair.near.ctx, pair.near.qp, sends, COUNT, &posted));
    CHECK(posted == COUNT);
    uint64_t limit = iw_now_ns() + 20ull * SECOND_NS;
    while (seen < COUNT) {
        turn(&pair);
        int32_t found = iw_cq_poll(pair.far.ctx, pair.far.cq, wcs, COUNT);
        CHECK(found >= 0 && iw_now_ns() < limit);
        for (int32_t i = 0; i < found; i++, seen++) {
            CHECK(wcs[i].wr_id == seen && wcs[i].status == IW_WC_SUCCESS && wcs[i].byte_len == 6);
        }
    }
    CHECK(memcmp(pair.far.pool, "frozen", 6) == 0);
}

int main(void)
{
    CHECK(iw_abi_version() >> 16 == IW_ABI_VERSION >> 16);
    pair_open(&pair);
    pair_connect(&pair, IW_EXTENSIONS_RFC7306);
    lists();
    results();
    pair_close(&pair);
    puts("the frozen program works");
    return 0;
}
