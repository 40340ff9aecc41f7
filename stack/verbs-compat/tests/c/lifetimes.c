/*
 * Each kind of object: destroyed twice, destroyed while something uses it, used after its end, and a pointer that is no object
 * of its kind. All are errors, and change nothing. Run by scripts/verbs-programs.sh; takes the device's address as its argument.
 * Prints `lifetimes: N checks passed`.
 */
#include <rdma/rdma_verbs.h>

#include "connect.h"

/* A call that returns a null pointer and sets errno. */
#define NULL_WITH(call, error) CHECK((errno = 0, !(call)) && errno == (error))

enum { EVERYTHING = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND };

static char buffer[4096];

/* None is an object's: null, an address where nothing is mapped, an odd one, the program's memory, the inside of an object. */
static void *others[6];

static void set_others(void *object) {
    void *all[] = {NULL, (void *)0x10000, (void *)0x10001, (void *)-64l, buffer, (char *)object + 8};
    memcpy(others, all, sizeof all);
}

#define EACH_OTHER(...) \
    for (int at = 0; at < 6; at++) { void *other = others[at]; __VA_ARGS__; }

static struct ibv_cq *new_cq(struct ibv_comp_channel *channel) {
    struct ibv_cq *cq = ibv_create_cq(context, 8, &checks, channel, 0);
    CHECK(cq);
    return cq;
}

static struct ibv_qp *new_qp(struct ibv_pd *in, struct ibv_cq *cq, struct ibv_srq *srq) {
    struct ibv_qp_init_attr attr = queue_attr(cq, USUAL);
    attr.srq = srq;
    return ibv_create_qp(in, &attr);
}

static void check_contexts(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *second = ibv_open_device(list[0]);
    struct ibv_device_attr attr;
    struct ibv_async_event event;
    union ibv_gid gid;
    CHECK(second && second != context && ibv_query_device(second, &attr) == 0);
    set_others(second);
    EACH_OTHER(MINUS_ONE_WITH(ibv_close_device(other), EINVAL); NULL_WITH(ibv_alloc_pd(other), EINVAL);
               CHECK(ibv_query_device(other, &attr) == EINVAL));
    EACH_OTHER(NULL_WITH(ibv_create_comp_channel(other), EINVAL); NULL_WITH(ibv_create_cq(other, 8, NULL, NULL, 0), EINVAL);
               MINUS_ONE_WITH(ibv_get_async_event(other, &event), EINVAL));
    CHECK(ibv_close_device(second) == 0);
    MINUS_ONE_WITH(ibv_close_device(second), EINVAL);
    NULL_WITH(ibv_alloc_pd(second), EINVAL);
    NULL_WITH(ibv_create_comp_channel(second), EINVAL);
    NULL_WITH(ibv_create_cq(second, 8, NULL, NULL, 0), EINVAL);
    CHECK(ibv_query_device(second, &attr) == EINVAL);
    MINUS_ONE_WITH(ibv_query_gid(second, 1, 0, &gid), EINVAL);
    MINUS_ONE_WITH(ibv_get_async_event(second, &event), EINVAL);
    ibv_free_device_list(list);
    CHECK(ibv_query_device(context, &attr) == 0);
}

static void check_domains_and_regions(void) {
    struct ibv_pd *own = ibv_alloc_pd(context);
    struct ibv_mr *mr = ibv_reg_mr(own, buffer, sizeof buffer, EVERYTHING);
    CHECK(own && mr && ibv_dealloc_pd(own) == EBUSY && ibv_dealloc_pd(own) == EBUSY);
    set_others(own);
    EACH_OTHER(CHECK(ibv_dealloc_pd(other) == EINVAL);
               NULL_WITH(ibv_reg_mr(other, buffer, sizeof buffer, EVERYTHING), EINVAL));
    set_others(mr);
    EACH_OTHER(CHECK(ibv_dereg_mr(other) == EINVAL));
    CHECK(ibv_dereg_mr((void *)own) == EINVAL && ibv_dealloc_pd((void *)mr) == EINVAL);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(mr) == EINVAL);
    CHECK((errno = 0, ibv_rereg_mr(mr, 0, own, buffer, 8, 0)) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
    CHECK(ibv_dealloc_pd(own) == 0 && ibv_dealloc_pd(own) == EINVAL);
    NULL_WITH(ibv_reg_mr(own, buffer, sizeof buffer, EVERYTHING), EINVAL);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
    NULL_WITH(ibv_create_srq(own, &shared), EINVAL);
    struct ibv_cq *cq = new_cq(NULL);
    NULL_WITH(new_qp(own, cq, NULL), EINVAL);
    CHECK(ibv_destroy_cq(cq) == 0);
}

