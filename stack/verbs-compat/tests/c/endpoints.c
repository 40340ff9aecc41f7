/*
 * rdma_create_ep, rdma_get_request, rdma_create_qp, rdma_create_srq and synchronous identifiers, against their manual pages.
 * Takes the device's address. Prints `endpoints: N checks passed`.
 */
#include <rdma/rdma_verbs.h>

#include "connect.h"

static struct rdma_addrinfo *look_up(int flags, const char *port) {
    struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
    CHECK(rdma_getaddrinfo(address, port, &hints, &found) == 0);
    return found;
}

/* What a refused queue pair has created before is gone, and the identifier is as it was. */
static void check_refused_queue_pairs(void) {
    struct rdma_cm_id *id = resolved_to(rdma_create_event_channel(), 7400), *idle = new_id(rdma_create_event_channel());
    int before = descriptors();
    struct ibv_qp_init_attr attr;
    MINUS_ONE_WITH(rdma_create_qp(id, NULL, NULL), EINVAL);
    MINUS_ONE_WITH((attr = queue_attr(NULL, USUAL), rdma_create_qp(idle, NULL, &attr)), EINVAL);
    for (int turn = 0; turn < 1000; turn++) {
        attr = queue_attr(NULL, USUAL);
        if (turn % 4 == 0) attr.cap.max_send_wr = 1 << 20;
        if (turn % 4 == 1) attr.cap.max_send_sge = 1000;
        if (turn % 4 == 2) attr.cap.max_recv_wr = 1 << 30;
        if (turn % 4 == 3) attr.srq = (struct ibv_srq *)&attr;
        MINUS_ONE_WITH(rdma_create_qp(id, NULL, &attr), EINVAL);
        CHECK(!id->qp && !id->send_cq && !id->recv_cq && !id->send_cq_channel && !id->recv_cq_channel);
        CHECK(!attr.send_cq && !attr.recv_cq);
    }
    attr = queue_attr(NULL, USUAL);
    attr.qp_type = IBV_QPT_UD;
    MINUS_ONE_WITH(rdma_create_qp(id, NULL, &attr), EOPNOTSUPP);
    CHECK(descriptors() == before);
    /* The program's own queues are used, and stay. */
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
    attr = queue_attr(cq, USUAL);
    CHECK(cq && rdma_create_qp(id, NULL, &attr) == 0 && !id->send_cq && !id->recv_cq && attr.send_cq == cq);
    CHECK(id->qp->send_cq == cq && id->qp->pd == id->pd && id->qp->state == IBV_QPS_INIT && attr.cap.max_inline_data >= 64);
    attr = queue_attr(NULL, USUAL);
    MINUS_ONE_WITH(rdma_create_qp(id, NULL, &attr), EINVAL);
    rdma_destroy_qp(id);
    CHECK(ibv_destroy_cq(cq) == 0);
    for (int turn = 0; turn < 200; turn++) {
        add_queue_pair(id);
        CHECK(id->send_cq->channel == id->send_cq_channel && id->send_cq->cq_context == id);
        rdma_destroy_qp(id);
    }
    CHECK(descriptors() == before);
    rdma_destroy_qp(id);
    destroy(id);
    destroy(idle);
}

static void check_shared_receive_queues(void) {
    struct rdma_cm_id *id = resolved_to(rdma_create_event_channel(), 7401), *idle = new_id(rdma_create_event_channel());
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 1}}, large = {.attr = {.max_wr = 1 << 30}};
    MINUS_ONE_WITH(rdma_create_srq(id, NULL, NULL), EINVAL);
    MINUS_ONE_WITH(rdma_create_srq(idle, NULL, &attr), EINVAL);
    CHECK((errno = 0, rdma_create_srq(id, NULL, &large)) == -1 && errno && !id->srq);
    CHECK(rdma_create_srq(id, NULL, &attr) == 0 && id->srq && id->srq->pd == id->pd && attr.attr.max_wr >= 8);
    MINUS_ONE_WITH(rdma_create_srq(id, NULL, &attr), EINVAL);
    /* A queue pair uses it without being told to. */
    add_queue_pair(id);
    CHECK(id->qp->srq == id->srq);
    rdma_destroy_srq(id);
    CHECK(id->srq);
    rdma_destroy_qp(id);
    rdma_destroy_srq(id);
    CHECK(!id->srq && rdma_create_srq(id, NULL, &attr) == 0);
    CHECK(ibv_destroy_srq(id->srq) == 0);
    rdma_destroy_ep(idle);
    struct rdma_event_channel *channel = id->channel;
    rdma_destroy_ep(id);
    rdma_destroy_event_channel(channel);
}

