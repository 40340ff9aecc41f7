/*
 * Completions: how many a request has and what they say, and completion queues and channels when calls fail. Run by
 * scripts/verbs-programs.sh; takes the device's address as its argument. Prints `completions: N checks passed`.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include "pair.h"

enum { EVERYTHING = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND };

static char buffer[1 << 16];
static struct ibv_mr *mr;

/* ibv_post_send(3): one work completion for each request, also of one that is carried out in two parts. */
static void check_flushed_requests(void) {
    struct pair pair = open_pair(7300);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    struct ibv_mw_bind bind = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED};
    bind.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)buffer, 4096, IBV_ACCESS_REMOTE_WRITE};
    CHECK(mw && ibv_bind_mw(pair.near->qp, mw, &bind) == 0 && take(pair.near_cq, 1).status == IBV_WC_SUCCESS);
    CHECK(set_state(pair.near->qp, IBV_QPS_ERR) == 0);
    for (int id = 10; id < 14; id++)
        CHECK(post(pair.near->qp, IBV_WR_RDMA_WRITE_WITH_IMM, id, mr, 64, (uintptr_t)buffer + 4096, mr->rkey) == 0);
    CHECK(post(pair.near->qp, IBV_WR_SEND, 14, mr, 64, 0, 0) == 0);
    bind.wr_id = 15;
    CHECK(ibv_bind_mw(pair.near->qp, mw, &bind) == 0);
    for (int id = 10; id < 16; id++) {
        struct ibv_wc wc = take(pair.near_cq, id);
        CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == pair.near->qp->qp_num);
    }
    take_nothing(pair.near_cq);
    close_pair(&pair);
    CHECK(ibv_dealloc_mw(mw) == 0);
}

/* An unsignalled Write with Immediate Data that is flushed has one too: failures always complete. */
static void check_unsignalled_requests(void) {
    struct pair pair = open_pair(7301);
    CHECK(set_state(pair.near->qp, IBV_QPS_ERR) == 0);
    struct ibv_sge element = {.addr = (uintptr_t)buffer, .length = 8, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 5, .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)buffer;
    wr.wr.rdma.rkey = mr->rkey;
    CHECK(ibv_post_send(pair.near->qp, &wr, &bad) == 0 && take(pair.near_cq, 5).status == IBV_WC_WR_FLUSH_ERR);
    take_nothing(pair.near_cq);
    close_pair(&pair);
}

/* The completion says why the first part failed. */
static void check_failed_first_part(void) {
    struct pair pair = open_pair(7302);
    struct ibv_mr wrong = *mr;
    wrong.lkey ^= 0x5500;
    CHECK(post(pair.near->qp, IBV_WR_RDMA_WRITE_WITH_IMM, 7, &wrong, 64, (uintptr_t)buffer, mr->rkey) == 0);
    CHECK(take(pair.near_cq, 7).status == IBV_WC_LOC_PROT_ERR);
    take_nothing(pair.near_cq);
    close_pair(&pair);
}

/* ibv_poll_cq(3): byte_len is the number of bytes transferred. */
static void check_lengths(void) {
    struct pair pair = open_pair(7303);
    CHECK(post_receive(pair.far->qp, 1, NULL, 0) == 0 && post_receive(pair.far->qp, 2, mr, 100) == 0);
    CHECK(post(pair.near->qp, IBV_WR_RDMA_WRITE_WITH_IMM, 3, mr, 1000, (uintptr_t)buffer + 4096, mr->rkey) == 0);
    struct ibv_wc wc = take(pair.near_cq, 3);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE && wc.byte_len == 1000);
    wc = take(pair.far_cq, 1);
    CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 1000 && wc.wc_flags & IBV_WC_WITH_IMM);
    CHECK(post(pair.near->qp, IBV_WR_SEND, 4, mr, 77, 0, 0) == 0 && take(pair.near_cq, 4).byte_len == 77);
    CHECK(take(pair.far_cq, 2).byte_len == 77);
    close_pair(&pair);
}

/* ibv_resize_cq(3): a size below the number of completions that wait is refused, and changes nothing. */
static void check_resizing(void) {
    struct pair pair = open_pair(7304);
    CHECK(set_state(pair.near->qp, IBV_QPS_ERR) == 0);
    for (int id = 0; id < 12; id++) CHECK(post(pair.near->qp, IBV_WR_SEND, id, mr, 8, 0, 0) == 0);
    for (int id = 0; id < 2; id++) take(pair.near_cq, id);
    int before = pair.near_cq->cqe;
    CHECK(ibv_resize_cq(pair.near_cq, 9) == EINVAL && ibv_resize_cq(pair.near_cq, 0) == EINVAL);
    CHECK(ibv_resize_cq(pair.near_cq, -1) == EINVAL && ibv_resize_cq(NULL, 10) == EINVAL && pair.near_cq->cqe == before);
    CHECK(ibv_resize_cq(pair.near_cq, 10) == 0 && pair.near_cq->cqe == 10);
    CHECK(ibv_resize_cq(pair.near_cq, 1000) == 0 && pair.near_cq->cqe == 1000);
    for (int id = 2; id < 12; id++) CHECK(take(pair.near_cq, id).status == IBV_WC_WR_FLUSH_ERR);
    take_nothing(pair.near_cq);
    CHECK(ibv_resize_cq(pair.near_cq, 1) == 0);
    close_pair(&pair);
}

