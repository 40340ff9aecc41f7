/* Both ends of a connection of one process to its own address. Every wait is bounded by `alarm` in `begin`. */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define MAYBE_UNUSED __attribute__((unused))

static const char *address;
static struct ibv_context *context;
static struct ibv_pd *pd;

struct pair {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *near, *far;
    struct ibv_cq *near_cq, *far_cq;
};

/* What the queue pairs are made of. */
struct queues {
    struct ibv_srq *far_srq;
    int sends, receives, elements, signals_all;
};

static const struct queues USUAL = {.sends = 16, .receives = 16, .elements = 4};

/* Opens the device for a test program. */
static MAYBE_UNUSED void begin(int count, char **arguments) {
    if (count < 2) exit(2);
    alarm(PATIENCE);
    address = arguments[1];
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0] && (context = ibv_open_device(list[0])));
    ibv_free_device_list(list);
    CHECK((pd = ibv_alloc_pd(context)));
}

static MAYBE_UNUSED struct rdma_cm_id *expect_in(struct rdma_event_channel *channel, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    if (event->event != type) fprintf(stderr, "got %s (%d)\n", rdma_event_str(event->event), event->status);
    CHECK(event->event == type);
    struct rdma_cm_id *id = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    return id;
}

static MAYBE_UNUSED struct rdma_cm_id *expect(struct pair *pair, enum rdma_cm_event_type type) {
    return expect_in(pair->channel, type);
}

static MAYBE_UNUSED struct ibv_qp_init_attr queue_attr(struct ibv_cq *cq, struct queues queues) {
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = queues.signals_all};
    attr.cap = (struct ibv_qp_cap){.max_send_wr = queues.sends, .max_recv_wr = queues.receives, .max_send_sge = queues.elements,
                                   .max_recv_sge = queues.elements, .max_inline_data = 64};
    return attr;
}

static MAYBE_UNUSED struct ibv_cq *add_queues(struct rdma_cm_id *id, struct queues queues, struct ibv_srq *srq) {
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
    CHECK(cq);
    struct ibv_qp_init_attr attr = queue_attr(cq, queues);
    attr.srq = srq;
    CHECK(rdma_create_qp(id, pd, &attr) == 0);
    return cq;
}

static MAYBE_UNUSED struct pair open_pair_with(int port, struct queues queues) {
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
    pair.near_cq = add_queues(pair.near, queues, NULL);
    struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4};
    CHECK(rdma_connect(pair.near, &param) == 0);
    pair.far = expect(&pair, RDMA_CM_EVENT_CONNECT_REQUEST);
    pair.far_cq = add_queues(pair.far, queues, queues.far_srq);
    CHECK(rdma_accept(pair.far, &param) == 0);
    for (int side = 0; side < 2; side++) expect(&pair, RDMA_CM_EVENT_ESTABLISHED);
    return pair;
}

static MAYBE_UNUSED struct pair open_pair(int port) {
    return open_pair_with(port, USUAL);
}

/* Ends the connection, unless it has ended. */
static MAYBE_UNUSED void close_pair(struct pair *pair) {
    rdma_disconnect(pair->near);
    for (int side = 0; side < 2; side++) expect(pair, RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_qp(pair->near);
    rdma_destroy_qp(pair->far);
    CHECK(rdma_destroy_id(pair->near) == 0 && rdma_destroy_id(pair->far) == 0 && rdma_destroy_id(pair->listener) == 0);
    CHECK(ibv_destroy_cq(pair->near_cq) == 0 && ibv_destroy_cq(pair->far_cq) == 0);
    rdma_destroy_event_channel(pair->channel);
}

/* Waits for the next completion, which must be that of request `id`. */
static MAYBE_UNUSED struct ibv_wc take(struct ibv_cq *cq, uint64_t id) {
    struct ibv_wc wc = {0};
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {}
    if (wc.wr_id != id) fprintf(stderr, "id %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
    CHECK(count == 1 && wc.wr_id == id);
    return wc;
}

/* Checks that a queue has no completion. What was asked for before is carried out within these polls. */
static MAYBE_UNUSED void take_nothing(struct ibv_cq *cq) {
    struct ibv_wc wc;
    for (int polls = 0; polls < 2000; polls++) CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
}

static MAYBE_UNUSED int post_receive(struct ibv_qp *qp, uint64_t id, struct ibv_mr *mr, uint32_t length) {
    struct ibv_sge element = {.addr = mr ? (uintptr_t)mr->addr : 0, .length = length, .lkey = mr ? mr->lkey : 0};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &element, .num_sge = mr ? 1 : 0}, *bad;
    return ibv_post_recv(qp, &wr, &bad);
}

/* Posts a signalled request with the first bytes of `mr`, to or from the first bytes of another region. */
static MAYBE_UNUSED int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t id, struct ibv_mr *mr, uint32_t length,
                             uint64_t remote_addr, uint32_t rkey) {
    struct ibv_sge element = {.addr = (uintptr_t)mr->addr, .length = length, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = &element, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = remote_addr;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = remote_addr;
        wr.wr.rdma.rkey = rkey;
    }
    return ibv_post_send(qp, &wr, &bad);
}

static MAYBE_UNUSED int set_state(struct ibv_qp *qp, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* Returns the next asynchronous event of a context, acknowledged, or -1 if none comes within `ms`. */
static MAYBE_UNUSED int async_event(struct ibv_context *of, int ms, struct ibv_async_event *event) {
    struct pollfd ready = {.fd = of->async_fd, .events = POLLIN};
    if (poll(&ready, 1, ms) != 1) return -1;
    CHECK(ibv_get_async_event(of, event) == 0);
    ibv_ack_async_event(event);
    return event->event_type;
}
