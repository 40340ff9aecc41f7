/* The steps of a connection, one by one, for tests of librdmacm. Each identifier has a channel of its own unless one is given. */
#include <fcntl.h>
#include <sys/socket.h>

#include "pair.h"

/* A call that returns -1 and sets errno. */
#define MINUS_ONE_WITH(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))

static MAYBE_UNUSED struct sockaddr_in at(const char *text, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, text, &address.sin_addr) == 1);
    return address;
}

static MAYBE_UNUSED struct rdma_cm_id *new_id(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id;
    CHECK(channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    return id;
}

static MAYBE_UNUSED struct rdma_cm_id *listen_at(int port, int backlog) {
    struct rdma_cm_id *id = new_id(rdma_create_event_channel());
    struct sockaddr_in here = at(address, port);
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&here) == 0 && rdma_listen(id, backlog) == 0);
    return id;
}

/* Returns an identifier whose route to this process is resolved. */
static MAYBE_UNUSED struct rdma_cm_id *resolved_to(struct rdma_event_channel *channel, int port) {
    struct rdma_cm_id *id = new_id(channel);
    struct sockaddr_in here = at(address, port);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000) == 0);
    CHECK(expect_in(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == id && rdma_resolve_route(id, 1000) == 0);
    CHECK(expect_in(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
    return id;
}

/* Creates the queue pair of an identifier, and completion queues with it. */
static MAYBE_UNUSED void add_queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = queue_attr(NULL, USUAL);
    CHECK(rdma_create_qp(id, NULL, &attr) == 0 && id->qp && id->send_cq && id->recv_cq_channel);
}

/* Connects a new identifier with a queue pair. The listener has not answered. */
static MAYBE_UNUSED struct rdma_cm_id *connect_to(int port) {
    struct rdma_cm_id *id = resolved_to(rdma_create_event_channel(), port);
    add_queue_pair(id);
    struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 4};
    CHECK(rdma_connect(id, &param) == 0);
    return id;
}

static MAYBE_UNUSED int has_event(struct rdma_event_channel *channel, int ms) {
    struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
    return poll(&ready, 1, ms) == 1;
}

/* Accepts the next request, at a channel of its own. */
static MAYBE_UNUSED struct rdma_cm_id *accept_from(struct rdma_cm_id *listener) {
    struct rdma_cm_id *id = expect_in(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(rdma_migrate_id(id, rdma_create_event_channel()) == 0);
    add_queue_pair(id);
    CHECK(rdma_accept(id, NULL) == 0);
    return id;
}

struct ends {
    struct rdma_cm_id *near, *far;
};

static MAYBE_UNUSED struct ends connected(struct rdma_cm_id *listener, int port) {
    struct ends ends = {.near = connect_to(port)};
    ends.far = accept_from(listener);
    CHECK(expect_in(ends.near->channel, RDMA_CM_EVENT_ESTABLISHED) == ends.near);
    CHECK(expect_in(ends.far->channel, RDMA_CM_EVENT_ESTABLISHED) == ends.far);
    return ends;
}

/* Destroys an identifier with its queue pair and its channel. */
static MAYBE_UNUSED void destroy(struct rdma_cm_id *id) {
    struct rdma_event_channel *channel = id->channel;
    if (id->qp) rdma_destroy_qp(id);
    CHECK(!id->qp && !id->send_cq && !id->recv_cq && rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(channel);
}

/* Open descriptors of this process. */
static MAYBE_UNUSED int descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 4096; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}
