/*
 * Shared receive queues: attributes, the limit and its event, and destruction. Run by scripts/verbs-programs.sh; takes the
 * device's address as its argument. Prints `shared_receives: N checks passed`.
 */
#include <sched.h>

#include "pair.h"

static char buffer[4096];
static struct ibv_mr *mr;

static struct ibv_srq *create(int receives) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = receives, .max_sge = 1, .srq_limit = 99}};
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    CHECK(srq && (int)init.attr.max_wr >= receives && init.attr.max_sge >= 1);
    return srq;
}

static unsigned limit_of(struct ibv_srq *srq) {
    struct ibv_srq_attr attr = {0};
    CHECK(ibv_query_srq(srq, &attr) == 0);
    return attr.srq_limit;
}

static void set_limit(struct ibv_srq *srq, unsigned limit) {
    struct ibv_srq_attr attr = {.srq_limit = limit};
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
}

static void post_shared(struct ibv_srq *srq, int count) {
    for (int id = 0; id < count; id++) {
        struct ibv_sge element = {.addr = (uintptr_t)buffer, .length = 64, .lkey = mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &element, .num_sge = 1}, *bad;
        CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
    }
}

/* ibv_create_srq(3), ibv_modify_srq(3), ibv_query_srq(3), ibv_destroy_srq(3): errors change nothing. */
static void check_attributes(void) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 1 << 30, .max_sge = 1}};
    CHECK((errno = 0, !ibv_create_srq(pd, &init)) && errno == EINVAL);
    init.attr = (struct ibv_srq_attr){.max_wr = 8, .max_sge = 1000};
    CHECK((errno = 0, !ibv_create_srq(pd, &init)) && errno == EINVAL);
    CHECK((errno = 0, !ibv_create_srq(NULL, &init)) && errno == EINVAL && (errno = 0, !ibv_create_srq(pd, NULL)) && errno == EINVAL);
    struct ibv_srq *srq = create(10);
    struct ibv_srq_attr attr;
    CHECK(ibv_query_srq(srq, &attr) == 0 && attr.max_wr >= 10 && attr.srq_limit == 0);
    post_shared(srq, 9);
    set_limit(srq, 4);
    CHECK(limit_of(srq) == 4);
    struct ibv_srq_attr more = {.max_wr = 20, .srq_limit = 5}, high = {.srq_limit = attr.max_wr + 1};
    CHECK(ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR) == EOPNOTSUPP && limit_of(srq) == 4);
    CHECK(ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == EOPNOTSUPP && limit_of(srq) == 4);
    CHECK(ibv_modify_srq(srq, &high, IBV_SRQ_LIMIT) == EINVAL && limit_of(srq) == 4);
    CHECK(ibv_modify_srq(srq, &more, 0) == 0 && limit_of(srq) == 4);
    struct ibv_async_event event;
    CHECK(async_event(context, 0, &event) == -1);
    set_limit(srq, 10);
    CHECK(async_event(context, 1000, &event) == IBV_EVENT_SRQ_LIMIT_REACHED && limit_of(srq) == 0);
    CHECK(ibv_destroy_srq(srq) == 0 && ibv_destroy_srq(srq) == EINVAL && ibv_query_srq(srq, &attr) == EINVAL);
}

/* ibv_modify_srq(3): one event, at the context of the queue, when fewer receives than the limit are left; then the limit is 0
 * until it is set again. */
static void check_limit(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *other = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    struct ibv_srq *srq = create(16);
    struct queues queues = USUAL;
    queues.far_srq = srq;
    struct pair pair = open_pair_with(7400, queues);
    struct ibv_async_event event;
    post_shared(srq, 6);
    set_limit(srq, 4);
    CHECK(limit_of(srq) == 4 && ibv_destroy_srq(srq) == EBUSY);
    int events = 0;
    for (int sent = 0; sent < 4; sent++) {
        CHECK(post(pair.near->qp, IBV_WR_SEND, sent, mr, 8, 0, 0) == 0 && take(pair.near_cq, sent).status == IBV_WC_SUCCESS);
        CHECK(take(pair.far_cq, sent).status == IBV_WC_SUCCESS);
        int left = 5 - sent, type = async_event(context, left < 4 && !events ? 1000 : 0, &event);
        if (type < 0) continue;
        CHECK(type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq && left < 4 && ++events == 1);
        CHECK(limit_of(srq) == 0);
    }
    CHECK(events == 1);
    /* Above what is left: at once. */
    set_limit(srq, 16);
    CHECK(async_event(context, 1000, &event) == IBV_EVENT_SRQ_LIMIT_REACHED && limit_of(srq) == 0);
    CHECK(async_event(context, 0, &event) == -1 && async_event(other, 0, &event) == -1);
    CHECK(async_event(pair.near->verbs, 0, &event) == -1);
    close_pair(&pair);
    /* The end of a queue pair with shared receives is an event of that queue pair's context; none is left of a destroyed one. */
    CHECK(async_event(other, 0, &event) == -1 && async_event(context, 0, &event) == -1);
    CHECK(ibv_destroy_srq(srq) == 0 && ibv_close_device(other) == 0);
}

/* The limit is set again while the event of the one before may be on its way: that one is reported once or not at all, and the
 * new one exactly once. */
static void check_arming_again(void) {
    struct ibv_srq *srq = create(16);
    struct queues queues = USUAL;
    queues.far_srq = srq;
    struct pair pair = open_pair_with(7401, queues);
    struct ibv_async_event event;
    for (int round = 0; round < 200; round++) {
        post_shared(srq, 6);
        set_limit(srq, 4);
        for (int sent = 0; sent < 3; sent++) CHECK(post(pair.near->qp, IBV_WR_SEND, sent, mr, 8, 0, 0) == 0);
        for (int turns = 0; turns < round % 20; turns++) sched_yield();
        set_limit(srq, 2);
        for (int sent = 0; sent < 3; sent++) {
            CHECK(take(pair.near_cq, sent).status == IBV_WC_SUCCESS && take(pair.far_cq, sent).status == IBV_WC_SUCCESS);
        }
        int before = 0;
        while (async_event(context, 0, &event) == IBV_EVENT_SRQ_LIMIT_REACHED) before++;
        CHECK(before <= 1 && limit_of(srq) == 2);
        for (int sent = 3; sent < 6; sent++) {
            CHECK(post(pair.near->qp, IBV_WR_SEND, sent, mr, 8, 0, 0) == 0);
            CHECK(take(pair.near_cq, sent).status == IBV_WC_SUCCESS && take(pair.far_cq, sent).status == IBV_WC_SUCCESS);
        }
        CHECK(async_event(context, 1000, &event) == IBV_EVENT_SRQ_LIMIT_REACHED && limit_of(srq) == 0);
        CHECK(async_event(context, 0, &event) == -1);
    }
    close_pair(&pair);
    CHECK(ibv_destroy_srq(srq) == 0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    CHECK((mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE)));
    check_attributes();
    check_limit();
    check_arming_again();
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
    printf("shared_receives: %d checks passed\n", checks);
    return 0;
}
