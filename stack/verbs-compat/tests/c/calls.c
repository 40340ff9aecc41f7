/*
 * Calls of libibverbs and librdmacm in one process, which connects to its own address: what they return for valid and invalid
 * input. Run by scripts/verbs-programs.sh; takes the device's address as its argument. Prints `calls: N checks passed`.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
/* A call that returns a null pointer, or -1, and sets errno. */
#define FAILS_WITH(call, error) CHECK((errno = 0, !(call)) && errno == (error))
#define MINUS_ONE_WITH(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))

static struct ibv_context *context;
static struct ibv_pd *pd;
static char buffer[65536];
static struct ibv_mr *mr;

static void set_nonblocking(int fd) {
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

static struct ibv_qp_init_attr queue_attr(struct ibv_cq *cq) {
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
    attr.cap = (struct ibv_qp_cap){.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64};
    return attr;
}

/* ibv_query_gid(3) returns -1, ibv_query_gid_ex(3) the number of the error, ibv_query_gid_table(3) the negative number. */
static void check_gids(union ibv_gid *gid) {
    struct ibv_gid_entry entry = {.gid_type = 77}, table[2];
    CHECK(ibv_query_gid(context, 1, 0, gid) == 0);
    int wrong[] = {1, -1, 255, 256, 1 << 30};
    for (int at = 0; at < 5; at++) {
        MINUS_ONE_WITH(ibv_query_gid(context, 1, wrong[at], gid), EINVAL);
        CHECK(ibv_query_gid_ex(context, 1, wrong[at], &entry, 0) == EINVAL && entry.gid_type == 77);
    }
    MINUS_ONE_WITH(ibv_query_gid(context, 0, 0, gid), EINVAL);
    MINUS_ONE_WITH(ibv_query_gid(context, 2, 0, gid), EINVAL);
    MINUS_ONE_WITH(ibv_query_gid(context, 1, 0, NULL), EINVAL);
    CHECK(ibv_query_gid_ex(context, 2, 0, &entry, 0) == EINVAL && ibv_query_gid_ex(context, 1, 0, &entry, 1) == EOPNOTSUPP);
    CHECK(entry.gid_type == 77 && ibv_query_gid_ex(context, 1, 0, NULL, 0) == EINVAL);
    CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 0) == 0 && !memcmp(&entry.gid, gid, sizeof *gid));
    CHECK(entry.gid_index == 0 && entry.port_num == 1 && entry.gid_type == IBV_GID_TYPE_IB);
    CHECK(ibv_query_gid_table(context, table, 0, 0) == -EINVAL && ibv_query_gid_table(context, table, 2, 1) == -EOPNOTSUPP);
    CHECK(ibv_query_gid_table(context, NULL, 2, 0) == -EINVAL && ibv_query_gid_table(context, table, 2, 0) == 1);
    CHECK(!memcmp(&table[0].gid, gid, sizeof *gid) && table[0].port_num == 1);
    uint16_t pkey;
    CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff && ibv_get_pkey_index(context, 1, pkey) == 0);
    MINUS_ONE_WITH(ibv_query_pkey(context, 1, 1, &pkey), EINVAL);
    MINUS_ONE_WITH(ibv_query_pkey(context, 1, -1, &pkey), EINVAL);
    MINUS_ONE_WITH(ibv_query_pkey(context, 3, 0, &pkey), EINVAL);
    MINUS_ONE_WITH(ibv_get_pkey_index(context, 1, 0x1234), EINVAL);
    CHECK(ibv_query_gid(context, 1, 0, gid) == 0);
}

