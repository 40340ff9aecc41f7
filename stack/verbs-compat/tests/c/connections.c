/*
 * rdma_connect, rdma_accept, rdma_reject, rdma_disconnect and the end of queue pairs, against their manual pages. Takes the
 * device's address. Prints `connections: N checks passed`.
 */
#include "connect.h"

static void check_parameters(void) {
    struct rdma_cm_id *listener = listen_at(7300, 4), *id = resolved_to(rdma_create_event_channel(), 7300);
    struct ibv_device_attr device;
    char data[255] = "private";
    struct rdma_conn_param param = {.private_data = data, .private_data_len = 252};
    MINUS_ONE_WITH(rdma_connect(NULL, NULL), EINVAL);
    MINUS_ONE_WITH(rdma_connect(id, NULL), EINVAL);
    MINUS_ONE_WITH(rdma_connect(id, &param), EINVAL);
    add_queue_pair(id);
    MINUS_ONE_WITH(rdma_connect(id, &param), EINVAL);
    /* Depths beyond the device's are refused; the largest value means the device's. */
    CHECK(ibv_query_device(id->verbs, &device) == 0 && device.max_qp_rd_atom < 200);
    param = (struct rdma_conn_param){.responder_resources = device.max_qp_rd_atom + 1};
    MINUS_ONE_WITH(rdma_connect(id, &param), EINVAL);
    param = (struct rdma_conn_param){.initiator_depth = device.max_qp_init_rd_atom + 1};
    MINUS_ONE_WITH(rdma_connect(id, &param), EINVAL);
    MINUS_ONE_WITH(rdma_disconnect(id), EINVAL);
    MINUS_ONE_WITH(rdma_accept(id, NULL), EINVAL);
    MINUS_ONE_WITH(rdma_reject(id, NULL, 0), EINVAL);
    CHECK(!has_event(id->channel, 0));
    /* After all that it connects. */
    param = (struct rdma_conn_param){.private_data = data, .private_data_len = 251, .responder_resources = 3, .initiator_depth = 255};
    CHECK(rdma_connect(id, &param) == 0);
    MINUS_ONE_WITH(rdma_connect(id, &param), EINVAL);
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(listener->channel, &event) == 0 && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(event->listen_id == listener && event->id != listener && event->id->verbs && event->id->channel == listener->channel);
    CHECK(event->param.conn.private_data_len == 251 && !memcmp(event->param.conn.private_data, data, 251));
    CHECK(event->param.conn.initiator_depth == 3 && event->param.conn.responder_resources == device.max_qp_init_rd_atom);
    struct rdma_cm_id *far = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    /* What fails leaves the request unanswered. */
    MINUS_ONE_WITH(rdma_accept(far, NULL), EINVAL);
    add_queue_pair(far);
    param = (struct rdma_conn_param){.private_data = data, .private_data_len = 252};
    MINUS_ONE_WITH(rdma_accept(far, &param), EINVAL);
    param = (struct rdma_conn_param){.responder_resources = device.max_qp_rd_atom + 1};
    MINUS_ONE_WITH(rdma_accept(far, &param), EINVAL);
    MINUS_ONE_WITH(rdma_reject(far, data, 252), EINVAL);
    CHECK(!has_event(id->channel, 0));
    param = (struct rdma_conn_param){.private_data = "yes", .private_data_len = 4, .responder_resources = 2, .initiator_depth = 3};
    CHECK(rdma_accept(far, &param) == 0);
    MINUS_ONE_WITH(rdma_accept(far, &param), EINVAL);
    MINUS_ONE_WITH(rdma_reject(far, NULL, 0), EINVAL);
    CHECK(rdma_get_cm_event(id->channel, &event) == 0 && event->event == RDMA_CM_EVENT_ESTABLISHED && event->id == id);
    CHECK(event->param.conn.private_data_len == 4 && !strcmp(event->param.conn.private_data, "yes"));
    CHECK(event->param.conn.initiator_depth == 2 && rdma_ack_cm_event(event) == 0);
    CHECK(expect_in(listener->channel, RDMA_CM_EVENT_ESTABLISHED) == far && rdma_establish(id) == 0);
    rdma_destroy_qp(far);
    CHECK(expect_in(listener->channel, RDMA_CM_EVENT_DISCONNECTED) == far && rdma_destroy_id(far) == 0);
    destroy(id);
    destroy(listener);
}