static void check_creation(void) {
    struct rdma_addrinfo *active = look_up(0, "7402"), *passive = look_up(RAI_PASSIVE, "7402"), wrong = *active;
    struct rdma_cm_id *id = (struct rdma_cm_id *)&wrong;
    struct ibv_qp_init_attr attr = queue_attr(NULL, USUAL), refused = attr;
    int before = descriptors();
    refused.cap.max_send_sge = 1000;
    MINUS_ONE_WITH(rdma_create_ep(NULL, active, NULL, NULL), EINVAL);
    MINUS_ONE_WITH(rdma_create_ep(&id, NULL, NULL, NULL), EINVAL);
    wrong.ai_port_space = RDMA_PS_UDP;
    MINUS_ONE_WITH(rdma_create_ep(&id, &wrong, NULL, NULL), EPROTONOSUPPORT);
    for (int turn = 0; turn < 50; turn++) MINUS_ONE_WITH(rdma_create_ep(&id, active, NULL, &refused), EINVAL);
    CHECK(id == (struct rdma_cm_id *)&wrong && descriptors() == before);
    CHECK(rdma_create_ep(&id, active, NULL, NULL) == 0 && !id->qp && rdma_get_dst_port(id) == htons(7402));
    rdma_destroy_ep(id);
    CHECK(rdma_create_ep(&id, active, NULL, &attr) == 0 && id->qp && id->qp->qp_type == IBV_QPT_RC);
    rdma_destroy_ep(id);
    CHECK(rdma_create_ep(&id, passive, NULL, &refused) == 0 && !id->qp && rdma_get_src_port(id) == htons(7402));
    struct rdma_cm_id *other;
    MINUS_ONE_WITH(rdma_create_ep(&other, passive, NULL, NULL), EADDRINUSE);
    /* It is synchronous, and does not listen yet. */
    MINUS_ONE_WITH(rdma_get_request(id, &other), EINVAL);
    rdma_destroy_ep(id);
    CHECK(descriptors() == before);
    rdma_freeaddrinfo(active);
    rdma_freeaddrinfo(passive);
}

/* A request whose queue pair is refused is rejected, and leaves nothing: the next one is served. */
static void check_requests(void) {
    struct rdma_addrinfo *passive = look_up(RAI_PASSIVE, "7403");
    struct ibv_qp_init_attr refused = queue_attr(NULL, USUAL), attr = refused;
    struct rdma_cm_id *listener, *far = NULL;
    refused.cap.max_send_sge = 1000;
    CHECK(rdma_create_ep(&listener, passive, NULL, &refused) == 0 && rdma_listen(listener, 4) == 0);
    int before = descriptors();
    for (int turn = 0; turn < 3; turn++) {
        struct rdma_cm_id *id = connect_to(7403);
        CHECK(has_event(listener->channel, 5000));
        MINUS_ONE_WITH(rdma_get_request(listener, NULL), EINVAL);
        MINUS_ONE_WITH(rdma_get_request(listener, &far), EINVAL);
        CHECK(!far && expect_in(id->channel, RDMA_CM_EVENT_REJECTED) == id);
        destroy(id);
    }
    CHECK(descriptors() == before);
    rdma_destroy_ep(listener);
    CHECK(rdma_create_ep(&listener, passive, NULL, &attr) == 0 && rdma_listen(listener, 4) == 0);
    struct rdma_cm_id *id = connect_to(7403);
    CHECK(rdma_get_request(listener, &far) == 0 && far->qp && far->event && far->channel != listener->channel);
    CHECK(far->event->event == RDMA_CM_EVENT_CONNECT_REQUEST && far->event->param.conn.initiator_depth == 4);
    /* The call waits for the connection, whose event is the identifier's. */
    CHECK(rdma_accept(far, &far->event->param.conn) == 0 && far->event->event == RDMA_CM_EVENT_ESTABLISHED);
    expect_in(id->channel, RDMA_CM_EVENT_ESTABLISHED);
    /* The end too, and it does not wait for a second one. */
    CHECK(rdma_disconnect(far) == 0 && far->event->event == RDMA_CM_EVENT_DISCONNECTED);
    CHECK(rdma_disconnect(far) == 0 && expect_in(id->channel, RDMA_CM_EVENT_DISCONNECTED) == id);
    rdma_destroy_ep(far);
    destroy(id);
    rdma_destroy_ep(listener);
    rdma_freeaddrinfo(passive);
}

/* A failure that an event would report is the error of a synchronous call. */
static void check_failures(void) {
    struct rdma_addrinfo *active = look_up(0, "7404");
    struct ibv_qp_init_attr attr = queue_attr(NULL, USUAL);
    struct rdma_cm_id *id;
    CHECK(rdma_create_ep(&id, active, NULL, &attr) == 0);
    MINUS_ONE_WITH(rdma_connect(id, NULL), ECONNREFUSED);
    CHECK(id->event && id->event->event == RDMA_CM_EVENT_REJECTED);
    /* The program may acknowledge it. */
    CHECK(rdma_ack_cm_event(id->event) == 0 && !id->event);
    rdma_destroy_ep(id);
    rdma_freeaddrinfo(active);
}

static void check_devices(void) {
    int count = 7;
    struct ibv_context **list = rdma_get_devices(&count);
    CHECK(list && count == 1 && list[0] && !list[1] && !strcmp(list[0]->device->name, "ironwarp0"));
    struct rdma_cm_id *id = resolved_to(rdma_create_event_channel(), 7405);
    CHECK(id->verbs == list[0]);
    /* The default protection domain belongs to the library, and is replaced if the program frees it. */
    struct ibv_pd *default_pd = id->pd;
    destroy(id);
    CHECK(ibv_dealloc_pd(default_pd) == 0);
    id = resolved_to(rdma_create_event_channel(), 7405);
    add_queue_pair(id);
    destroy(id);
    rdma_free_devices(list);
    rdma_free_devices(NULL);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    check_refused_queue_pairs();
    check_shared_receive_queues();
    check_creation();
    check_requests();
    check_failures();
    check_devices();
    printf("endpoints: %d checks passed\n", checks);
    return 0;
}