/* A window keeps its domain, and its region while it is bound. */
static void check_windows(void) {
    struct ibv_pd *own = ibv_alloc_pd(context);
    struct ibv_mw *mw = ibv_alloc_mw(own, IBV_MW_TYPE_1);
    CHECK(mw && ibv_dealloc_pd(own) == EBUSY && ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(mw) == EINVAL);
    CHECK(ibv_dealloc_pd(own) == 0);
    struct pair pair = open_pair(7900);
    struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, EVERYTHING);
    struct ibv_mw_bind bind = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED};
    bind.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)buffer, 64, IBV_ACCESS_REMOTE_WRITE};
    CHECK((mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1)) && ibv_dealloc_mw(mw) == 0 && ibv_bind_mw(pair.near->qp, mw, &bind) == EINVAL);
    CHECK((mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1)) && ibv_bind_mw(pair.near->qp, mw, &bind) == 0);
    CHECK(take(pair.near_cq, 1).status == IBV_WC_SUCCESS && ibv_dereg_mr(mr) == EBUSY && ibv_dereg_mr(mr) == EBUSY);
    /* It still works: the region is unchanged. */
    CHECK(post(pair.far->qp, IBV_WR_RDMA_WRITE, 2, mr, 8, (uintptr_t)buffer, mw->rkey) == 0);
    CHECK(take(pair.far_cq, 2).status == IBV_WC_SUCCESS && ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
    struct ibv_mw *next = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    CHECK(ibv_bind_mw(pair.near->qp, next, &bind) == EINVAL && ibv_dealloc_mw(next) == 0);
    close_pair(&pair);
}

static void check_completion_queues(void) {
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = new_cq(channel), *found;
    void *found_context;
    struct ibv_wc wc;
    CHECK(channel && ibv_destroy_comp_channel(channel) == EBUSY);
    set_others(channel);
    EACH_OTHER(CHECK(ibv_destroy_comp_channel(other) == EINVAL);
               MINUS_ONE_WITH(ibv_get_cq_event(other, &found, &found_context), EINVAL);
               if (other) NULL_WITH(ibv_create_cq(context, 8, NULL, other, 0), EINVAL));
    set_others(cq);
    EACH_OTHER(CHECK(ibv_destroy_cq(other) == EINVAL && ibv_resize_cq(other, 8) == EINVAL);
               NULL_WITH(new_qp(pd, other, NULL), EINVAL); ibv_ack_cq_events(other, 1));
    struct ibv_qp *qp = new_qp(pd, cq, NULL);
    CHECK(qp && ibv_destroy_cq(cq) == EBUSY && ibv_destroy_cq(cq) == EBUSY && ibv_resize_cq(cq, 16) == 0);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(cq) == EINVAL);
    CHECK(ibv_poll_cq(cq, 1, &wc) == -EINVAL && ibv_req_notify_cq(cq, 0) == EINVAL && ibv_resize_cq(cq, 8) == EINVAL);
    NULL_WITH(new_qp(pd, cq, NULL), EINVAL);
    ibv_ack_cq_events(cq, 1);
    CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_destroy_comp_channel(channel) == EINVAL);
    MINUS_ONE_WITH(ibv_get_cq_event(channel, &found, &found_context), EINVAL);
    NULL_WITH(ibv_create_cq(context, 8, NULL, channel, 0), EINVAL);
}