/* A busy core is not an error: on one processor the helper thread does not run during the loops. A completion channel counts
 * its queues, and a call that fails leaves the count. */
static void check_many_queues(void) {
    enum { QUEUES = 1500 };
    static struct ibv_cq *queues[QUEUES];
    cpu_set_t before, one;
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    struct ibv_device_attr attr;
    CHECK(ibv_query_device(context, &attr) == 0);
    int count = attr.max_cq < QUEUES ? attr.max_cq : QUEUES;
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel && channel->refcnt == 0);
    /* More rounds than the ring to the core has places. */
    for (int round = 0; round * count < 4 * QUEUES; round++) {
        for (int at = 0; at < count; at++) CHECK((queues[at] = ibv_create_cq(context, 4, NULL, channel, 0)));
        CHECK(channel->refcnt == count && ibv_destroy_comp_channel(channel) == EBUSY);
        for (int at = 0; at < count; at++) CHECK(ibv_destroy_cq(queues[at]) == 0);
        CHECK(channel->refcnt == 0);
    }
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    CHECK((errno = 0, !ibv_create_cq(context, 4, NULL, channel, 0)) && errno == EINVAL);
    CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}

/* A destruction that fails leaves the queue in use: its events arrive. */
static void check_failed_destruction(void) {
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, &checks, channel, 0), *found;
    struct ibv_qp_init_attr attr = queue_attr(cq, USUAL);
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    void *found_context;
    CHECK(qp && ibv_req_notify_cq(cq, 0) == 0 && ibv_destroy_cq(cq) == EBUSY && channel->refcnt == 1);
    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    CHECK(set_state(qp, IBV_QPS_ERR) == 0 && post_receive(qp, 6, NULL, 0) == 0);
    CHECK(ibv_get_cq_event(channel, &found, &found_context) == 0 && found == cq && found_context == &checks);
    ibv_ack_cq_events(cq, 1);
    CHECK(take(cq, 6).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
}

static int has_event(struct ibv_comp_channel *channel, struct ibv_cq *cq) {
    struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
    if (poll(&ready, 1, 0) != 1) return 0;
    struct ibv_cq *found;
    void *found_context;
    CHECK(ibv_get_cq_event(channel, &found, &found_context) == 0 && found == cq && found_context == &checks);
    ibv_ack_cq_events(cq, 1);
    return 1;
}

/* ibv_req_notify_cq(3): one event for each call; with solicited_only for a solicited message or a failure. */
static void check_notifications(void) {
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 32, &checks, channel, 0);
    struct ibv_qp_init_attr attr = queue_attr(cq, USUAL);
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    CHECK(channel && cq && qp && !has_event(channel, cq));
    CHECK(set_state(qp, IBV_QPS_ERR) == 0 && ibv_req_notify_cq(cq, 0) == 0);
    for (int id = 0; id < 3; id++) {
        CHECK(post_receive(qp, id, NULL, 0) == 0);
        take(cq, id);
        CHECK(has_event(channel, cq) == (id == 0));
    }
    /* A failure is solicited. */
    CHECK(ibv_req_notify_cq(cq, 1) == 0 && post_receive(qp, 4, NULL, 0) == 0 && take(cq, 4).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(has_event(channel, cq) && !has_event(channel, cq));
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
}

static volatile int is_destroyed;

static void *destroy(void *cq) {
    if (ibv_destroy_cq(cq) != 0) abort();
    is_destroyed = 1;
    return NULL;
}

/* ibv_get_cq_event(3): destroying a queue waits for all its events to be acknowledged. */
static void check_acknowledgement(void) {
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 32, NULL, channel, 0), *found;
    struct ibv_qp_init_attr attr = queue_attr(cq, USUAL);
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    void *found_context;
    CHECK(qp && set_state(qp, IBV_QPS_ERR) == 0);
    for (int id = 0; id < 2; id++) {
        CHECK(ibv_req_notify_cq(cq, 0) == 0 && post_receive(qp, id, NULL, 0) == 0);
        CHECK(ibv_get_cq_event(channel, &found, &found_context) == 0 && found == cq);
    }
    CHECK(ibv_destroy_qp(qp) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, destroy, cq) == 0);
    for (int acknowledged = 0; acknowledged < 2; acknowledged++) {
        for (int turns = 0; turns < 1000; turns++) sched_yield();
        CHECK(!is_destroyed);
        ibv_ack_cq_events(cq, 1);
    }
    CHECK(pthread_join(thread, NULL) == 0 && is_destroyed && ibv_destroy_comp_channel(channel) == 0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    CHECK((mr = ibv_reg_mr(pd, buffer, sizeof buffer, EVERYTHING)));
    check_flushed_requests();
    check_unsignalled_requests();
    check_failed_first_part();
    check_lengths();
    check_resizing();
    check_many_queues();
    check_failed_destruction();
    check_notifications();
    check_acknowledgement();
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
    printf("completions: %d checks passed\n", checks);
    return 0;
}