static void check_device(void) {
    struct ibv_port_attr port;
    struct ibv_device_attr attr;
    union ibv_gid gid;
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(count == 1 && list[0] && !list[1] && !strcmp(ibv_get_device_name(list[0]), "ironwarp0"));
    /* ibv_get_device_guid(3): before the device is open, and the same afterwards. */
    uint64_t guid = ibv_get_device_guid(list[0]);
    context = ibv_open_device(list[0]);
    CHECK(context && guid && ibv_get_device_guid(list[0]) == guid);
    CHECK(ibv_query_device(context, &attr) == 0 && attr.node_guid == guid);
    CHECK(ibv_get_device_guid(NULL) == 0 && !ibv_get_device_name(NULL));
    ibv_free_device_list(list);
    list = ibv_get_device_list(NULL);
    CHECK(list && list[0] && !list[1]);
    ibv_free_device_list(list);
    ibv_free_device_list(NULL);
    FAILS_WITH(ibv_open_device(NULL), ENODEV);
    CHECK(ibv_query_device(context, &attr) == 0 && attr.max_qp > 0 && attr.atomic_cap == IBV_ATOMIC_HCA);
    CHECK(ibv_query_device(context, NULL) == EINVAL);
    CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
    CHECK(ibv_query_port(context, 0, &port) == EINVAL && ibv_query_port(context, 2, &port) == EINVAL);
    check_gids(&gid);
    set_nonblocking(context->async_fd);
    struct ibv_async_event event;
    while (ibv_get_async_event(context, &event) == 0) ibv_ack_async_event(&event);
    CHECK(errno == EAGAIN);
}

