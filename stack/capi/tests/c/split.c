/* One connection, several threads: one posts sends, one polls their completions, one posts receives. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MESSAGES = 500 };

static struct pair pair;
static struct iw_send_poster *sends;
static struct iw_recv_poster *receives;
static struct iw_cq_poller *poller;
static atomic_int all_polled;
/* Receives posted so far: a Send without one would end the connection. */
static atomic_ulong receives_posted;

static void *post_sends(void *unused)
{
    uint64_t limit = iw_now_ns() + 60ull * SECOND_NS;
    for (uint64_t id = 0; id < MESSAGES;) {
        struct iw_send_wr wr;
        uint32_t posted = 9;
        CHECK(iw_now_ns() < limit);
        if (id == atomic_load(&receives_posted)) {
            sched_yield();
            continue;
        }
        memset(&wr, 0, sizeof wr);
        wr.wr_id = id;
        wr.flags = IW_SEND_INLINE | IW_SEND_SIGNALED;
        wr.inline_data = (const uint8_t *)"message";
        wr.inline_bytes = 7;
        int32_t is = iw_send_poster_post(sends, &wr, 1, &posted);
        CHECK(is == IW_OK || is == IW_E_QUEUE_FULL || is == IW_E_CQ_FULL);
        CHECK(posted == (is == IW_OK));
        id += posted;
        sched_yield();
    }
    return unused;
}

static void *poll_sends(void *unused)
{
    uint64_t limit = iw_now_ns() + 60ull * SECOND_NS;
    for (uint64_t id = 0; id < MESSAGES;) {
        struct iw_wc wcs[8];
        int32_t found = iw_cq_poller_poll(poller, wcs, 8);
        CHECK(found >= 0);
        for (int32_t i = 0; i < found; i++) {
            CHECK(wcs[i].status == IW_WC_SUCCESS && wcs[i].wr_id == id);
            id++;
        }
        sched_yield();
        CHECK(iw_now_ns() < limit);
    }
    atomic_store(&all_polled, 1);
    return unused;
}

static void post_recv(uint64_t wr_id)
{
    struct iw_sge sge = piece(&pair.far, 0, 64);
    struct iw_recv_wr wr = {.wr_id = wr_id, .sges = &sge, .sge_count = 1};
    uint32_t posted = 0;
    ANSWERS(IW_OK, iw_recv_poster_post(receives, &wr, 1, &posted));
    CHECK(posted == 1);
    atomic_fetch_add(&receives_posted, 1);
}

