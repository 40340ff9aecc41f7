/*
 * Memory windows of type 1 over a connection of one process to its own address: their rights, keys and errors. Run by
 * scripts/verbs-programs.sh; takes the device's address as its argument. Prints `windows: N checks passed`.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND };

static const char *address;
static struct ibv_pd *pd;
static char pool[8192], local[64];
static struct ibv_mr *pool_mr, *local_mr;

/* Both ends of a connection. `near` uses keys, `far` binds them. */
struct pair {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *near, *far;
    struct ibv_cq *near_cq, *far_cq;
};

static struct rdma_cm_id *expect(struct pair *pair, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(pair->channel, &event) == 0);
    if (event->event != type) fprintf(stderr, "got %s (%d)\n", rdma_event_str(event->event), event->status);
    CHECK(event->event == type);
    struct rdma_cm_id *id = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    return id;
}

static struct ibv_cq *add_queues(struct rdma_cm_id *id) {
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
    CHECK(cq);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
    attr.cap = (struct ibv_qp_cap){.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1};
    CHECK(rdma_create_qp(id, pd, &attr) == 0);
    return cq;
}

static struct pair open_pair(int port) {
    struct pair pair = {.channel = rdma_create_event_channel()};
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(pair.channel && inet_pton(AF_INET, address, &here.sin_addr) == 1);
    CHECK(rdma_create_id(pair.channel, &pair.listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(pair.listener, (struct sockaddr *)&here) == 0 && rdma_listen(pair.listener, 1) == 0);
    CHECK(rdma_create_id(pair.channel, &pair.near, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(pair.near, NULL, (struct sockaddr *)&here, 1000) == 0);
    expect(&pair, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(rdma_resolve_route(pair.near, 1000) == 0);
    expect(&pair, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (!pd) {
        CHECK((pd = ibv_alloc_pd(pair.near->verbs)));
        CHECK((pool_mr = ibv_reg_mr(pd, pool, sizeof pool, ALL)));
        CHECK((local_mr = ibv_reg_mr(pd, local, sizeof local, IBV_ACCESS_LOCAL_WRITE)));
    }
    pair.near_cq = add_queues(pair.near);
    struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4};
    CHECK(rdma_connect(pair.near, &param) == 0);
    pair.far = expect(&pair, RDMA_CM_EVENT_CONNECT_REQUEST);
    pair.far_cq = add_queues(pair.far);
    CHECK(rdma_accept(pair.far, &param) == 0);
    for (int side = 0; side < 2; side++) expect(&pair, RDMA_CM_EVENT_ESTABLISHED);
    return pair;
}

/* Ends the connection, unless it has ended. */
static void close_pair(struct pair *pair) {
    rdma_disconnect(pair->near);
    for (int side = 0; side < 2; side++) expect(pair, RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_qp(pair->near);
    rdma_destroy_qp(pair->far);
    CHECK(rdma_destroy_id(pair->near) == 0 && rdma_destroy_id(pair->far) == 0 && rdma_destroy_id(pair->listener) == 0);
    CHECK(ibv_destroy_cq(pair->near_cq) == 0 && ibv_destroy_cq(pair->far_cq) == 0);
    rdma_destroy_event_channel(pair->channel);
}

static struct ibv_wc take(struct ibv_cq *cq, uint64_t id) {
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {}
    if (wc.wr_id != id) fprintf(stderr, "id %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
    CHECK(count == 1 && wc.wr_id == id);
    return wc;
}

static struct ibv_mw_bind binding(struct ibv_mr *mr, size_t offset, size_t length, unsigned access) {
    struct ibv_mw_bind bind = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED};
    bind.bind_info = (struct ibv_mw_bind_info){mr, mr ? (uintptr_t)mr->addr + offset : 0, length, access};
    return bind;
}

static void bind_window(struct pair *pair, struct ibv_mw *mw, struct ibv_mw_bind bind) {
    uint32_t before = mw->rkey;
    CHECK(ibv_bind_mw(pair->far->qp, mw, &bind) == 0 && mw->rkey != before);
    struct ibv_wc wc = take(pair->far_cq, 1);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
}

/* Reads from or writes to the pool, and returns the status. */
static enum ibv_wc_status access_pool(struct pair *pair, enum ibv_wr_opcode opcode, uint32_t key, size_t offset, uint32_t length) {
    struct ibv_sge element = {.addr = (uintptr_t)local, .length = length, .lkey = local_mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 2, .opcode = opcode, .sg_list = &element, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)pool + offset;
    wr.wr.rdma.rkey = key;
    CHECK(ibv_post_send(pair->near->qp, &wr, &bad) == 0);
    return take(pair->near_cq, 2).status;
}

/* Refused calls change nothing and post nothing. */
static void check_errors(struct pair *pair) {
    struct ibv_device_attr attr;
    CHECK(ibv_query_device(pair->near->verbs, &attr) == 0 && attr.max_mw > 0 && attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
    CHECK((errno = 0, !ibv_alloc_mw(pd, IBV_MW_TYPE_2)) && errno == EOPNOTSUPP);
    CHECK((errno = 0, !ibv_alloc_mw(pd, 0)) && errno == EINVAL);
    struct ibv_pd *other_pd = ibv_alloc_pd(pair->near->verbs);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *foreign = ibv_alloc_mw(other_pd, IBV_MW_TYPE_1);
    CHECK(mw && foreign && mw->pd == pd && mw->type == IBV_MW_TYPE_1 && ibv_dealloc_pd(other_pd) == EBUSY);
    uint32_t key = mw->rkey;
    struct ibv_mr *readable = ibv_reg_mr(pd, pool, sizeof pool, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
    CHECK(readable);
    struct { struct ibv_mw_bind bind; int error; } cases[] = {
        {binding(local_mr, 0, 8, IBV_ACCESS_REMOTE_READ), EINVAL},
        {binding(readable, 0, 8, IBV_ACCESS_REMOTE_WRITE), EINVAL},
        {binding(pool_mr, 8000, 193, IBV_ACCESS_REMOTE_READ), EINVAL},
        {binding(pool_mr, -1, 8, IBV_ACCESS_REMOTE_READ), EINVAL},
        {binding(pool_mr, 8, SIZE_MAX, IBV_ACCESS_REMOTE_READ), EINVAL},
        {binding(pool_mr, 0, 8, IBV_ACCESS_MW_BIND), EINVAL},
        {binding(pool_mr, 0, 8, IBV_ACCESS_ZERO_BASED), EOPNOTSUPP},
        {binding(NULL, 0, 8, IBV_ACCESS_REMOTE_READ), EINVAL},
    };
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        CHECK(ibv_bind_mw(pair->far->qp, mw, &cases[at].bind) == cases[at].error);
    struct ibv_mw_bind good = binding(pool_mr, 0, 8, IBV_ACCESS_REMOTE_READ), without = binding(NULL, 0, 0, 0);
    CHECK(ibv_bind_mw(pair->far->qp, foreign, &good) == EPERM && ibv_bind_mw(pair->far->qp, foreign, &without) == EPERM);
    struct ibv_wc wc;
    CHECK(mw->rkey == key && ibv_poll_cq(pair->far_cq, 1, &wc) == 0);
    CHECK(ibv_dereg_mr(readable) == 0 && ibv_dealloc_mw(foreign) == 0 && ibv_dealloc_pd(other_pd) == 0);
    CHECK(ibv_dealloc_mw(mw) == 0);
}

/* A window serves every queue pair of its domain, is bound again while it is bound, and holds its region. */
static void check_bindings(struct pair *pair) {
    struct ibv_mr *mr = ibv_reg_mr(pd, pool, sizeof pool, ALL);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    CHECK(mr && mw && ibv_dereg_mr(mr) == 0 && (mr = ibv_reg_mr(pd, pool, sizeof pool, ALL)));
    memcpy(pool + 4096, "window", 6);
    bind_window(pair, mw, binding(mr, 4096, 64, IBV_ACCESS_REMOTE_READ));
    CHECK(access_pool(pair, IBV_WR_RDMA_READ, mw->rkey, 4096, 6) == IBV_WC_SUCCESS && !memcmp(local, "window", 6));
    CHECK(ibv_dereg_mr(mr) == EBUSY);
    bind_window(pair, mw, binding(pool_mr, 128, 64, IBV_ACCESS_REMOTE_WRITE));
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(access_pool(pair, IBV_WR_RDMA_WRITE, mw->rkey, 186, 6) == IBV_WC_SUCCESS);
    struct ibv_mw_bind near = binding(pool_mr, 4096, 64, IBV_ACCESS_REMOTE_READ);
    CHECK(ibv_bind_mw(pair->near->qp, mw, &near) == 0 && take(pair->near_cq, 1).status == IBV_WC_SUCCESS);
    CHECK(access_pool(pair, IBV_WR_RDMA_READ, mw->rkey, 4154, 6) == IBV_WC_SUCCESS && !memcmp(pool + 186, "window", 6));

    /* Several bindings before the first completes, with one completion. */
    near.send_flags = 0;
    for (int round = 0; round < 3; round++) CHECK(ibv_bind_mw(pair->near->qp, mw, &near) == 0);
    struct ibv_mw_bind far = binding(pool_mr, 0, 8, IBV_ACCESS_REMOTE_READ);
    int outcome = ibv_bind_mw(pair->far->qp, mw, &far);
    CHECK(outcome == 0 || outcome == EBUSY);
    if (outcome == 0) CHECK(take(pair->far_cq, 1).status == IBV_WC_SUCCESS);
    near.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
    CHECK(ibv_bind_mw(pair->near->qp, mw, &near) == 0 && take(pair->near_cq, 1).opcode == IBV_WC_BIND_MW);
    CHECK(access_pool(pair, IBV_WR_RDMA_READ, mw->rkey, 4096, 6) == IBV_WC_SUCCESS);

    /* The right of the program itself is the region's, whether it is named or not. */
    bind_window(pair, mw, binding(pool_mr, 128, 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE));
    CHECK(access_pool(pair, IBV_WR_RDMA_WRITE, mw->rkey, 128, 6) == IBV_WC_SUCCESS);
    bind_window(pair, mw, binding(pool_mr, 4096, 64, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE));
    CHECK(access_pool(pair, IBV_WR_RDMA_READ, mw->rkey, 4096, 6) == IBV_WC_SUCCESS);

    /* Without memory it holds no region, and may be bound again. */
    bind_window(pair, mw, binding(NULL, 0, 0, 0));
    bind_window(pair, mw, binding(pool_mr, 4096, 0, IBV_ACCESS_REMOTE_READ));
    bind_window(pair, mw, binding(pool_mr, 4096, 64, IBV_ACCESS_REMOTE_READ));
    CHECK(access_pool(pair, IBV_WR_RDMA_READ, mw->rkey, 4096, 6) == IBV_WC_SUCCESS);
    CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(mw) == EINVAL);
}

enum ended { REPLACED, WITHOUT_MEMORY, RELEASED, OUTSIDE, READ_ONLY, CASES };

/* An access that the window does not allow ends the connection (RFC 5040 s7.2, s8.1.2). */
static void check_refused_access(enum ended how, int port) {
    struct pair pair = open_pair(port);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    CHECK(mw);
    memset(pool, 0, sizeof pool);
    memset(local, 'x', sizeof local);
    bind_window(&pair, mw, binding(pool_mr, 4096, 64, how == READ_ONLY ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE));
    uint32_t key = mw->rkey;
    size_t offset = 4096;
    if (how == REPLACED) bind_window(&pair, mw, binding(pool_mr, 4096, 64, IBV_ACCESS_REMOTE_WRITE));
    if (how == WITHOUT_MEMORY) bind_window(&pair, mw, binding(NULL, 0, 0, 0));
    if (how == RELEASED) CHECK(ibv_dealloc_mw(mw) == 0);
    if (how == OUTSIDE) offset = 4096 + 61;
    struct ibv_recv_wr recv = {.wr_id = 3}, *bad;
    CHECK(ibv_post_recv(pair.far->qp, &recv, &bad) == 0);
    /* A Write is complete once it is acknowledged, so its status says nothing. */
    access_pool(&pair, IBV_WR_RDMA_WRITE, key, offset, 4);
    CHECK(take(pair.far_cq, 3).status == IBV_WC_WR_FLUSH_ERR);
    for (size_t at = 0; at < sizeof pool; at++) CHECK(pool[at] == 0);
    close_pair(&pair);
    if (how != RELEASED) CHECK(ibv_dealloc_mw(mw) == 0);
}

/* A binding that was flushed did not take effect: the window can be bound by another queue pair. */
static void check_flushed_binding(void) {
    struct pair pair = open_pair(7200);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    struct ibv_mw_bind bind = binding(pool_mr, 0, 64, IBV_ACCESS_REMOTE_READ);
    struct ibv_qp_attr modify = {.qp_state = IBV_QPS_ERR};
    CHECK(mw && ibv_modify_qp(pair.far->qp, &modify, IBV_QP_STATE) == 0);
    CHECK(ibv_bind_mw(pair.far->qp, mw, &bind) == 0 && take(pair.far_cq, 1).status == IBV_WC_WR_FLUSH_ERR);
    close_pair(&pair);
    pair = open_pair(7201);
    bind_window(&pair, mw, bind);
    CHECK(access_pool(&pair, IBV_WR_RDMA_READ, mw->rkey, 0, 6) == IBV_WC_SUCCESS);
    close_pair(&pair);
    CHECK(ibv_dealloc_mw(mw) == 0);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    address = arguments[1];
    struct pair pair = open_pair(7100);
    check_errors(&pair);
    check_bindings(&pair);
    close_pair(&pair);
    for (int how = 0; how < CASES; how++) check_refused_access(how, 7101 + how);
    check_flushed_binding();
    CHECK(ibv_dereg_mr(pool_mr) == 0 && ibv_dereg_mr(local_mr) == 0 && ibv_dealloc_pd(pd) == 0);
    printf("windows: %d checks passed\n", checks);
    return 0;
}