static void check_memory(void) {
    pd = ibv_alloc_pd(context);
    CHECK(pd);
    FAILS_WITH(ibv_reg_mr(pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE), EFAULT);
    FAILS_WITH(ibv_reg_mr(pd, buffer, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    FAILS_WITH(ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    FAILS_WITH(ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
    FAILS_WITH(ibv_reg_mr_iova2(pd, buffer, 4096, 64, IBV_ACCESS_LOCAL_WRITE), EOPNOTSUPP);
    FAILS_WITH(ibv_alloc_mw(pd, IBV_MW_TYPE_2), EOPNOTSUPP);
    mr = ibv_reg_mr(pd, buffer, sizeof buffer,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    CHECK(mr && mr->lkey == mr->rkey && mr->addr == buffer);
    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    struct ibv_mr *other = ibv_reg_mr(pd, buffer, 64, 0);
    CHECK(other && ibv_dereg_mr(other) == 0 && ibv_dereg_mr(other) == EINVAL);
}

static void take(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status, struct ibv_wc *wc) {
    int count;
    while ((count = ibv_poll_cq(cq, 1, wc)) == 0) {}
    if (wc->wr_id != id || wc->status != status) fprintf(stderr, "id %d: %s\n", (int)wc->wr_id, ibv_wc_status_str(wc->status));
    CHECK(count == 1 && wc->wr_id == id && wc->status == status);
}

/* A queue pair that was never connected: RTS and SQD need a connection; ERR flushes what is posted, before and later. */
static void check_states_without_connection(struct ibv_cq *cq) {
    struct ibv_qp_init_attr attr = queue_attr(cq);
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    struct ibv_recv_wr first = {.wr_id = 31}, second = {.wr_id = 32}, *bad_recv;
    struct ibv_send_wr send = {.wr_id = 33, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
    struct ibv_qp_attr modify = {.qp_state = IBV_QPS_SQD}, found;
    struct ibv_wc wc;
    CHECK(qp && ibv_post_recv(qp, &first, &bad_recv) == 0 && ibv_post_recv(qp, &second, &bad_recv) == 0);
    CHECK(ibv_modify_qp(qp, &modify, IBV_QP_STATE) == EINVAL);
    for (modify.qp_state = IBV_QPS_INIT; modify.qp_state <= IBV_QPS_RTR; modify.qp_state++)
        CHECK(ibv_modify_qp(qp, &modify, IBV_QP_STATE) == 0);
    for (; modify.qp_state <= IBV_QPS_SQD; modify.qp_state++)
        CHECK(ibv_modify_qp(qp, &modify, IBV_QP_STATE) == EINVAL);
    CHECK(ibv_query_qp(qp, &found, IBV_QP_STATE, &attr) == 0 && found.qp_state == IBV_QPS_RTR);
    CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL && ibv_poll_cq(cq, 1, &wc) == 0);
    modify.qp_state = IBV_QPS_ERR;
    CHECK(ibv_modify_qp(qp, &modify, IBV_QP_STATE) == 0 && qp->state == IBV_QPS_ERR);
    CHECK(ibv_query_qp(qp, &found, IBV_QP_STATE, &attr) == 0 && found.qp_state == IBV_QPS_ERR);
    take(cq, 31, IBV_WC_WR_FLUSH_ERR, &wc);
    take(cq, 32, IBV_WC_WR_FLUSH_ERR, &wc);
    CHECK(ibv_post_send(qp, &send, &bad_send) == 0);
    take(cq, 33, IBV_WC_WR_FLUSH_ERR, &wc);
    CHECK(ibv_post_recv(qp, &first, &bad_recv) == 0);
    take(cq, 31, IBV_WC_WR_FLUSH_ERR, &wc);
    CHECK(ibv_modify_qp(qp, &modify, IBV_QP_STATE) == 0);
    CHECK(ibv_destroy_qp(qp) == 0);
}

static void check_queues(void) {
    FAILS_WITH(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
    FAILS_WITH(ibv_create_cq(context, 1 << 30, NULL, NULL, 0), EINVAL);
    FAILS_WITH(ibv_create_cq(context, 8, NULL, NULL, 1), EINVAL);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, &checks, channel, 0), *found;
    void *found_context;
    CHECK(channel && cq && cq->cqe == 8);
    set_nonblocking(channel->fd);
    MINUS_ONE_WITH(ibv_get_cq_event(channel, &found, &found_context), EAGAIN);
    CHECK(ibv_destroy_comp_channel(channel) == EBUSY);

    struct ibv_qp_init_attr attr = queue_attr(cq);
    attr.qp_type = IBV_QPT_UD;
    FAILS_WITH(ibv_create_qp(pd, &attr), EOPNOTSUPP);
    attr = queue_attr(cq);
    attr.cap.max_send_wr = 1 << 20;
    FAILS_WITH(ibv_create_qp(pd, &attr), EINVAL);
    attr = queue_attr(NULL);
    FAILS_WITH(ibv_create_qp(pd, &attr), EINVAL);
    attr = queue_attr(cq);
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    CHECK(qp && ibv_destroy_cq(cq) == EBUSY);

    struct ibv_sge element = {.addr = (uintptr_t)buffer, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .sg_list = &element, .num_sge = 1}, *bad_send = NULL;
    CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL && bad_send == &send);
    struct ibv_recv_wr many = {.wr_id = 2, .sg_list = &element, .num_sge = 1000};
    struct ibv_recv_wr good = {.wr_id = 1, .sg_list = &element, .num_sge = 1, .next = &many}, *bad_recv = NULL;
    CHECK(ibv_post_recv(qp, &good, &bad_recv) == EINVAL && bad_recv == &many);
    good.next = NULL;
    int posted = 1;
    while (ibv_post_recv(qp, &good, &bad_recv) == 0) posted++;
    CHECK(posted == 8 && bad_recv == &good);
    struct ibv_qp_attr modify = {.qp_state = IBV_QPS_RESET};
    CHECK(ibv_modify_qp(qp, &modify, IBV_QP_STATE) == EINVAL);
    modify.qp_state = IBV_QPS_INIT;
    CHECK(ibv_modify_qp(qp, &modify, IBV_QP_STATE) == 0 && qp->state == IBV_QPS_INIT);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(qp) == EINVAL);
    CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL && ibv_post_recv(qp, &good, &bad_recv) == EINVAL);
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
    check_states_without_connection(cq);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(cq) == EINVAL && ibv_poll_cq(cq, 1, &wc) < 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_destroy_comp_channel(channel) == EINVAL);
}

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    if (event->event != type) fprintf(stderr, "got %s (%d)\n", rdma_event_str(event->event), event->status);
    CHECK(event->event == type);
    return event;
}