static void check_rejection(void) {
    struct rdma_cm_id *listener = listen_at(7301, 4), *id = connect_to(7301);
    struct rdma_cm_id *far = expect_in(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_event *event;
    CHECK(rdma_reject(far, "no", 3) == 0 && rdma_get_cm_event(id->channel, &event) == 0);
    CHECK(event->event == RDMA_CM_EVENT_REJECTED && event->id == id && event->status != 0);
    CHECK(event->param.conn.private_data_len == 3 && !strcmp(event->param.conn.private_data, "no"));
    CHECK(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(far) == 0);
    destroy(id);
    /* The identifier of a request is destroyed: its peer is rejected. */
    id = connect_to(7301);
    CHECK(rdma_destroy_id(expect_in(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST)) == 0);
    CHECK(expect_in(id->channel, RDMA_CM_EVENT_REJECTED) == id);
    destroy(id);
    /* And so are the requests that nobody has seen, when the listener goes. */
    id = connect_to(7301);
    CHECK(has_event(listener->channel, 5000));
    destroy(listener);
    CHECK(expect_in(id->channel, RDMA_CM_EVENT_REJECTED) == id);
    destroy(id);
}

/* DISCONNECTED comes at both sides, once, whichever side asks, and how often. */
static void check_disconnect(void) {
    struct rdma_cm_id *listener = listen_at(7302, 4);
    for (int who = 0; who < 3; who++) {
        struct ends ends = connected(listener, 7302);
        if (who != 1) CHECK(rdma_disconnect(ends.near) == 0);
        if (who != 0) CHECK(rdma_disconnect(ends.far) == 0);
        CHECK(expect_in(ends.near->channel, RDMA_CM_EVENT_DISCONNECTED) == ends.near);
        CHECK(expect_in(ends.far->channel, RDMA_CM_EVENT_DISCONNECTED) == ends.far);
        CHECK(rdma_disconnect(ends.near) == 0 && rdma_disconnect(ends.far) == 0);
        CHECK(!has_event(ends.near->channel, 20) && !has_event(ends.far->channel, 0));
        destroy(ends.near);
        destroy(ends.far);
    }
    destroy(listener);
}

/* The queue pair of a connection goes: its identifier gets the end at once, whatever the peer does, and so does the peer. */
static void check_destroyed_queue_pair(void) {
    struct rdma_cm_id *listener = listen_at(7303, 4);
    for (int way = 0; way < 3; way++) {
        struct ends ends = connected(listener, 7303);
        if (way == 1) CHECK(rdma_disconnect(ends.near) == 0);
        if (way == 2) CHECK(ibv_destroy_qp(ends.near->qp) == 0 && !ends.near->qp);
        else rdma_destroy_qp(ends.near);
        CHECK(expect_in(ends.near->channel, RDMA_CM_EVENT_DISCONNECTED) == ends.near);
        CHECK(expect_in(ends.far->channel, RDMA_CM_EVENT_DISCONNECTED) == ends.far);
        CHECK(!has_event(ends.near->channel, 20) && !has_event(ends.far->channel, 0));
        MINUS_ONE_WITH(rdma_disconnect(ends.near), EINVAL);
        if (way == 2) CHECK(ibv_destroy_cq(ends.near->send_cq) == 0 && ibv_destroy_cq(ends.near->recv_cq) == 0);
        struct rdma_event_channel *channel = ends.near->channel;
        if (way != 2) CHECK(!ends.near->send_cq);
        CHECK(rdma_destroy_id(ends.near) == 0);
        rdma_destroy_event_channel(channel);
        destroy(ends.far);
    }
    /* Before the connection is up: the attempt has failed. */
    struct rdma_cm_id *id = connect_to(7303);
    rdma_destroy_qp(id);
    CHECK(expect_in(id->channel, RDMA_CM_EVENT_CONNECT_ERROR) == id);
    destroy(id);
    destroy(listener);
}

/* A Send that the peer has received completes, although the peer destroys its queue pair at once. */
static void check_delivered_send(void) {
    static char bytes[64];
    struct rdma_cm_id *listener = listen_at(7304, 4);
    for (int turn = 0; turn < 100; turn++) {
        struct ends ends = connected(listener, 7304);
        struct ibv_mr *mr = ibv_reg_mr(ends.near->pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
        CHECK(mr && post_receive(ends.near->qp, 1, mr, sizeof bytes) == 0);
        CHECK(post(ends.far->qp, IBV_WR_SEND, 2, mr, 8, 0, 0) == 0);
        CHECK(take(ends.near->recv_cq, 1).status == IBV_WC_SUCCESS);
        rdma_destroy_qp(ends.near);
        CHECK(take(ends.far->send_cq, 2).status == IBV_WC_SUCCESS);
        CHECK(expect_in(ends.far->channel, RDMA_CM_EVENT_DISCONNECTED) == ends.far);
        expect_in(ends.near->channel, RDMA_CM_EVENT_DISCONNECTED);
        destroy(ends.near);
        destroy(ends.far);
        CHECK(ibv_dereg_mr(mr) == 0);
    }
    destroy(listener);
}

/* A queue pair of the program's own, named by its number. */
static void check_own_queue_pairs(void) {
    struct rdma_cm_id *listener = listen_at(7305, 4), *id = resolved_to(rdma_create_event_channel(), 7305);
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = queue_attr(cq, USUAL);
    struct ibv_qp *qp = ibv_create_qp(id->pd, &attr);
    struct ibv_qp_attr state = {.qp_state = IBV_QPS_INIT};
    int mask = 0;
    CHECK(cq && qp && rdma_init_qp_attr(id, &state, &mask) == 0 && mask & IBV_QP_STATE);
    CHECK(ibv_modify_qp(qp, &state, mask) == 0);
    state.qp_state = IBV_QPS_RTS;
    CHECK(rdma_init_qp_attr(id, &state, &mask) == 0 && mask == 0);
    MINUS_ONE_WITH(rdma_init_qp_attr(id, NULL, &mask), EINVAL);
    struct rdma_conn_param param = {.qp_num = qp->qp_num + 1};
    MINUS_ONE_WITH(rdma_connect(id, &param), EINVAL);
    param.qp_num = qp->qp_num;
    CHECK(rdma_connect(id, &param) == 0);
    struct rdma_cm_id *far = accept_from(listener);
    CHECK(expect_in(id->channel, RDMA_CM_EVENT_ESTABLISHED) == id && expect_in(far->channel, RDMA_CM_EVENT_ESTABLISHED) == far);
    /* Another identifier cannot have the same queue pair. */
    struct rdma_cm_id *other = resolved_to(rdma_create_event_channel(), 7305);
    MINUS_ONE_WITH(rdma_connect(other, &param), EINVAL);
    destroy(other);
    /* With the identifier the connection ends, and no event is left for anyone here. */
    struct rdma_event_channel *channel = id->channel;
    CHECK(rdma_destroy_id(id) == 0 && expect_in(far->channel, RDMA_CM_EVENT_DISCONNECTED) == far);
    for (int turn = 0; turn < 200; turn++) {
        id = new_id(channel);
        CHECK(!has_event(channel, 0) && rdma_destroy_id(id) == 0);
    }
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && !has_event(channel, 0));
    rdma_destroy_event_channel(channel);
    destroy(far);
    destroy(listener);
}

/* A fault of the peer differs from an orderly end by an asynchronous event, as with the kernel's iWARP devices. */
static void check_faults(void) {
    static char bytes[64];
    struct rdma_cm_id *listener = listen_at(7306, 4);
    struct ends ends = connected(listener, 7306);
    struct ibv_mr *mr = ibv_reg_mr(ends.near->pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_async_event event;
    CHECK(mr && post(ends.near->qp, IBV_WR_RDMA_WRITE, 1, mr, 8, (uintptr_t)bytes, mr->rkey) == 0);
    CHECK(expect_in(ends.far->channel, RDMA_CM_EVENT_DISCONNECTED) == ends.far);
    CHECK(async_event(ends.far->verbs, 1000, &event) == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == ends.far->qp);
    expect_in(ends.near->channel, RDMA_CM_EVENT_DISCONNECTED);
    destroy(ends.near);
    destroy(ends.far);
    ends = connected(listener, 7306);
    CHECK(post(ends.near->qp, IBV_WR_SEND, 2, mr, 8, 0, 0) == 0);
    CHECK(expect_in(ends.far->channel, RDMA_CM_EVENT_DISCONNECTED) == ends.far);
    CHECK(async_event(ends.far->verbs, 1000, &event) == IBV_EVENT_QP_REQ_ERR && event.element.qp == ends.far->qp);
    expect_in(ends.near->channel, RDMA_CM_EVENT_DISCONNECTED);
    destroy(ends.near);
    destroy(ends.far);
    ends = connected(listener, 7306);
    CHECK(rdma_disconnect(ends.near) == 0 && expect_in(ends.far->channel, RDMA_CM_EVENT_DISCONNECTED) == ends.far);
    expect_in(ends.near->channel, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(async_event(ends.far->verbs, 0, &event) == -1);
    destroy(ends.near);
    destroy(ends.far);
    CHECK(ibv_dereg_mr(mr) == 0);
    destroy(listener);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    check_parameters();
    check_rejection();
    check_disconnect();
    check_destroyed_queue_pair();
    check_delivered_send();
    check_own_queue_pairs();
    check_faults();
    printf("connections: %d checks passed\n", checks);
    return 0;
}