/* The program polls both workers here, so the threads need no other one. */
static void messages(void)
{
    struct iw_send_poster *unused_sends = NULL;
    struct iw_recv_poster *unused_receives = NULL;
    pthread_t threads[2];
    uint64_t received = 0, limit = iw_now_ns() + 60ull * SECOND_NS;
    ANSWERS(IW_OK, iw_qp_split(pair.near.ctx, pair.near.qp, &sends, &unused_receives));
    ANSWERS(IW_OK, iw_qp_split(pair.far.ctx, pair.far.qp, &unused_sends, &receives));
    ANSWERS(IW_OK, iw_cq_split(pair.near.ctx, pair.near.cq, &poller));
    ANSWERS(IW_OK, iw_recv_poster_close(unused_receives));
    ANSWERS(IW_OK, iw_send_poster_close(unused_sends));
    for (uint64_t id = 0; id < 32; id++) {
        post_recv(id);
    }
    CHECK(pthread_create(&threads[0], NULL, post_sends, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, poll_sends, NULL) == 0);
    while (received < MESSAGES) {
        turn(&pair);
        int32_t found = iw_cq_poll(pair.far.ctx, pair.far.cq, &pair.far.wc, 1);
        CHECK(found >= 0);
        if (found == 1) {
            CHECK(pair.far.wc.status == IW_WC_SUCCESS && pair.far.wc.byte_len == 7);
            post_recv(received++);
        }
        sched_yield();
        CHECK(iw_now_ns() < limit);
    }
    /* The last completions need the workers. */
    while (!atomic_load(&all_polled)) {
        turn(&pair);
        CHECK(iw_now_ns() < limit);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(memcmp(pair.far.pool, "message", 7) == 0);
}

static void the_context_may_not_use_them(void)
{
    struct iw_send_wr wr;
    struct iw_cq_poller *second;
    struct iw_srq srq;
    struct iw_srq_poster *shared, *again;
    struct iw_recv_wr recv = {.wr_id = 1};
    int32_t fd = -1;
    memset(&wr, 0, sizeof wr);
    ANSWERS(IW_E_SPLIT, iw_post_send(pair.near.ctx, pair.near.qp, &wr, 1, NULL));
    ANSWERS(IW_E_SPLIT, iw_cq_poll(pair.near.ctx, pair.near.cq, &pair.near.wc, 1));
    ANSWERS(IW_E_SPLIT, iw_cq_resize(pair.near.ctx, pair.near.cq, 128));
    ANSWERS(IW_E_SPLIT, iw_cq_split(pair.near.ctx, pair.near.cq, &second));
    CHECK(second == NULL);
    ANSWERS(IW_OK, iw_cq_poller_arm(poller, 0));
    ANSWERS(IW_OK, iw_cq_poller_fd(poller, &fd));
    CHECK(fd >= 0);
    ANSWERS(IW_OK, iw_srq_create(pair.near.ctx, pair.near.pd, 4, 1, &srq));
    ANSWERS(IW_OK, iw_srq_split(pair.near.ctx, srq, &shared));
    ANSWERS(IW_E_SPLIT, iw_srq_post_recv(pair.near.ctx, srq, &recv, 1, NULL));
    ANSWERS(IW_E_SPLIT, iw_srq_split(pair.near.ctx, srq, &again));
    ANSWERS(IW_OK, iw_srq_poster_post(shared, &recv, 1, NULL));
    ANSWERS(IW_OK, iw_srq_destroy(pair.near.ctx, srq));
    ANSWERS(IW_E_NO_SRQ, iw_srq_poster_post(shared, &recv, 1, NULL));
    ANSWERS(IW_OK, iw_srq_poster_close(shared));
    ANSWERS(IW_E_HANDLE, iw_srq_poster_close(shared));
}

static void a_destroyed_queue_pair(void)
{
    struct iw_send_wr wr;
    memset(&wr, 0, sizeof wr);
    ANSWERS(IW_OK, iw_qp_destroy(pair.near.ctx, pair.near.qp));
    ANSWERS(IW_E_NO_QP, iw_send_poster_post(sends, &wr, 1, NULL));
    ANSWERS(IW_E_STILL_USED, iw_cq_destroy(pair.near.ctx, pair.near.cq));
    ANSWERS(IW_OK, iw_send_poster_close(sends));
    ANSWERS(IW_OK, iw_recv_poster_close(receives));
    uint64_t limit = iw_now_ns() + 20ull * SECOND_NS;
    while (iw_cq_destroy(pair.near.ctx, pair.near.cq) != IW_OK) {
        turn(&pair);
        CHECK(iw_event_poll(pair.near.ctx, &pair.near.event) >= 0);
        CHECK(iw_now_ns() < limit);
    }
    while (iw_cq_poller_poll(poller, &pair.near.wc, 1) != IW_E_NO_CQ) {
        turn(&pair);
        CHECK(iw_event_poll(pair.near.ctx, &pair.near.event) >= 0);
        CHECK(iw_now_ns() < limit);
    }
    ANSWERS(IW_OK, iw_cq_poller_close(poller));
}

int main(void)
{
    pair_open(&pair);
    pair_connect(&pair, IW_EXTENSIONS_OFF);
    messages();
    the_context_may_not_use_them();
    a_destroyed_queue_pair();
    pair_close(&pair);
    puts("three threads shared a connection");
    return 0;
}