static void check_queue_pairs(void) {
    struct ibv_cq *cq = new_cq(NULL);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    struct ibv_srq_attr limits = {.srq_limit = 1};
    struct ibv_qp *qp = new_qp(pd, cq, srq);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    struct ibv_qp_init_attr init;
    struct ibv_recv_wr recv = {.wr_id = 1}, *bad;
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;
    CHECK(srq && qp && ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_srq(srq) == EBUSY && ibv_post_srq_recv(srq, &recv, &bad) == 0);
    set_others(srq);
    EACH_OTHER(CHECK(ibv_destroy_srq(other) == EINVAL && ibv_modify_srq(other, &limits, IBV_SRQ_LIMIT) == EINVAL);
               CHECK(ibv_query_srq(other, &limits) == EINVAL); if (other) NULL_WITH(new_qp(pd, cq, other), EINVAL));
    set_others(qp);
    EACH_OTHER(CHECK(ibv_destroy_qp(other) == EINVAL && ibv_modify_qp(other, &attr, IBV_QP_STATE) == EINVAL);
               CHECK(ibv_query_qp(other, &attr, 0, &init) == EINVAL));
    EACH_OTHER(NULL_WITH(new_qp(other, cq, NULL), EINVAL));
    attr.qp_state = IBV_QPS_INIT;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_qp(qp) == EINVAL && ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
    CHECK(ibv_query_qp(qp, &attr, 0, &init) == EINVAL && ibv_post_recv(qp, &recv, &bad) == EINVAL && bad == &recv);
    CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL && bad_send == &send);
    CHECK(ibv_destroy_srq(srq) == 0 && ibv_destroy_srq(srq) == EINVAL && ibv_post_srq_recv(srq, &recv, &bad) == EINVAL);
    CHECK(ibv_query_srq(srq, &limits) == EINVAL && ibv_modify_srq(srq, &limits, IBV_SRQ_LIMIT) == EINVAL);
    NULL_WITH(new_qp(pd, cq, srq), EINVAL);
    CHECK(ibv_destroy_cq(cq) == 0);
}

/* An acknowledged event whose object is gone, or that never was one. */
static void check_events(void) {
    struct ibv_cq *cq = new_cq(NULL);
    struct ibv_qp *qp = new_qp(pd, cq, NULL);
    set_others(qp);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    struct ibv_async_event event = {.element.qp = qp, .event_type = IBV_EVENT_QP_FATAL};
    ibv_ack_async_event(&event);
    event = (struct ibv_async_event){.element.cq = cq, .event_type = IBV_EVENT_CQ_ERR};
    ibv_ack_async_event(&event);
    ibv_ack_async_event(NULL);
    EACH_OTHER(for (int type = IBV_EVENT_CQ_ERR; type <= IBV_EVENT_GID_CHANGE; type++) {
        event = (struct ibv_async_event){.element.qp = other, .event_type = type};
        ibv_ack_async_event(&event);
    });
}

static void check_identifiers(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = resolved_to(channel, 7901);
    struct rdma_cm_event *event;
    struct ibv_qp_init_attr attr = queue_attr(NULL, USUAL);
    /* Identifiers keep their channel. */
    rdma_destroy_event_channel(channel);
    CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    MINUS_ONE_WITH(rdma_get_cm_event(channel, &event), EAGAIN);
    set_others(id);
    EACH_OTHER(MINUS_ONE_WITH(rdma_destroy_id(other), EINVAL); MINUS_ONE_WITH(rdma_connect(other, NULL), EINVAL);
               MINUS_ONE_WITH(rdma_create_qp(other, NULL, &attr), EINVAL));
    EACH_OTHER(MINUS_ONE_WITH(rdma_listen(other, 1), EINVAL); MINUS_ONE_WITH(rdma_disconnect(other), EINVAL);
               MINUS_ONE_WITH(rdma_ack_cm_event(other), EINVAL); rdma_destroy_qp(other); rdma_destroy_srq(other));
    set_others(channel);
    EACH_OTHER(rdma_destroy_event_channel(other);
               if (other) MINUS_ONE_WITH(rdma_create_id(other, &id, NULL, RDMA_PS_TCP), EINVAL));
    CHECK(rdma_destroy_id(id) == 0);
    MINUS_ONE_WITH(rdma_destroy_id(id), EINVAL);
    MINUS_ONE_WITH(rdma_listen(id, 1), EINVAL);
    MINUS_ONE_WITH(rdma_create_qp(id, NULL, &attr), EINVAL);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(channel);
    MINUS_ONE_WITH(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), EINVAL);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    check_contexts();
    check_domains_and_regions();
    check_windows();
    check_completion_queues();
    check_queue_pairs();
    check_events();
    check_identifiers();
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    printf("lifetimes: %d checks passed\n", checks);
    return 0;
}