static void check_operations(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_qp *peer, struct ibv_cq *peer_cq) {
    uint64_t there = (uintptr_t)buffer + 32768;
    struct ibv_sge element = {.addr = (uintptr_t)buffer, .length = 1000, .lkey = mr->lkey}, parts[3];
    struct ibv_send_wr wr = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sg_list = &element, .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(77)}, *bad;
    struct ibv_wc wc;
    wr.wr.rdma.remote_addr = there;
    wr.wr.rdma.rkey = mr->rkey;
    memset(buffer, 'w', 1000);
    struct ibv_recv_wr recv = {.wr_id = 9}, *bad_recv;
    CHECK(ibv_post_recv(peer, &recv, &bad_recv) == 0 && ibv_post_send(qp, &wr, &bad) == 0);
    take(peer_cq, 9, IBV_WC_SUCCESS, &wc);
    CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == htonl(77) && wc.byte_len == 1000);
    CHECK(buffer[32768] == 'w' && buffer[33767] == 'w');
    take(cq, 1, IBV_WC_SUCCESS, &wc);

    /* Inline bytes of several elements, in a list behind an unsignalled Send. */
    memcpy(buffer, "abcdef", 6);
    for (int part = 0; part < 3; part++)
        parts[part] = (struct ibv_sge){.addr = (uintptr_t)buffer + 4 - 2 * part, .length = 2};
    struct ibv_send_wr second = {.wr_id = 3, .opcode = IBV_WR_SEND, .sg_list = parts, .num_sge = 3,
                                 .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED};
    struct ibv_send_wr first = {.wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = &element, .num_sge = 1, .next = &second};
    struct ibv_sge sink = {.addr = there, .length = 4096, .lkey = mr->lkey};
    for (int id = 10; id < 12; id++) {
        recv = (struct ibv_recv_wr){.wr_id = id, .sg_list = &sink, .num_sge = 1};
        CHECK(ibv_post_recv(peer, &recv, &bad_recv) == 0);
    }
    CHECK(ibv_post_send(qp, &first, &bad) == 0);
    take(peer_cq, 10, IBV_WC_SUCCESS, &wc);
    CHECK(wc.byte_len == 1000);
    take(peer_cq, 11, IBV_WC_SUCCESS, &wc);
    CHECK(wc.byte_len == 6 && !memcmp((char *)there, "efcdab", 6));
    take(cq, 3, IBV_WC_SUCCESS, &wc);

    /* Refused requests name themselves; those before them are posted. */
    second.opcode = IBV_WR_SEND_WITH_IMM;
    second.num_sge = 1;
    first = (struct ibv_send_wr){.wr_id = 4, .opcode = IBV_WR_RDMA_READ, .sg_list = &element, .num_sge = 1,
                                 .send_flags = IBV_SEND_SIGNALED, .next = &second};
    first.wr.rdma.remote_addr = there;
    first.wr.rdma.rkey = mr->rkey;
    CHECK(ibv_post_send(qp, &first, &bad) == EOPNOTSUPP && bad == &second);
    take(cq, 4, IBV_WC_SUCCESS, &wc);
    CHECK(wc.opcode == IBV_WC_RDMA_READ && !memcmp(buffer, "efcdab", 6));

    uint64_t *word = (uint64_t *)there, *before = (uint64_t *)buffer;
    *word = 40;
    element.length = 8;
    struct ibv_send_wr add = {.wr_id = 5, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &element, .num_sge = 1,
                              .send_flags = IBV_SEND_SIGNALED};
    add.wr.atomic.remote_addr = there;
    add.wr.atomic.rkey = mr->rkey;
    add.wr.atomic.compare_add = 2;
    CHECK(ibv_post_send(qp, &add, &bad) == 0);
    take(cq, 5, IBV_WC_SUCCESS, &wc);
    CHECK(*before == 40 && *(volatile uint64_t *)word == 42);
}

static void check_connection(const char *address) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(7000)}, elsewhere = here;
    CHECK(inet_pton(AF_INET, address, &here.sin_addr) == 1 && inet_pton(AF_INET, "192.0.2.77", &elsewhere.sin_addr) == 1);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener, *id, *other;
    struct rdma_cm_event *event;
    MINUS_ONE_WITH(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), EPROTONOSUPPORT);
    CHECK(rdma_create_id(channel, &listener, &checks, RDMA_PS_TCP) == 0 && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP) == 0);
    MINUS_ONE_WITH(rdma_bind_addr(listener, (struct sockaddr *)&elsewhere), EADDRNOTAVAIL);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&here) == 0 && rdma_listen(listener, 4) == 0);
    MINUS_ONE_WITH(rdma_bind_addr(other, (struct sockaddr *)&here), EADDRINUSE);
    CHECK(rdma_destroy_id(other) == 0);
    MINUS_ONE_WITH(rdma_destroy_id(other), EINVAL);
    MINUS_ONE_WITH(rdma_connect(id, NULL), EINVAL);
    MINUS_ONE_WITH(rdma_disconnect(id), EINVAL);

    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000) == 0);
    rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    CHECK(id->verbs && rdma_resolve_route(id, 1000) == 0);
    rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0), *peer_cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = queue_attr(cq);
    CHECK(rdma_create_qp(id, pd, &attr) == 0 && id->qp);
    MINUS_ONE_WITH(rdma_create_qp(id, pd, &attr), EINVAL);
    struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 6, .responder_resources = 4, .initiator_depth = 3};
    CHECK(rdma_connect(id, &param) == 0);
    event = next_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *child = event->id;
    CHECK(event->listen_id == listener && child->context == &checks && child != listener);
    CHECK(event->param.conn.private_data_len == 6 && !strcmp(event->param.conn.private_data, "hello"));
    CHECK(event->param.conn.responder_resources == 3 && event->param.conn.initiator_depth == 4);
    attr = queue_attr(peer_cq);
    CHECK(rdma_create_qp(child, pd, &attr) == 0);
    param = (struct rdma_conn_param){.private_data = "yes", .private_data_len = 4, .responder_resources = 3, .initiator_depth = 4};
    CHECK(rdma_accept(child, &param) == 0);
    MINUS_ONE_WITH(rdma_accept(child, &param), EINVAL);
    rdma_ack_cm_event(event);
    /* One channel for both sides: their events arrive in any order. */
    for (int side = 0; side < 2; side++) {
        event = next_event(channel, RDMA_CM_EVENT_ESTABLISHED);
        CHECK(event->id == child || (event->id == id && !strcmp(event->param.conn.private_data, "yes")));
        rdma_ack_cm_event(event);
    }
    CHECK(rdma_get_src_port(id) != 0 && rdma_get_dst_port(id) == htons(7000));
    check_operations(id->qp, cq, child->qp, peer_cq);

    /* A receive that is posted when the connection ends is flushed. */
    struct ibv_recv_wr recv = {.wr_id = 20}, *bad;
    struct ibv_wc wc;
    CHECK(ibv_post_recv(child->qp, &recv, &bad) == 0);
    pid_t process = fork();
    if (process == 0) _exit(ibv_query_device(context, &(struct ibv_device_attr){0}) == EIO ? 0 : 1);
    int status;
    CHECK(waitpid(process, &status, 0) == process && status == 0);
    CHECK(rdma_disconnect(id) == 0);
    for (int side = 0; side < 2; side++) rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_DISCONNECTED));
    take(peer_cq, 20, IBV_WC_WR_FLUSH_ERR, &wc);
    set_nonblocking(channel->fd);
    MINUS_ONE_WITH(rdma_get_cm_event(channel, &event), EAGAIN);

    rdma_destroy_qp(id);
    rdma_destroy_qp(child);
    CHECK(!id->qp && rdma_destroy_id(id) == 0 && rdma_destroy_id(child) == 0 && rdma_destroy_id(listener) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(peer_cq) == 0);
    rdma_destroy_event_channel(channel);
}

/* Nobody listens: the attempt is refused. */
static void check_refusal(const char *address) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(7001)};
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    CHECK(inet_pton(AF_INET, address, &there.sin_addr) == 1 && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&there, 1000) == 0);
    rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    CHECK(rdma_resolve_route(id, 1000) == 0);
    rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = queue_attr(cq);
    CHECK(rdma_create_qp(id, NULL, &attr) == 0 && rdma_connect(id, NULL) == 0);
    struct rdma_cm_event *event = next_event(channel, RDMA_CM_EVENT_REJECTED);
    CHECK(event->status == -ECONNREFUSED);
    rdma_ack_cm_event(event);
    rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0 && ibv_destroy_cq(cq) == 0);
    rdma_destroy_event_channel(channel);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    check_device();
    check_memory();
    check_queues();
    check_connection(arguments[1]);
    check_refusal(arguments[1]);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_dealloc_pd(pd) == EINVAL);
    CHECK(ibv_close_device(context) == 0);
    MINUS_ONE_WITH(ibv_close_device(context), EINVAL);
    printf("calls: %d checks passed\n", checks);
    return 0;
}
